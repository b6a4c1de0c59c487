"""Outcomes: how a job of a driver ended, in `outcome-JOB.json` of the run folder."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from penstock.driver.messages import Message
from penstock.storage.durable_files import JsonFile

Ending = Literal["finished", "stopped", "canceled", "failed"]


@dataclass(frozen=True)
class Outcome:
    """The `ended` event of a job; `savepoint` is the one that its stop created, if it was asked for and succeeded."""

    job: str
    attempt: int
    outcome: Ending
    at: float
    error: Message | None = None
    report: Message | None = None
    savepoint: str | None = None

    @property
    def exit_code(self) -> int:
        """The exit code of a driver with this job only: that of `penstock run`."""
        return int(self.error["exit_code"]) if self.outcome == "failed" and self.error else 0

    def write(self, folder: Path) -> None:
        """Write it durably, all or nothing."""
        JsonFile(outcome_path(folder, self.job)).write(asdict(self))

    @property
    def fields(self) -> dict[str, Any]:
        """What the event has of it."""
        return {
            "outcome": self.outcome,
            "error": self.error,
            "report": self.report,
            "savepoint": self.savepoint,
            "attempt": self.attempt,
        }


def outcome_path(folder: Path, job: str) -> Path:
    """Return the path of a job's outcome in a run folder."""
    return folder / f"outcome-{job}.json"
