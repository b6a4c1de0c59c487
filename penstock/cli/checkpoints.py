"""`penstock checkpoints`: what a checkpoint holds, and what of it is damaged."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from penstock.cli.summary import iso_instant
from penstock.cli.tables import Json, show_json, show_table, sized
from penstock.errors import CheckpointDamaged
from penstock.settings import Settings
from penstock.spark.checkpoints.checkpoint import ANEW
from penstock.spark.checkpoints.inspect import Inspected, Kept, find_checkpoint, inspect
from penstock.spark.checkpoints.integrity import way_out
from penstock.spark.checkpoints.shown_offsets import by_partition


def checkpoints(
    checkpoint: Annotated[str, typer.Argument(metavar="CHECKPOINT", help="Folder or URL, or the pipeline's name.")],
    json: Json = False,
) -> None:
    """Show what a checkpoint holds; every file is read and checked. Exits with 2 if one is damaged or gone."""
    found = inspect(find_checkpoint(checkpoint, Settings.load()))
    if json:
        show_json(asdict(found))
    else:
        _show(found)
    if found.all_damaged:
        raise typer.Exit(CheckpointDamaged.exit_code)


def _show(found: Inspected) -> None:
    typer.echo(f"checkpoint {found.checkpoint} of {found.pipeline}: {sized(found.bytes)}")
    typer.echo(
        f"  lineage {found.lineage}, pace {found.pace}, fingerprint of the plan that its state fits {found.fingerprint}"
    )
    if len(found.generations) > 1:
        typer.echo(f"  generation {found.generation} of {', '.join(found.generations)}")
    for query, kept in found.queries.items():
        _show_query(query, kept)
    for file, reason in found.damaged.items():
        typer.echo(f"damaged: {file} {reason}\n  {way_out(file)}")
    if any(kept.damaged for kept in found.queries.values()):
        typer.echo(f"the next run repairs what it can of Spark's files, and says what it did; else {ANEW}")


def _show_query(query: str, kept: Kept) -> None:
    typer.echo(f"query {query}: {sized(kept.bytes)}, watermark {iso_instant(kept.watermark)}")
    typer.echo(f"  epochs planned {spans(kept.logged)}, done {spans(kept.committed)}")
    owed = [epoch for epoch in kept.logged if epoch > max(kept.committed, default=-1)]
    if owed:
        typer.echo(f"  epoch {spans(owed)} was begun and is not done: the next run does it, with the same rows")
    for source, offset in kept.offsets.items():
        typer.echo(f"  read {source} up to {reached(offset)}")
    if kept.state:
        head = ["  operator", "node", "stores", "rows", "size", "whole after epochs"]
        rows = [[f"  {h.operator}", h.node, h.stores, h.rows, sized(h.bytes), spans(h.whole)] for h in kept.state]
        show_table(head, rows)
    for file, reason in kept.damaged.items():
        typer.echo(f"  damaged: queries/{query}/{file} {reason}")


def reached(offset: Any) -> str:
    """Write how far a source was read, without what is Penstock's own (times that the driver declared, a topic's id).

    >>> reached({"0": 17, "1": 4, "@ticks": 1, "id": "vQpPHnXcTIWq0Tqgiz8u6A"}), reached({})
    ('0: 17, 1: 4', 'nothing')
    """
    if not isinstance(offset, dict):
        return str(offset)
    return ", ".join(f"{part}: {end}" for part, end in by_partition(offset).items()) or "nothing"


def spans(numbers: list[int]) -> str:
    """Write numbers as spans.

    >>> spans([0, 1, 2, 5]), spans([])
    ('0-2, 5', '-')
    """
    ends = [number for number in numbers if number + 1 not in numbers]
    starts = [number for number in numbers if number - 1 not in numbers]
    pairs = zip(starts, ends, strict=True)
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in pairs) or "-"
