"""A runtime without Spark: each run does what its test says, when its test says so."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.driver.assignment import Assignment, read_assignment
from penstock.errors import PenstockError, StoreFailed
from penstock.report import Progress, Report


def assignment(job: str = "j1", **fields: Any) -> Assignment:
    return read_assignment({"job": job, "target": "job.py", "checkpoint": "c", "token": 1, **fields})


class FakeRun:
    """Runs until it is stopped, aborted, failed or finished."""

    def __init__(self) -> None:
        self.notice: str | None = None
        self.now = Progress()
        self.fenced: list[int] = []
        self.aborted = self.stopped = self.ended = False
        self.error: Exception | None = None
        self.deaf = False
        self._done = threading.Event()

    def commit(self, epoch: int, rows: int) -> None:
        """Commit an epoch."""
        self.now = replace(self.now, epoch=epoch, epochs=self.now.epochs + 1, rows_in=self.now.rows_in + rows)

    def finish(self) -> None:
        self.ended = True
        self._done.set()

    def fail(self, error: Exception) -> None:
        self.error = error
        self._done.set()

    def stop(self) -> None:
        self.stopped = True
        if not self.deaf:
            self._done.set()

    def abort(self) -> None:
        self.aborted = True
        if not self.deaf:
            self._done.set()

    def fence(self, token: int) -> None:
        self.fenced.append(token)

    def wait(self, timeout: float | None = None) -> bool:
        done = self._done.wait(timeout)
        if done and self.error is not None:
            raise self.error
        return done

    def progress(self) -> Progress:
        return self.now

    def report(self) -> Report:
        return Report(epochs=self.now.epochs, ended=self.ended)


@dataclass
class FakeRuntime:
    """Starts fake runs; `held` lets a start wait, `refuses` lets it fail."""

    runs: dict[str, FakeRun] = field(default_factory=dict)
    refuses: PenstockError | None = None
    savepoint_error: PenstockError | None = None
    savepoints: list[tuple[str, str]] = field(default_factory=list)
    over: list[str] = field(default_factory=list)
    held: threading.Event | None = None
    deaf: bool = False

    def start(self, assignment: Assignment) -> FakeRun:
        if self.held is not None:
            assert self.held.wait(60)
        if self.refuses is not None:
            raise self.refuses
        run = FakeRun()
        run.deaf = self.deaf
        self.runs[assignment.job] = run
        return run

    def savepoint(self, assignment: Assignment, name: str) -> dict[str, Any]:
        if self.savepoint_error is not None:
            raise self.savepoint_error
        self.savepoints.append((assignment.job, name))
        return {"path": f"s/{name}", "bytes": 10, "epochs": {"final": 3}}

    def ended(self, assignment: Assignment) -> None:
        self.over.append(assignment.job)


def store_failed() -> StoreFailed:
    return StoreFailed("the store does not answer", hint="try again", transient=True)
