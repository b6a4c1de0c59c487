"""Drivers that wait for jobs: as many as jobs run at once, and one more where one is to be killed."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 300


class Spare:
    """One such process; `code` is the exit code of the job that it was given, None while that runs."""

    def __init__(self, env: Mapping[str, str], log: Path) -> None:
        with log.open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-u", "-m", "tests.crash.warm"],
                cwd=ROOT,
                env={**os.environ, **env},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        self.log, self.ready, self.code = log, False, None
        self.code: int | None = None

    def order(self, order: dict[str, Any]) -> None:
        """Have it run a job, as soon as it is ready."""
        if not self.ready:
            assert self._answer(START_SECONDS) == "ready", f"it did not start: {self.log.read_text()[-2000:]}"
            self.ready = True
        self.code = None
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(order).encode() + b"\n")
        self.process.stdin.flush()

    def poll(self) -> int | None:
        """Return the exit code of the job, once it has ended or its process has."""
        if self.code is None and (answer := self._answer(0)) is not None:
            self.code = int(answer or self.process.wait())
        return self.code

    def _answer(self, seconds: float) -> str | None:
        """Return its next line, an empty one if it is gone, None if there is none yet."""
        assert self.process.stdout is not None
        if not select.select([self.process.stdout], [], [], seconds)[0]:
            return None
        return self.process.stdout.readline().decode().strip()

    @property
    def jvm(self) -> list[psutil.Process]:
        """Its JVM, if that runs."""
        try:
            children = psutil.Process(self.process.pid).children()
            return [one for one in children if one.name() == "java" and one.status() != psutil.STATUS_ZOMBIE]
        except psutil.NoSuchProcess:
            return []

    def end(self) -> None:
        """Kill it and all that it started."""
        try:
            root = psutil.Process(self.process.pid)
            family = [*root.children(recursive=True), root]
        except psutil.NoSuchProcess:
            family = []
        for one in family:
            try:
                one.kill()
            except psutil.NoSuchProcess:
                continue
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()


class Spares:
    """The drivers of one kind, all with the same environment."""

    def __init__(self, env: Mapping[str, str], folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._env, self._folder = env, folder
        self._idle: list[Spare] = []
        self._all: list[Spare] = []
        self._lock = threading.Lock()

    def start(self) -> None:
        """Start one more, and do not wait for it."""
        with self._lock:
            self._idle.append(self._started())

    def take(self) -> Spare:
        """Return one that no other job has, the longest waiting one."""
        with self._lock:
            return self._idle.pop(0) if self._idle else self._started()

    def give_back(self, spare: Spare) -> None:
        """Keep one whose job has ended, unless what was killed was itself."""
        if spare.process.poll() is None and spare.jvm:
            with self._lock:
                self._idle.insert(0, spare)
        else:
            spare.end()

    def end(self) -> None:
        """End them all."""
        with self._lock:
            for one in self._all:
                one.end()

    def _started(self) -> Spare:
        spare = Spare(self._env, self._folder / f"spare-{len(self._all)}.log")
        self._all.append(spare)
        return spare
