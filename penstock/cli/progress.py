"""The progress of a run: a live view on a terminal, a line per epoch in a pipe, and the summary at its end."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from datetime import UTC, datetime
from types import TracebackType
from typing import IO, Protocol, Self

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from penstock.cli.signals import stop_requested
from penstock.durations import span_text
from penstock.report import Counts, EventTimes, Progress, Report, Watermark

SPARKS = "▁▂▃▄▅▆▇█"
# The end of input is a watermark so large that every window closes.
LAST_YEAR = 9998


class RunView(Protocol):
    """The part of a run that the view uses."""

    def progress(self) -> Progress:
        """Return the last epoch and the totals."""

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the end of the run; return whether it has ended."""

    def stop(self) -> None:
        """Finish the epoch and stop."""

    def report(self) -> Report:
        """Return the report of the run."""


class View(Protocol):
    """A display of progress, as a context manager."""

    period: float

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None: ...

    def show(self, progress: Progress, *, stopping: bool = False) -> None:
        """Show the current progress."""


def watch(run: RunView, name: str, *, console: Console | None = None) -> Report:
    """Show a run until it ends and return its report; on SIGINT and SIGTERM it finishes its epoch and stops."""
    console = console or Console()
    view: View = LiveView(name, console) if console.is_terminal else LineView(console.file)
    stopping = False
    with stop_requested(console) as asked, view:
        while not run.wait(view.period):
            if asked.is_set() and not stopping:
                stopping = True
                run.stop()
            view.show(run.progress(), stopping=stopping)
        view.show(run.progress(), stopping=stopping)
    return run.report()


class LineView:
    """One flushed line per finished epoch; rows are counted since the previous line."""

    period = 0.05

    def __init__(self, out: IO[str] | None = None) -> None:
        self._out = out or sys.stdout
        self._shown = Progress()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def show(self, progress: Progress, *, stopping: bool = False) -> None:
        """Print a line if there is a new epoch."""
        if progress.epoch != self._shown.epoch:
            print(line(progress, self._shown), file=self._out, flush=True)
        # A run may return the same object every time, with new counts.
        self._shown = replace(progress)


def line(now: Progress, before: Progress) -> str:
    """Format an epoch as a line that people and programs can read.

    >>> line(Progress(epoch=3, rows_in=500, rows_out=20, epoch_ms=640, rows_in_per_s=781.2), Progress())
    'epoch 3  rows_in 500  rows/s 781  out 20  640 ms  watermark -  lag -  state 0'
    >>> line(Progress(epoch=3, backpressure_ratio=0.25), Progress()).split("  ")[-1]
    'backpressure 0.25'
    """
    parts = [
        f"epoch {now.epoch}",
        f"rows_in {now.rows_in - before.rows_in}",
        f"rows/s {now.rows_in_per_s:.0f}",
        f"out {now.rows_out - before.rows_out}",
        f"{now.epoch_ms} ms",
        *_watermarks(now),
        f"lag {'-' if now.lag_rows is None else now.lag_rows}",
        f"state {now.state_rows}",
    ]
    parts += [held] if (held := _held(now)) else []
    parts += [
        f"{name} {getattr(now, name) - getattr(before, name)}"
        for name in ("late", "rejected")
        if getattr(now, name) > getattr(before, name)
    ]
    return "  ".join(parts)


def _watermarks(now: Progress) -> list[str]:
    """Return the watermark of each query, and the input that holds it back if there are several."""
    if not now.watermarks:
        return [f"watermark {instant(now.watermark)}"]
    parts = []
    for number, one in enumerate(now.watermarks):
        query = f" of {one.query}" if number else ""
        held = watermark_holder(one)
        parts.append(f"watermark{query} {instant(one.at)}" + (f" ({held})" if held else ""))
    return parts


def _held(now: Progress) -> str:
    return f"backpressure {now.backpressure_ratio:.2f}" if now.backpressure_ratio else ""


class LiveView:
    """A small table that is redrawn four times a second."""

    period = 0.25

    def __init__(self, name: str, console: Console) -> None:
        self._name = name
        self._live = Live(console=console, refresh_per_second=4)
        self._began = time.monotonic()
        self._rates: list[float] = []
        self._epoch = -1

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._live.__exit__(kind, error, tb)

    def show(self, progress: Progress, *, stopping: bool = False) -> None:
        """Redraw the table."""
        if progress.epoch != self._epoch:
            self._epoch = progress.epoch
            self._rates = [*self._rates, progress.rows_in_per_s][-40:]
        self._live.update(Group(self._title(stopping), self._table(progress)))

    def _title(self, stopping: bool) -> Text:
        seconds = int(time.monotonic() - self._began)
        state = "finishing the epoch; Ctrl-C again ends at once" if stopping else "Ctrl-C stops"
        clock = f"  {seconds // 60:02}:{seconds % 60:02}  "
        return Text.assemble((self._name, "bold"), clock, (state, "dim"))

    def _table(self, now: Progress) -> Table:
        table = Table.grid(padding=(0, 2))
        bad = "yellow" if now.late or now.rejected else ""
        lag = "-" if now.lag_rows is None else f"{now.lag_rows:,}"
        rows: list[tuple[str | Text, ...]] = [
            ("in", f"{now.rows_in_per_s:,.0f} rows/s", f"{now.rows_in:,} rows", sparkline(self._rates)),
            ("out", f"{now.rows_out_per_s:,.0f} rows/s", f"{now.rows_out:,} rows", ""),
            ("epoch", "-" if now.epoch < 0 else str(now.epoch), f"{now.epoch_ms:,} ms", _held(now)),
            ("watermark", instant(now.watermark), f"lag {lag}", f"state {now.state_rows:,} rows"),
            *(("", held, "", "") for one in now.watermarks if (held := watermark_holder(one))),
            ("aside", Text(f"late {now.late:,}", bad), Text(f"rejected {now.rejected:,}", bad), ""),
        ]
        for label, *cells in rows:
            table.add_row(f"  [dim]{label}", *cells)
        return table


def sparkline(values: list[float]) -> str:
    """Draw values as a sparkline.

    >>> sparkline([0, 1, 2])
    '▁▄█'
    """
    top = max(values, default=0) or 1
    return "".join(SPARKS[int(value / top * (len(SPARKS) - 1))] for value in values)


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
    idle = [name for time in watermark.times for name in _idle(time)]
    why = "" if held is None else f"held by {_holder(held)}" + (", no row yet" if held.newest is None else "")
    return "; ".join(part for part in (why, f"idle: {', '.join(idle)}" if idle else "") if part)


def _holder(times: EventTimes) -> str:
    return times.slowest.name if times.slowest is not None else times.source


def _idle(times: EventTimes) -> list[str]:
    return [times.source] if times.idle else [one.name for one in times.partitions if one.idle]


def _partitions(times: EventTimes) -> str:
    """Return which partition holds the watermark back, and which are idle."""
    if times.idle or times.slowest is None or is_end_of_input(times.newest):
        return ""
    left_out = f"; idle: {', '.join(_idle(times))}" if _idle(times) else ""
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
