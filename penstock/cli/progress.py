"""The progress of a run while it runs: a live view on a terminal, a line per epoch in a pipe.

What is printed after a run is in `run_summary`.
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from types import TracebackType
from typing import IO, Protocol, Self

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from penstock.cli.signals import stop_requested
from penstock.cli.watermark_text import instant, watermark_holder
from penstock.report import Progress, Report

SPARKS = "▁▂▃▄▅▆▇█"


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
    >>> line(Progress(epoch=0, rows_in=500), Progress(epoch=3, rows_in=900)).split("  ")[1]
    'rows_in -'
    """
    parts = [
        f"epoch {now.epoch}",
        f"rows_in {_grown(now.rows_in, before.rows_in)}",
        f"rows/s {now.rows_in_per_s:.0f}",
        f"out {_grown(now.rows_out, before.rows_out)}",
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


def _grown(now: int, before: int) -> str:
    # The first of the epochs that run again after a repair has the totals of an earlier one.
    return str(now - before) if now >= before else "-"


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
