from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime

from rich.console import Console

from penstock.cli.progress import LineView, LiveView, watch
from penstock.report import Progress, Report

FIRST = Progress(epoch=0, epochs=1, rows_in=500_000, rows_out=9_321, rows_in_per_s=812_345.4, epoch_ms=640)
SECOND = replace(FIRST, epoch=1, epochs=2, rows_in=700_000, rows_out=9_400, late=2, rejected=1, lag_rows=0)


class Script:
    """A run that goes through given states, one per look, and ends after them or when it is stopped."""

    def __init__(self, *states: Progress, signals: tuple[int, ...] = ()) -> None:
        self.states, self.signals = list(states), list(signals)
        self.now, self.stops = Progress(), 0

    def progress(self) -> Progress:
        return self.now

    def wait(self, timeout: float | None = None) -> bool:
        if self.signals:
            os.kill(os.getpid(), self.signals.pop())
        if self.states:
            # The same object counts on, as a run that hands out its own may do.
            self.now.__dict__.update(self.states.pop(0).__dict__)
            return False
        return True

    def stop(self) -> None:
        self.stops += 1

    def report(self) -> Report:
        return Report(epochs=self.now.epochs)


def piped() -> tuple[Console, io.StringIO]:
    out = io.StringIO()
    return Console(file=out), out


def test_a_pipe_gets_one_line_per_epoch_with_what_the_epoch_did() -> None:
    console, out = piped()
    watch(Script(FIRST, FIRST, SECOND, SECOND), "job", console=console)
    assert out.getvalue().splitlines() == [
        "epoch 0  rows_in 500000  rows/s 812345  out 9321  640 ms  watermark -  lag -  state 0",
        "epoch 1  rows_in 200000  rows/s 812345  out 79  640 ms  watermark -  lag 0  state 0  late 2  rejected 1",
    ]


def test_nothing_is_shown_before_the_first_epoch() -> None:
    out = io.StringIO()
    LineView(out).show(Progress())
    assert out.getvalue() == ""


def test_the_watermark_is_shown_in_utc() -> None:
    out = io.StringIO()
    LineView(out).show(replace(FIRST, watermark=datetime(2026, 1, 1, 0, 1, 35, tzinfo=UTC)))
    assert "watermark 2026-01-01T00:01:35Z" in out.getvalue()


def test_a_terminal_gets_a_table_that_is_drawn_anew() -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=100)
    with LiveView("vwap-60s", console) as view:
        view.show(SECOND)
        view.show(SECOND, stopping=True)
    drawn = out.getvalue()
    for part in (
        "vwap-60s",
        "812,345 rows/s",
        "700,000 rows",
        "640 ms",
        "late 2",
        "rejected 1",
        "Ctrl-C again",
    ):
        assert part in drawn


def test_the_first_signal_stops_the_run_once_and_the_view_goes_on() -> None:
    console, out = piped()
    before = signal.getsignal(signal.SIGTERM)
    run = Script(FIRST, SECOND, SECOND, signals=(signal.SIGTERM, signal.SIGTERM))
    assert watch(run, "job", console=console).epochs == 2
    assert run.stops == 1
    assert len(out.getvalue().splitlines()) == 2
    assert signal.getsignal(signal.SIGTERM) is before


def test_the_second_interrupt_ends_the_process_at_once() -> None:
    program = """
import os, signal
from penstock.cli.signals import stop_requested
from rich.console import Console

import penstock as ps
with stop_requested(Console()) as asked:
    os.kill(os.getpid(), signal.SIGINT)
    print("asked", asked.is_set(), flush=True)
    os.kill(os.getpid(), signal.SIGINT)
    print("never")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (130, "asked True\n"), done.stderr
