"""What a run did, in a few lines."""

from __future__ import annotations

from datetime import UTC, datetime

from penstock.durations import span_text
from penstock.report import Counts, EventTimes, Report, Watermark

# The end of input is declared as a time so far ahead that every window closes.
LAST_YEAR = 9998


def instant(time: datetime | None) -> str:
    """Return a time in UTC, to the second unless it has a part of one.

    >>> instant(datetime(2026, 1, 1, 0, 1, 35, tzinfo=UTC))
    '2026-01-01T00:01:35Z'
    """
    if time is None:
        return "-"
    utc = time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)
    parts = "auto" if utc.microsecond % 1000 or not utc.microsecond else "milliseconds"
    return "end of time" if is_over(utc) else utc.isoformat(timespec=parts).replace("+00:00", "Z")


def is_over(time: datetime | None) -> bool:
    """Say whether a time is the end of all input."""
    return time is not None and time.year >= LAST_YEAR


def iso_instant(time: str | None) -> str:
    """Return a time that was kept as text, as `instant` shows it."""
    return instant(datetime.fromisoformat(time) if time else None)


def summary(name: str, report: Report) -> str:
    """Return what a run did: its state, the rows of each sink, and where each node's rows went."""
    state = "ended, all windows closed" if report.ended else "stopped; run again to go on"
    lines = [f"{name}: {report.epochs} epochs, watermark {instant(report.watermark)}, {state}"]
    lines += [line for one in report.watermarks for line in _watermark(one, alone=len(report.watermarks) == 1)]
    former = dict.fromkeys(report.former_sinks, " (by earlier runs; no sink of this pipeline)")
    lines += [f"  {sink}: {rows:,} rows written{former.get(sink, '')}" for sink, rows in report.rows.items()]
    lines += [_changed(source, files) for source, files in report.changed_inputs.items()]
    return "\n".join(lines + _counts(report.counts))


def _changed(source: str, files: int) -> str:
    what, it = ("1 file", "it") if files == 1 else (f"{files:,} files", "them")
    return f"  {source}: {what} changed after having been found; what is new in {it} was not read"


def held_back(watermark: Watermark) -> str:
    """Say what holds a watermark back, and what does not.

    >>> from penstock.report import EventTimes
    >>> held_back(Watermark("final", (EventTimes("clicks", "ts", 5_000_000), EventTimes("views", "ts", 0, idle=True))))
    'held by clicks, no row yet; idle: views'
    """
    if len(watermark.times) == 1 and len(watermark.times[0].partitions) < 2:
        return ""
    held = None if is_over(watermark.at) else watermark.held_by
    idle = [name for time in watermark.times for name in _idle(time)]
    why = "" if held is None else f"held by {_holder(held)}" + (", no row yet" if held.newest is None else "")
    return "; ".join(part for part in (why, f"idle: {', '.join(idle)}" if idle else "") if part)


def _holder(time: EventTimes) -> str:
    return time.slowest.name if time.slowest is not None else time.source


def _idle(time: EventTimes) -> list[str]:
    return [time.source] if time.idle else [one.name for one in time.partitions if one.idle]


def _partitions(time: EventTimes) -> str:
    """Say which partition holds the others back, and which are left out."""
    if time.idle or time.slowest is None or is_over(time.newest):
        return ""
    left_out = f"; idle: {', '.join(_idle(time))}" if _idle(time) else ""
    return f" ({time.slowest.name} is the slowest of {len(time.partitions)} partitions{left_out})"


def _watermark(watermark: Watermark, *, alone: bool) -> list[str]:
    """Return a line for each event time: how far it has come, and whether it holds the others back."""
    query = "" if alone else f" of query {watermark.query}"
    lines = []
    for time in watermark.times:
        newest = instant(time.newest)
        holds = " (holds it back)" if len(watermark.times) > 1 and time is watermark.held_by else ""
        note = " (idle: left out)" if time.idle else holds
        delay = f"less {span_text(time.delay_us)}"
        lines.append(
            f"  watermark{query}: {time.source}.{time.column} up to {newest}, {delay}{note}{_partitions(time)}"
        )
    return lines


def _counts(counts: dict[str, Counts]) -> list[str]:
    if not counts:
        return []
    told = {node: each.as_dict() for node, each in counts.items()}
    seen = {kind for row in told.values() for kind, count in row.items() if count} | {"rows_in", "used"}
    kinds = [kind for kind in Counts().as_dict() if kind in seen]
    rows = [["node", *kinds], *([node, *(f"{row[kind]:,}" for kind in kinds)] for node, row in told.items())]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [f"  {row[0]:<{widths[0]}}  {'  '.join(map(str.rjust, row[1:], widths[1:]))}" for row in rows]
