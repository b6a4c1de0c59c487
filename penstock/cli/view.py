"""What a run shows while it goes: a live view on a terminal, a line per epoch in a pipe."""

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

from penstock.cli.signals import asked_to_stop
from penstock.cli.summary import held_back, instant
from penstock.report import Progress, Report

SPARKS = "▁▂▃▄▅▆▇█"


class Watched(Protocol):
    """A run as the view sees it."""

    def progress(self) -> Progress:
        """Return the newest epoch and the totals."""

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the end; say whether it came."""

    def stop(self) -> None:
        """Finish the epoch and end."""

    def report(self) -> Report:
        """Return what was done."""


class View(Protocol):
    """Something that shows progress between enter and exit."""

    period: float

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None: ...

    def show(self, progress: Progress, *, stopping: bool = False) -> None:
        """Show the newest progress."""


def watch(run: Watched, name: str, *, console: Console | None = None) -> Report:
    """Show a run until it ends and return its report; SIGINT and SIGTERM let it finish its epoch first."""
    console = console or Console()
    view: View = LiveView(name, console) if console.is_terminal else LineView(console.file)
    stopping = False
    with asked_to_stop(console) as asked, view:
        while not run.wait(view.period):
            if asked.is_set() and not stopping:
                stopping = True
                run.stop()
            view.show(run.progress(), stopping=stopping)
        view.show(run.progress(), stopping=stopping)
    return run.report()


class LineView:
    """One flushed line per finished epoch; what came in is counted since the line before."""

    period = 0.05

    def __init__(self, out: IO[str] | None = None) -> None:
        self._out = out or sys.stdout
        self._shown = Progress()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def show(self, progress: Progress, *, stopping: bool = False) -> None:
        """Write the line of an epoch that was not shown yet."""
        if progress.epoch != self._shown.epoch:
            print(line(progress, self._shown), file=self._out, flush=True)
        # A run may hand out the same object every time and count on in it.
        self._shown = replace(progress)


def line(now: Progress, before: Progress) -> str:
    """Return one epoch as a line that both people and programs can read.

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
    """Return the watermark of each query, and where partitions or sources meet in one, which holds it back."""
    if not now.watermarks:
        return [f"watermark {instant(now.watermark)}"]
    parts = []
    for number, one in enumerate(now.watermarks):
        query = f" of {one.query}" if number else ""
        held = held_back(one)
        parts.append(f"watermark{query} {instant(one.at)}" + (f" ({held})" if held else ""))
    return parts


def _held(now: Progress) -> str:
    return f"backpressure {now.backpressure_ratio:.2f}" if now.backpressure_ratio else ""


class LiveView:
    """A small table that is drawn anew four times a second."""

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
        """Draw the newest progress."""
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
            ("in", f"{now.rows_in_per_s:,.0f} rows/s", f"{now.rows_in:,} rows", sparks(self._rates)),
            ("out", f"{now.rows_out_per_s:,.0f} rows/s", f"{now.rows_out:,} rows", ""),
            ("epoch", "-" if now.epoch < 0 else str(now.epoch), f"{now.epoch_ms:,} ms", _held(now)),
            ("watermark", instant(now.watermark), f"lag {lag}", f"state {now.state_rows:,} rows"),
            *(("", held, "", "") for one in now.watermarks if (held := held_back(one))),
            ("aside", Text(f"late {now.late:,}", bad), Text(f"rejected {now.rejected:,}", bad), ""),
        ]
        for label, *cells in rows:
            table.add_row(f"  [dim]{label}", *cells)
        return table


def sparks(values: list[float]) -> str:
    """Draw values as a line of blocks.

    >>> sparks([0, 1, 2])
    '▁▄█'
    """
    top = max(values, default=0) or 1
    return "".join(SPARKS[int(value / top * (len(SPARKS) - 1))] for value in values)
