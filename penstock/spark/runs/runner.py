"""The contract of a run, whatever way Spark runs it."""

from __future__ import annotations

from typing import Literal, Protocol, Self

from penstock.errors import PenstockError
from penstock.report import Progress, Report

Until = Literal["stopped", "drained", "ended"]


class Runner(Protocol):
    """A pipeline that is running; `notice` says what was done to its checkpoint before it started."""

    name: str
    notice: str | None
    error: PenstockError | None

    def begin(self) -> Self:
        """Start the queries, and return at once."""

    def stop(self) -> None:
        """Ask for a clean stop: the epoch that is running is finished, and no other starts."""

    def abort(self) -> None:
        """Stop without finishing the epoch that is running; the next run of the checkpoint does it again."""

    def fence(self, token: int) -> None:
        """Record the fencing token of a newer job manager in the lease of the checkpoint."""

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the end and return whether it came; raises what made the job fail."""

    def progress(self) -> Progress:
        """Return the newest epoch and the totals so far."""

    def report(self) -> Report:
        """Return what was done over all epochs of the checkpoint."""
