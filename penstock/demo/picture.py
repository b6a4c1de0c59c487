"""The demo's picture: volume and VWAP of a few symbols, in the terminal and as a PNG."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
from rich.console import Console
from rich.text import Text

SYMBOLS = 3


def draw(folder: Path, console: Console) -> None:
    """Draw what can be drawn; the libraries for it are optional."""
    series = _series(folder)
    try:
        _terminal(series, console)
        path = _png(series, folder / "vwap.png")
    except ImportError as error:
        console.print(f"  no picture: {error.name} is not installed; pip install 'penstock\\[charts]'")
        return
    console.print(f"  picture: {path}")


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


def _terminal(series: dict[str, list[tuple[Any, float, int]]], console: Console) -> None:
    import plotext as plt

    plt.clear_figure()
    plt.plot_size(min(console.width, 90), 16)
    plt.theme("clear")
    for symbol, points in series.items():
        minutes = [time.timestamp() / 60 for time, _, _ in points]
        first = min(minutes)
        plt.plot([minute - first for minute in minutes], [price for _, price, _ in points], label=symbol)
    plt.title("VWAP by minute")
    console.print(Text.from_ansi(plt.build()))
    for symbol, points in series.items():
        volume = sum(volume for _, _, volume in points)
        console.print(f"  {symbol}  volume {volume:>12,}  last VWAP {points[-1][1]:>9.3f}")


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
    above.legend(loc="upper right")
    below.set_ylabel("volume")
    below.xaxis.set_major_formatter(dates.DateFormatter("%H:%M"))  # type: ignore[no-untyped-call]
    figure.savefig(path, dpi=120)
    plt.close(figure)
    return path
