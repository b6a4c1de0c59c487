"""Jobs as text: a line, their times, an error."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from penstock.cli.watermark_text import instant
from penstock.errors import JobFailed

if TYPE_CHECKING:
    from penstock.control.api.jobs import Job


def epoch(job: Job) -> int | None:
    """Return the newest committed epoch; None before the first."""
    return None if job.epoch is None or job.epoch < 0 else job.epoch


def line(job: Job) -> str:
    """Return a job as one line, with its error or what it waits for."""
    error = f"{job.error.type}: {job.error.message}" if job.error else None
    why = job.waiting_for or error
    return f"job {job.name} {job.id}: {job.state}, version {job.version}" + (f" ({why})" if why else "")


def raise_failure(job: Job) -> None:
    """Raise the error that a failed job ended with."""
    if job.state != "FAILED":
        return
    error = job.error
    cause = f"{error.type}: {error.message}" if error else "no error was reported"
    hint = (error.hint if error else None) or f"penstock job exceptions {job.name} has what happened"
    message = f"job {job.name} {job.id} failed: {cause}"
    raise JobFailed(message, hint=hint)


def watermark_text(at: datetime | None, *, ended: bool) -> str | None:
    """Format a watermark, which may be the end of input."""
    return "end of input" if ended else None if at is None else instant(at)


def time_text(at: datetime | None) -> str | None:
    """Format a time in UTC, in seconds."""
    return None if at is None else at.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def duration(length: timedelta) -> str:
    """Format a duration with its two largest units.

    >>> duration(timedelta(seconds=75)), duration(timedelta(days=2, hours=5)), duration(timedelta(seconds=0.4))
    ('1m 15s', '2d 5h', '0s')
    """
    left = max(0, int(length.total_seconds()))
    parts: list[str] = []
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)):
        if left >= size or (unit == "s" and not parts):
            parts.append(f"{left // size}{unit}")
        left %= size
    return " ".join(parts[:2])
