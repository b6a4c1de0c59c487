"""What a run did, in a few lines."""

from __future__ import annotations

from datetime import UTC, datetime

from penstock.report import Counts, Report

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
    if utc.year >= LAST_YEAR:
        return "end of time"
    return utc.isoformat().replace("+00:00", "Z")


def summary(name: str, report: Report) -> str:
    """Return what a run did: its state, the rows of each sink, and where each node's rows went."""
    state = "ended, all windows closed" if report.ended else "stopped; run again to go on"
    lines = [f"{name}: {report.epochs} epochs, watermark {instant(report.watermark)}, {state}"]
    lines += [f"  {sink}: {rows:,} rows written" for sink, rows in report.rows.items()]
    return "\n".join(lines + _counts(report.counts))


def _counts(counts: dict[str, Counts]) -> list[str]:
    if not counts:
        return []
    told = {node: each.as_dict() for node, each in counts.items()}
    seen = {kind for row in told.values() for kind, count in row.items() if count} | {"rows_in", "used"}
    kinds = [kind for kind in Counts().as_dict() if kind in seen]
    rows = [["node", *kinds], *([node, *(f"{row[kind]:,}" for kind in kinds)] for node, row in told.items())]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [f"  {row[0]:<{widths[0]}}  {'  '.join(map(str.rjust, row[1:], widths[1:]))}" for row in rows]
