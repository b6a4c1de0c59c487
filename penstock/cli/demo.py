"""`penstock demo`: the main job, end to end."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def demo(
    events: Annotated[int, typer.Option(min=1, help="How many trades.")] = 2_000_000,
    symbols: Annotated[int, typer.Option(min=1, help="How many symbols they are of.")] = 10_000,
    data: Annotated[
        Path | None, typer.Option(file_okay=False, help="Folder for input and output; kept if you name one.")
    ] = None,
) -> None:
    """Compute VWAP per symbol and minute as a stream on Spark, and check every row against DuckDB."""
    from penstock.demo import run_demo

    raise typer.Exit(run_demo(events=events, symbols=symbols, data=data))
