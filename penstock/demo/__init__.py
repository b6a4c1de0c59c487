"""The main job, end to end: trades in, VWAP out, every row checked against a batch recomputation."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console

import penstock as ps
from penstock.connectors.generators.datagen import DataGen
from penstock.demo.check import Verdict, check
from penstock.demo.picture import draw

SCHEMA = "symbol string, price double, size bigint, ts timestamp"
FILES = 8
ROW_GROUP = 125_000


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


def run_demo(
    events: int = 2_000_000,
    symbols: int = 10_000,
    data: Path | None = None,
    *,
    watch: Callable[[Any, Console], ps.Report],
) -> int:
    """Run the demo and return its exit code: 1 if a single row differs. `watch` shows the run until it ends."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-demo-")) if data is None else data.absolute() / _stamp()
    console = Console()
    console.print(
        f"[bold]penstock demo[/]: VWAP of {events:,} trades of {symbols:,} symbols, in {folder}", soft_wrap=True
    )
    seconds = write_trades(folder / "trades", events, symbols)
    console.print(f"  made {events:,} trades in {seconds:.1f} s; starting Spark ...")
    began = time.monotonic()
    run = vwap(folder).start(until="ended", checkpoint=folder / "checkpoint")
    report = watch(run, console)
    took = time.monotonic() - began
    console.print(f"  {report.epochs} epochs, {took:.1f} s with Spark's start")
    verdict = check(folder)
    _summarise(console, verdict, report, folder)
    draw(folder, console)
    return 0 if verdict.equal else 1


def write_trades(folder: Path, events: int, symbols: int, seed: int = 7) -> float:
    """Write the trades and return the seconds it took; the files' order is that of their names."""
    began = time.monotonic()
    folder.mkdir(parents=True, exist_ok=True)
    source = DataGen("trades", rows=events, keys=symbols, seed=seed)
    bounds = [events * part // FILES for part in range(FILES + 1)]
    for part, (start, end) in enumerate(pairwise(bounds)):
        if start == end:
            continue
        batches = [item for item in source.read("0", start, end) if isinstance(item, pa.RecordBatch)]
        path = folder / f"trades-{part:03}.parquet"
        pq.write_table(pa.Table.from_batches(batches), path, row_group_size=ROW_GROUP, compression="zstd")
    return time.monotonic() - began


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
