"""A job as a user runs it: `penstock run` in a process of its own, watched by what it says, killed with its kin."""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from tests.crash.spares import Spare, Spares
from tests.waiting import becomes

ROOT = Path(__file__).resolve().parents[2]
_EPOCH = re.compile(r"^epoch ", re.MULTILINE)
POLL_SECONDS = 0.02
BUSY_SECONDS = 0.05


class Driver:
    """Starts the job, again after each death; `lives` says how often, `said` what the present one wrote."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str], folder: Path, deadline: float) -> None:
        self.command, self.env, self.folder, self.deadline = [*command], {**os.environ, **env}, folder, deadline
        self.lives = 0
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, faults: Mapping[str, Any] | None = None) -> None:
        """Begin another life; its output goes to a file of its own."""
        assert not faults, "only a driver that the matrix started has tasks that fail"
        self.lives += 1
        with self._output.open("wb") as out:
            penstock = [sys.executable, "-m", "penstock.cli", *self.command]
            streams = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": subprocess.STDOUT}
            self.process = subprocess.Popen(penstock, cwd=ROOT, env=self.env, **streams)  # type: ignore[call-overload]

    @property
    def _output(self) -> Path:
        return self.folder / f"driver-{self.lives}.log"

    @property
    def said(self) -> str:
        return self._output.read_text(errors="replace")

    @property
    def epochs(self) -> int:
        """How many epochs this life has finished."""
        return len(_EPOCH.findall(self.said))

    @property
    def pid(self) -> int:
        """The process of this life."""
        assert self.process is not None
        return self.process.pid

    @property
    def code(self) -> int | None:
        """The exit code of this life, once it has ended."""
        return self.process.poll() if self.process is not None else None

    @property
    def runs(self) -> bool:
        return self.process is not None and self.code is None

    @property
    def succeeded(self) -> bool:
        return self.code == 0

    def wait_for_epochs(self, count: int) -> None:
        """Wait until this life has finished so many epochs, or has ended."""
        while self.runs and self.epochs < count:
            self._tick()

    def wait(self) -> None:
        """Wait for the end."""
        while self.runs:
            self._tick()

    def rest(self, seconds: float) -> None:
        """Let it go on for a moment, or to its end."""
        until = time.monotonic() + seconds
        while self.runs and time.monotonic() < until:
            self._tick()

    def kill(self, chance: random.Random, how: str | None = None) -> str:
        """Kill -9 its Python, which its JVM outlives by seconds; or its JVM; or both. Say which."""
        assert self.process is not None
        jvm = [one for one in self.family if _is(one, "java")]
        how = how or chance.choice(["python", "python", "jvm", "both"])
        if how != "jvm" or not jvm:
            self.process.kill()
        if how != "python":
            _kill(jvm)
            psutil.wait_procs(jvm, timeout=10)
        # A driver whose JVM exited ends by itself; its error is not for us.
        self.wait()
        return how

    def stop(self) -> None:
        """Ask it to stop after its epoch, and wait for that."""
        assert self.process is not None
        if self.runs:
            self.process.send_signal(signal.SIGTERM)
        self.wait()

    def kill_worker(self, chance: random.Random) -> str:
        """Kill -9 one of the Pythons that Spark runs."""
        return kill_worker(self.family, chance)

    @property
    def family(self) -> list[psutil.Process]:
        """All that descend from it now."""
        assert self.process is not None
        try:
            return psutil.Process(self.process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []

    def end(self) -> None:
        """Kill what is left of it."""
        if self.runs:
            assert self.process is not None
            family = self.family
            self.process.kill()
            _kill(family)
            self.process.wait()

    def _tick(self) -> None:
        if time.monotonic() > self.deadline:
            raise TimeoutError(f"the job did not end in time; its last words: {self.said[-500:]}")
        if self.process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(POLL_SECONDS)


class WarmDriver(Driver):
    """The same in a process that was started before; `spark` are settings of its session."""

    def __init__(
        self,
        spares: Spares,
        spark: Mapping[str, str],
        command: Sequence[str],
        env: Mapping[str, str],
        folder: Path,
        deadline: float,
    ) -> None:
        super().__init__(command, {}, folder, deadline)
        self.env, self.spark, self.spares = dict(env), dict(spark), spares
        self.spare: Spare | None = None

    def start(self, faults: Mapping[str, Any] | None = None) -> None:
        self._release()
        self.lives += 1
        self._output.touch()
        self.spare = self.spares.take()
        self.process = self.spare.process
        order = {"arguments": self.command, "env": self.env, "spark": self.spark, "output": str(self._output)}
        self.spare.order(order | {"faults": dict(faults or {})})

    @property
    def code(self) -> int | None:
        return self.spare.poll() if self.spare is not None else None

    def kill(self, chance: random.Random, how: str | None = None) -> str:
        # The next life's JVM starts while this one's is on its way out.
        self.spares.start()
        return super().kill(chance, how)

    def end(self) -> None:
        if self.runs and self.spare is not None:
            self.spare.end()
        self._release()

    def _release(self) -> None:
        if self.spare is not None:
            self.spares.give_back(self.spare)
            self.spare = self.process = None


def kill_worker(family: Sequence[psutil.Process], chance: random.Random) -> str:
    """Kill -9 one Python among these processes, not the one that starts the others if there are others."""
    # Spark's JVM has PySpark on its class path, and no Python runs before it does.
    pythons = {one.pid: one for one in family if _is(one, "pyspark") and not _is(one, "java")}
    leaves = [one for one in pythons.values() if not _children(one) & pythons.keys()] or [*pythons.values()]
    if not leaves:
        return "nobody"
    chosen = chance.choice(sorted(_busy(leaves) or leaves, key=lambda one: one.pid))
    _kill([chosen])
    return "worker"


def _busy(processes: Sequence[psutil.Process]) -> list[psutil.Process]:
    """Return those that do something: others wait for a task, and nobody would miss them."""
    before = {one.pid: _seconds(one) for one in processes}
    busy: list[psutil.Process] = []

    def found() -> bool:
        busy.extend(one for one in processes if _seconds(one) > before[one.pid])
        return bool(busy)

    becomes(found, seconds=BUSY_SECONDS, poll=0.01)
    return busy


def _seconds(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.Error:
        return 0.0
    return float(times.user + times.system)


def _children(process: psutil.Process) -> set[int]:
    try:
        return {child.pid for child in process.children()}
    except psutil.Error:
        return set()


def is_java(process: psutil.Process) -> bool:
    """Return whether this is a JVM that still runs."""
    return _is(process, "java")


def _is(process: psutil.Process, word: str) -> bool:
    try:
        line = process.cmdline()
        return word in os.path.basename(line[0]) if word == "java" else any(word in part for part in line[1:])
    except (psutil.Error, IndexError):
        return False


def _kill(processes: Sequence[psutil.Process]) -> None:
    for one in processes:
        try:
            one.kill()
        except psutil.NoSuchProcess:
            continue
