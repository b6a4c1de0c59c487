"""A driver process without Spark: the real one in all but what runs its jobs, which do what their arguments say.

`behaviour` is one of: run (until it is stopped), idle (no epochs), finish, fail (after its first epoch), fail_once,
mistake, deaf (does not stop when asked), eat (memory), exit, loop (without an epoch), fork (a process that stays),
print (64 MB). Every start is noted in the file `starts` of the checkpoint; a
second run beside a first one is noted in `twice`.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading
import types
from dataclasses import replace
from pathlib import Path
from typing import Any

from penstock.driver import __main__ as driver
from penstock.driver import socket_server
from penstock.driver.assignment import Assignment
from penstock.errors import BadEntry, CheckpointMissing, SourceFailed
from penstock.report import Counts, NodeProgress, Progress, Report

EPOCH_SECONDS = 0.05
HEARTBEAT_SECONDS = 0.2


class ScriptedRun:
    """Commits an epoch of ten rows every moment, numbered on from the last run."""

    notice: str | None = None

    def __init__(self, assignment: Assignment) -> None:
        self._behaviour = assignment.arguments.get("behaviour", "run")
        self._folder = Path(assignment.checkpoint)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(self._folder / "lock", os.O_RDWR | os.O_CREAT)
        self._note_start()
        print(f"the job is {assignment.name}")
        self._stop = threading.Event()
        self.now = Progress(epoch=self._last_epoch())
        self._first = self.now.epoch + 1

    def _note_start(self) -> None:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            (self._folder / "twice").touch()
        with (self._folder / "starts").open("a") as file:
            file.write(f"{os.getpid()}\n")

    def _last_epoch(self) -> int:
        try:
            return int((self._folder / "epoch").read_text())
        except FileNotFoundError:
            return -1

    def _starts(self) -> int:
        return len((self._folder / "starts").read_text().splitlines())

    def stop(self) -> None:
        if self._behaviour != "deaf":
            self._stop.set()

    def abort(self) -> None:
        self._stop.set()

    def fence(self, token: int) -> None:
        (self._folder / "token").write_text(str(token))

    def wait(self, timeout: float | None = None) -> bool:
        if self._stop.wait(EPOCH_SECONDS):
            os.close(self._lock)
            return True
        if self._behaviour == "idle":
            return False
        epoch = self.now.epoch + 1
        (self._folder / "epoch.new").write_text(str(epoch))
        (self._folder / "epoch.new").rename(self._folder / "epoch")
        self.now = replace(
            self.now,
            epoch=epoch,
            epochs=self.now.epochs + 1,
            rows_in=self.now.rows_in + 10,
            rows_out=self.now.rows_out + 10,
            rows_in_per_s=200.0,
            epoch_ms=40,
            lag_rows=5,
            nodes={"filter": NodeProgress(Counts(rows_in=self.now.rows_in + 10, used=self.now.rows_in + 10), 200.0)},
        )
        self._misbehave(epoch)
        return self._behaviour == "finish" and epoch >= self._first + 2

    def _misbehave(self, epoch: int) -> None:
        fails = self._behaviour == "fail" or (self._behaviour == "fail_once" and self._starts() == 1)
        if fails and epoch > self._first:
            os.close(self._lock)
            message = "the source is away"
            raise SourceFailed(message, hint="start it", transient=True)
        if self._behaviour == "eat":
            self.eaten = bytearray(os.urandom(1024)) * 400_000
        if self._behaviour == "exit":
            os._exit(7)
        if self._behaviour == "loop" and epoch > self._first:
            while not self._stop.is_set():
                pass
        if self._behaviour == "fork" and epoch == self._first:
            child = subprocess.Popen(["sleep", "600"], start_new_session=True)
            (self._folder / "forked").write_text(str(child.pid))
        if self._behaviour == "print" and epoch == self._first:
            for _ in range(64):
                print("x" * 2**20)

    def progress(self) -> Progress:
        return self.now

    def report(self) -> Report:
        return Report(epochs=self.now.epochs, ended=self._behaviour == "finish")


class ScriptedRuntime:
    """Stands in for SparkRuntime."""

    def __init__(self, log: Path) -> None:
        pass

    def start(self, assignment: Assignment) -> ScriptedRun:
        if assignment.arguments.get("behaviour") == "mistake":
            message = "vwap.py has no pipeline"
            raise BadEntry(message, hint="define one")
        return ScriptedRun(assignment)

    def savepoint(self, assignment: Assignment, name: str) -> dict[str, Any]:
        if not (Path(assignment.checkpoint) / "epoch").exists():
            message = "no epoch is committed yet, so there is nothing to save"
            raise CheckpointMissing(message, hint="wait for the first epoch of the job", transient=True)
        path = Path(assignment.savepoints or "") / name
        path.mkdir(parents=True)
        return {"path": str(path), "bytes": 0, "epochs": 1}

    def ended(self, assignment: Assignment) -> None:
        pass

    def close(self) -> None:
        pass


def main() -> int:
    modules = {"spark_runtime": {"SparkRuntime": ScriptedRuntime}, "spare": {"start_spare": lambda settings: None}}
    for name, content in modules.items():
        module = types.ModuleType(f"penstock.driver.{name}")
        vars(module).update(content)
        sys.modules[module.__name__] = module
    defaults = socket_server.SocketServer.__init__.__kwdefaults__
    assert defaults is not None
    defaults["heartbeat_seconds"] = HEARTBEAT_SECONDS
    return driver.main(sys.argv[1:])


if __name__ == "__main__":
    os._exit(main())
