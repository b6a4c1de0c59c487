"""The main job, end to end: trades in, VWAP out, every row checked against a batch recomputation."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from rich.console import Console

import penstock as ps
from penstock.cli.view import watch
from penstock.demo.check import Verdict, check
from penstock.demo.picture import draw
from penstock.demo.trades import write_trades

SCHEMA = "symbol string, price double, size bigint, ts timestamp"


def vwap(folder: Path) -> ps.Pipeline:
    """VWAP per symbol and minute, with late trades put aside."""
    prices = (
        ps.read_files(str(folder / "trades"), schema=SCHEMA, format="parquet")
        .filter("size > 0")
        .event_time("ts", max_delay="5s")
        .key_by("symbol")
        .window(ps.tumbling("60s"), late_to=ps.files(str(folder / "late")))
        .aggregate(vwap="sum(price * size) / sum(size)", volume="sum(size)", trades="count(*)")
    )
    return ps.Pipeline("demo-vwap", prices.to(ps.files(str(folder / "vwap"))))


def run_demo(events: int = 2_000_000, symbols: int = 10_000, data: Path | None = None) -> int:
    """Run the demo and return its exit code: 1 if a single row differs."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-demo-")) if data is None else data.absolute() / _stamp()
    console = Console()
    console.print(
        f"[bold]penstock demo[/]: VWAP of {events:,} trades of {symbols:,} symbols, in {folder}", soft_wrap=True
    )
    seconds = write_trades(folder / "trades", events, symbols)
    console.print(f"  made {events:,} trades in {seconds:.1f} s; starting Spark ...")
    began = time.monotonic()
    run = vwap(folder).start(until="ended", checkpoint=folder / "checkpoint")
    report = watch(run, "demo-vwap", console=console)
    took = time.monotonic() - began
    console.print(f"  {report.epochs} epochs, {took:.1f} s with Spark's start")
    verdict = check(folder)
    _summarise(console, verdict, report, folder)
    draw(folder, console)
    return 0 if verdict.equal else 1


def _stamp() -> str:
    return time.strftime("run-%Y%m%d-%H%M%S")


def _summarise(console: Console, verdict: Verdict, report: ps.Report, folder: Path) -> None:
    counts = report.counts["aggregate"]
    console.print(
        f"  {counts.rows_in:,} trades came in = {counts.used:,} used + {counts.late:,} late;"
        f" {verdict.rows:,} results, recomputed by DuckDB from the raw input",
        soft_wrap=True,
    )
    if verdict.equal:
        console.print(f"[bold green]all {verdict.rows:,} rows are equal[/]")
    else:
        console.print(f"[bold red]{verdict.differ:,} of {verdict.rows:,} rows differ[/], for example:")
        for example in verdict.examples:
            console.print(f"    {example}")
    console.print(f"  results in {folder / 'vwap'}, late trades in {folder / 'late'}", soft_wrap=True)
