"""The summary that is printed after a run: its state, watermarks, the rows of each sink and the counts of each node."""

from __future__ import annotations

from penstock.cli.watermark_text import idle_inputs, instant, is_end_of_input
from penstock.durations import span_text
from penstock.report import Counts, EventTimes, Report, Watermark


def summary(name: str, report: Report) -> str:
    """Return the summary of a run: its state, the rows of each sink, and the row counts of each node."""
    state = "ended, all windows closed" if report.ended else "stopped; run again to continue"
    lines = [f"{name}: {report.epochs} epochs, watermark {instant(report.watermark)}, {state}"]
    lines += [line for one in report.watermarks for line in _watermark_lines(one, alone=len(report.watermarks) == 1)]
    former = dict.fromkeys(report.former_sinks, " (by earlier runs; no sink of this pipeline)")
    lines += [f"  {sink}: {rows:,} rows written{former.get(sink, '')}" for sink, rows in report.rows.items()]
    lines += [_changed(source, files) for source, files in report.changed_inputs.items()]
    return "\n".join(lines + _counts(report.counts))


def _changed(source: str, files: int) -> str:
    what, it = ("1 file", "it") if files == 1 else (f"{files:,} files", "them")
    return f"  {source}: {what} changed after having been found; what is new in {it} was not read"


def _partitions(times: EventTimes) -> str:
    """Return which partition holds the watermark back, and which are idle."""
    if times.idle or times.slowest is None or is_end_of_input(times.newest):
        return ""
    left_out = f"; idle: {', '.join(idle_inputs(times))}" if idle_inputs(times) else ""
    return f" ({times.slowest.name} is the slowest of {len(times.partitions)} partitions{left_out})"


def _watermark_lines(watermark: Watermark, *, alone: bool) -> list[str]:
    """Return a line for each input: its newest event time, and whether it holds the watermark back."""
    query = "" if alone else f" of query {watermark.query}"
    lines = []
    for times in watermark.times:
        newest = instant(times.newest)
        holds = " (holds it back)" if len(watermark.times) > 1 and times is watermark.held_by else ""
        note = " (idle: left out)" if times.idle else holds
        delay = f"less {span_text(times.delay_us)}"
        lines.append(
            f"  watermark{query}: {times.source}.{times.column} up to {newest}, {delay}{note}{_partitions(times)}"
        )
    return lines


def _counts(counts: dict[str, Counts]) -> list[str]:
    if not counts:
        return []
    by_node = {node: each.as_dict() for node, each in counts.items()}
    seen = {kind for row in by_node.values() for kind, count in row.items() if count} | {"rows_in", "used"}
    kinds = [kind for kind in Counts().as_dict() if kind in seen]
    rows = [["node", *kinds], *([node, *(f"{row[kind]:,}" for kind in kinds)] for node, row in by_node.items())]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [f"  {row[0]:<{widths[0]}}  {'  '.join(map(str.rjust, row[1:], widths[1:]))}" for row in rows]
