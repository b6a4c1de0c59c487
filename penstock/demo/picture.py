"""The demo's picture: volume and VWAP of a few symbols, in the terminal and as a PNG."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
from rich.console import Console
from rich.table import Table

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
    """Return a bar per minute: its length is the volume, its figure the VWAP."""
    chart = Table(box=None, padding=(0, 1), title="VWAP and volume by minute", title_justify="left")
    for name, justify in (("symbol", "left"), ("minute", "left"), ("VWAP", "right"), ("volume", "right"), ("", "left")):
        chart.add_column(name, justify=justify)  # type: ignore[arg-type]
    most = max((volume for points in series.values() for _, _, volume in points), default=1)
    for symbol, points in series.items():
        for number, (time, price, volume) in enumerate(points[-MINUTES:]):
            bar = "█" * max(round(BAR * volume / most), 1)
            name = symbol if number == 0 else ""
            chart.add_row(name, f"{time:%H:%M}", f"{price:.3f}", f"{volume:,}", f"[cyan]{bar}[/]")
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
