"""A system in a process of its own, and how much memory all of its processes took."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO, Any

import psutil

from benchmarks.data import Trades
from benchmarks.peers import ROOT, command
from benchmarks.peers.protocol import Config, Outcome
from penstock.settings import cores

SAMPLE_SECONDS = 0.05
# Listing all processes costs milliseconds, reading the memory of known ones microseconds.
SAMPLES_PER_LISTING = 10
STOP_SECONDS = 30


@dataclass(frozen=True)
class Measured:
    """A system's outcome and its peak memory; or, without an outcome, why there is none."""

    outcome: Outcome | None
    peak_mb: float
    error: str = ""


def configured(trades: Trades, system: str, case: str, work: Path, **more: Any) -> Config:
    """Return what a system is told of its input and its place; `more` has at least `warmups` and `runs`."""
    return Config(
        system=system,
        case=case,
        format=trades.format,
        input=str(trades.input),
        closing=str(trades.closing),
        work=str(work),
        epoch_rows=trades.epoch_rows,
        cores=cores(),
        started=0.0,
        **more,
    )


def measure(config: Config) -> Measured:
    """Run a system to its end."""
    config = replace(config, started=time.time())
    with tempfile.TemporaryFile("w+") as said, tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            command(config.system, json.dumps(asdict(config))),
            cwd=ROOT,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=errors,
        )
        peak = Peak(process.pid)
        try:
            code = process.wait()
        finally:
            peak.stop()
            end(process, peak.known)
        if code:
            return Measured(None, peak.mb, _tail(errors) or _tail(said) or f"exit code {code}")
        return Measured(Outcome(**json.loads(_tail(said))), peak.mb)


def answered(module: str, job: Any, what: str) -> tuple[Any, float]:
    """Run a job of ours, a module that is told a dataclass, to its end; return its last line and its peak memory."""
    process = subprocess.Popen(
        [sys.executable, "-m", module, json.dumps(asdict(job))],
        cwd=ROOT,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    peak = Peak(process.pid)
    try:
        said, errors = process.communicate()
    finally:
        peak.stop()
        end(process, peak.known)
    if process.returncode:
        raise SystemExit(f"{what}: {errors.decode(errors='replace')[-2000:]}")
    return json.loads(said.decode().strip().splitlines()[-1]), round(peak.mb)


def environment() -> dict[str, str]:
    """Return the variables that a system of the bench is started with."""
    from penstock.spark.session.java import find_java

    # A path of ours would put our libraries before those of a system's own environment.
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    return kept | {"JAVA_HOME": str(find_java().home), "PYTHONUNBUFFERED": "1"}


def _tail(stream: IO[str]) -> str:
    """Return the last line that says something."""
    stream.seek(0)
    lines = [line.strip() for line in stream if line.strip()]
    return lines[-1] if lines else ""


def stop_process(process: subprocess.Popen[bytes]) -> None:
    """End a server that was started: it is asked first."""
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def end(process: subprocess.Popen[bytes], family: list[psutil.Process]) -> None:
    """End what a system left behind: only processes that were seen as children of the one we started."""
    if process.poll() is None:
        process.terminate()
    _, alive = psutil.wait_procs(family, timeout=STOP_SECONDS)
    for left in alive:
        left.kill()
    process.wait()


class Peak:
    """Watches the resident memory of a process and its children, and keeps the largest sum."""

    def __init__(self, pid: int) -> None:
        self.mb = 0.0
        self.known: list[psutil.Process] = []
        self._root = psutil.Process(pid)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Watch no longer."""
        self._stopped.set()
        self._thread.join()

    def _watch(self) -> None:
        count = 0
        while not self._stopped.wait(SAMPLE_SECONDS):
            if count % SAMPLES_PER_LISTING == 0:
                self._list()
            count += 1
            self.mb = max(self.mb, sum(map(_resident, self.known)) / 2**20)

    def _list(self) -> None:
        try:
            children = self._root.children(recursive=True)
            self.known = [self._root, *(child for child in children if not _is_half_started(child))]
        except psutil.NoSuchProcess:
            return


def _is_half_started(process: psutil.Process) -> bool:
    """Say whether a JVM's child is yet to become a program: till then it shows the JVM's memory as its own."""
    try:
        parent = process.parent()
        own = process.cmdline()
        return parent is not None and own == parent.cmdline() and os.path.basename(own[0]) == "java"
    except (psutil.Error, IndexError):
        return True


def _resident(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.Error:
        return 0
