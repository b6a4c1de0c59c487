"""Event times and watermarks as commands print them."""

from __future__ import annotations

from datetime import UTC, datetime

from penstock.report import EventTimes, Watermark

# The end of input is a watermark so large that every window closes.
LAST_YEAR = 9998


def instant(time: datetime | None) -> str:
    """Format a time in UTC, in seconds unless it has a fraction.

    >>> instant(datetime(2026, 1, 1, 0, 1, 35, tzinfo=UTC))
    '2026-01-01T00:01:35Z'
    """
    if time is None:
        return "-"
    utc = time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)
    parts = "auto" if utc.microsecond % 1000 or not utc.microsecond else "milliseconds"
    return "end of input" if is_end_of_input(utc) else utc.isoformat(timespec=parts).replace("+00:00", "Z")


def is_end_of_input(time: datetime | None) -> bool:
    """Return whether a time is the end of all input."""
    return time is not None and time.year >= LAST_YEAR


def iso_instant(time: str | None) -> str:
    """Format an ISO time as `instant` does."""
    return instant(datetime.fromisoformat(time) if time else None)


def watermark_holder(watermark: Watermark) -> str:
    """Return which input holds a watermark back, and which are idle.

    >>> from penstock.report import EventTimes
    >>> times = (EventTimes("clicks", "ts", 5_000_000), EventTimes("views", "ts", 0, idle=True))
    >>> watermark_holder(Watermark("final", times))
    'held by clicks, no row yet; idle: views'
    """
    if len(watermark.times) == 1 and len(watermark.times[0].partitions) < 2:
        return ""
    held = None if is_end_of_input(watermark.at) else watermark.held_by
    idle = [name for time in watermark.times for name in idle_inputs(time)]
    why = "" if held is None else f"held by {_holder(held)}" + (", no row yet" if held.newest is None else "")
    return "; ".join(part for part in (why, f"idle: {', '.join(idle)}" if idle else "") if part)


def _holder(times: EventTimes) -> str:
    return times.slowest.name if times.slowest is not None else times.source


def idle_inputs(times: EventTimes) -> list[str]:
    """Return the input if it is idle, else its idle partitions."""
    return [times.source] if times.idle else [one.name for one in times.partitions if one.idle]
