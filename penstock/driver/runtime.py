"""What a driver needs of the system that runs its jobs. `spark_runtime` is the real one."""

from __future__ import annotations

from typing import Any, Protocol

from penstock.driver.assignment import Assignment
from penstock.report import Progress, Report


class Run(Protocol):
    """A pipeline that is running: the part of a Runner that the driver uses."""

    notice: str | None

    def stop(self) -> None:
        """Ask for a clean stop: the epoch that is running is finished, and no other starts."""

    def abort(self) -> None:
        """Stop without finishing the epoch that is running."""

    def fence(self, token: int) -> None:
        """Record the fencing token of a newer manager in the checkpoint's lease."""

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the end and return whether it came; raises what made the job fail."""

    def progress(self) -> Progress:
        """Return the newest epoch and the totals so far."""

    def report(self) -> Report:
        """Return what was done over all epochs of the checkpoint."""


class Runtime(Protocol):
    """Starts jobs and creates their savepoints."""

    def start(self, assignment: Assignment) -> Run:
        """Load the job's pipeline and start it; raises a PenstockError if that fails."""

    def savepoint(self, assignment: Assignment, name: str) -> dict[str, Any]:
        """Create a savepoint of a job, which may be running, and describe it: `path`, `bytes`, `epochs`."""

    def ended(self, assignment: Assignment) -> None:
        """Release what a job used, now that it has ended."""
