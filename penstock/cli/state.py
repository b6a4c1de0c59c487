"""`penstock state`: the state of a job as a table."""

from __future__ import annotations

import json as text
from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any

import typer

from penstock.cli.tables import Cell, Json, show_table
from penstock.settings import Settings
from penstock.spark.checkpoints.inspect import find_checkpoint
from penstock.spark.checkpoints.state.tables import StateTable


def state(
    checkpoint: Annotated[
        str, typer.Argument(metavar="CHECKPOINT", help="Checkpoint: folder, URL, or the name of the pipeline.")
    ],
    node: Annotated[str | None, typer.Option(help="The node, if several have state.")] = None,
    key: Annotated[str | None, typer.Option(help="Only rows of this key; with several columns: A,B.")] = None,
    at: Annotated[
        int | None, typer.Option(metavar="EPOCH", min=0, help="State after this epoch; default: the last one.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of rows.")] = 100,
    json: Json = False,
) -> None:
    """Show keyed and window state as a table, of a running or stopped job.

    Example: penstock state vwap --key AAPL
    """
    settings = Settings.load()
    root = find_checkpoint(checkpoint, settings)
    from penstock.spark.checkpoints.state.reader import read_state

    report = lambda reason: typer.echo(reason, err=True)  # noqa: E731
    found = read_state(root, settings, node=node, key=key, at=at, limit=limit, report=report)
    show_state(found, limit, "(no rows: windows that are closed, and keys that never came, have no state)", json=json)


def show_state(found: StateTable, limit: int, empty: str, *, json: bool) -> None:
    """Print a table of state; `empty` is what is printed if it has no rows."""
    if json:
        typer.echo(text.dumps(asdict(found), indent=2, ensure_ascii=False, default=_plain))
        return
    typer.echo(f"{found.node}, after epoch {found.epoch}{_read_up_to(found.offsets)}")
    show_table(found.columns, [[_cell(row[name]) for name in found.columns] for row in found.rows])
    if not found.rows:
        typer.echo(empty)
    if found.more:
        typer.echo(f"(the first {limit:,}; --limit shows more, --key one key)")


def _read_up_to(offsets: dict[str, dict[str, Any]]) -> str:
    """Return the offsets of each source by partition."""
    shown = [f"{name} {part}={place}" for name, parts in offsets.items() for part, place in parts.items()]
    return f", offsets: {', '.join(shown)}" if shown else ""


def _cell(value: Any) -> Cell:
    if value is None or isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    if isinstance(value, datetime | bytes | bytearray):
        return _plain(value)
    return text.dumps(value, ensure_ascii=False, default=_plain)


def _plain(value: Any) -> str:
    if isinstance(value, bytes | bytearray):
        # Also internal formats of Spark: the rows of collect_list, the sketch of a percentile.
        return f"({len(value)} bytes)"
    return value.isoformat() if isinstance(value, datetime) else str(value)
