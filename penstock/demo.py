"""The main job, end to end: trades in, VWAP out, every row checked against a batch recomputation.

The check is a batch query of DuckDB over the raw input; the picture is a chart of a few symbols.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

import penstock as ps
from penstock.connectors.generators.datagen import DataGen

SCHEMA = "symbol string, price double, size bigint, ts timestamp"
FILES = 8
ROW_GROUP = 125_000


def vwap(folder: Path) -> ps.Pipeline:
    """VWAP per symbol and minute, with late trades in a side output."""
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


# Prices are multiples of 1/256, so sums are exact and the quotient is the same to the last bit.
_COMPARE = """
WITH used AS (
    SELECT symbol, price, size, ts FROM read_parquet('{folder}/trades/*.parquet') WHERE size > 0
    {minus_late}
), expected AS (
    SELECT symbol, time_bucket(INTERVAL 60 SECOND, ts) AS window_start,
           sum(price * size) / sum(size) AS vwap, sum(size) AS volume, count(*) AS trades
    FROM used GROUP BY ALL
), actual AS (
    SELECT symbol, window_start, vwap, volume, trades, count(*) OVER (PARTITION BY symbol, window_start) AS times
    FROM read_parquet('{folder}/vwap/*.parquet')
)
SELECT coalesce(e.symbol, a.symbol) AS symbol, coalesce(e.window_start, a.window_start) AS window_start,
       e.vwap AS expected_vwap, a.vwap AS actual_vwap, e.trades AS expected_trades, a.trades AS actual_trades,
       e.vwap IS NOT DISTINCT FROM a.vwap AND e.volume IS NOT DISTINCT FROM a.volume
           AND e.trades IS NOT DISTINCT FROM a.trades AND a.times = 1 AS same
FROM expected e FULL OUTER JOIN actual a USING (symbol, window_start)
"""


@dataclass(frozen=True)
class Verdict:
    """How many results there are, and those that differ."""

    rows: int
    differ: int
    examples: list[dict[str, Any]]

    @property
    def equal(self) -> bool:
        """Whether every row is the same in both."""
        return self.rows > 0 and self.differ == 0


def check(folder: Path) -> Verdict:
    """Compare the stream's results with a batch over the raw trades, less those that came late."""
    late = any((folder / "late").glob("*.parquet"))
    minus = f"EXCEPT ALL SELECT symbol, price, size, ts FROM read_parquet('{folder}/late/*.parquet')"
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    sql = _COMPARE.format(folder=folder, minus_late=minus if late else "")
    connection.execute(f"CREATE TABLE compared AS {sql}")
    rows, differ = connection.sql(
        "SELECT count(*), count(*) FILTER (WHERE NOT coalesce(same, false)) FROM compared"
    ).fetchall()[0]
    found = connection.sql("SELECT * FROM compared WHERE NOT coalesce(same, false) LIMIT 3").to_arrow_table()
    return Verdict(rows, differ, found.to_pylist())


SYMBOLS = 3
MINUTES = 6
BAR = 30


def draw(folder: Path, console: Console) -> None:
    """Draw the chart in the terminal, and as a PNG where the library for it is installed."""
    series = _series(folder)
    console.print(_chart(series))
    try:
        console.print(f"  picture: {_png(series, folder / 'vwap.png')}", soft_wrap=True)
    except ImportError as error:
        console.print(f"  no picture: {error.name} is not installed; pip install 'penstock\\[charts]'")


def _series(folder: Path) -> dict[str, list[tuple[Any, float, int]]]:
    """Return (window, vwap, volume) of the symbols that trade most."""
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute(f"CREATE VIEW vwap AS SELECT * FROM read_parquet('{folder}/vwap/*.parquet')")
    top = connection.sql(
        f"SELECT symbol FROM vwap GROUP BY symbol ORDER BY sum(volume) DESC, symbol LIMIT {SYMBOLS}"
    ).fetchall()
    return {
        symbol: connection.execute(
            "SELECT window_start, vwap, volume FROM vwap WHERE symbol = ? ORDER BY window_start", [symbol]
        ).fetchall()
        for (symbol,) in top
    }


def _chart(series: dict[str, list[tuple[Any, float, int]]]) -> Table:
    """Return a bar per minute: its length is the volume, its number the VWAP."""
    chart = Table(box=None, padding=(0, 1), title="VWAP and volume by minute", title_justify="left")
    for name, justify in (("symbol", "left"), ("minute", "left"), ("VWAP", "right"), ("volume", "right"), ("", "left")):
        chart.add_column(name, justify=justify)  # type: ignore[arg-type]
    most = max((volume for points in series.values() for _, _, volume in points), default=1)
    for symbol, points in series.items():
        for number, (minute, price, volume) in enumerate(points[-MINUTES:]):
            bar = "█" * max(round(BAR * volume / most), 1)
            name = symbol if number == 0 else ""
            chart.add_row(name, f"{minute:%H:%M}", f"{price:.3f}", f"{volume:,}", f"[cyan]{bar}[/]")
    return chart


def _png(series: dict[str, list[tuple[Any, float, int]]], path: Path) -> Path:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib import dates

    figure, (above, below) = plt.subplots(2, 1, figsize=(9, 6), sharex=True, layout="constrained")
    width = 0.8 / max(len(series), 1)
    for number, (symbol, points) in enumerate(series.items()):
        times = [time for time, _, _ in points]
        above.plot(times, [price for _, price, _ in points], marker="o", markersize=3, label=symbol)
        shift = (number - (len(series) - 1) / 2) * width / 1440
        spots = [dates.date2num(time) + shift for time in times]  # type: ignore[no-untyped-call]
        below.bar(spots, [volume for _, _, volume in points], width=width / 1440, label=symbol)
    above.set_ylabel("VWAP")
    above.set_title("VWAP and volume by minute, computed as a stream on Spark")
    above.legend(loc="center left", bbox_to_anchor=(1, 0.5))
    below.set_ylabel("volume")
    below.set_xticks(sorted({time for points in series.values() for time, _, _ in points}))
    below.xaxis.set_major_formatter(dates.DateFormatter("%H:%M"))  # type: ignore[no-untyped-call]
    figure.savefig(path, dpi=120)
    plt.close(figure)
    return path
