"""`penstock demo`: the main job, end to end."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def demo(
    events: Annotated[int, typer.Option(min=1, help="Number of trades to generate.")] = 2_000_000,
    symbols: Annotated[int, typer.Option(min=1, help="Number of different symbols.")] = 10_000,
    data: Annotated[
        Path | None,
        typer.Option(file_okay=False, help="Folder for input and output.", show_default="a temporary folder"),
    ] = None,
) -> None:
    """Compute VWAP per symbol and minute as a stream on Spark, and check every row against DuckDB.

    Example: penstock demo --events 500000 --data demo
    """
    from penstock.cli.progress import watch
    from penstock.demo import run_demo

    code = run_demo(
        events=events,
        symbols=symbols,
        data=data,
        watch=lambda run, console: watch(run, "demo-vwap", console=console),
    )
    raise typer.Exit(code)
