"""`penstock checkpoints`: the content of a checkpoint, and its integrity."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from penstock.cli.tables import Json, show_json, show_table, size_text
from penstock.cli.watermark_text import iso_instant
from penstock.errors import CheckpointDamaged
from penstock.settings import Settings
from penstock.spark.checkpoints.inspect import (
    CheckpointContents,
    QueryContents,
    find_checkpoint,
    inspect,
    offsets_by_partition,
)
from penstock.spark.checkpoints.integrity import remedy
from penstock.spark.lowering.job_storage import START_OVER


def checkpoints(
    checkpoint: Annotated[
        str, typer.Argument(metavar="CHECKPOINT", help="Checkpoint: folder, URL, or the name of the pipeline.")
    ],
    json: Json = False,
) -> None:
    """Show the content of a checkpoint, and check the files that a run reads; exit code 2 if one is damaged or missing.

    Example: penstock checkpoints vwap
    """
    found = inspect(find_checkpoint(checkpoint, Settings.load()))
    if json:
        show_json(asdict(found))
    else:
        _show(found)
    if found.all_damaged:
        raise typer.Exit(CheckpointDamaged.exit_code)


def _show(found: CheckpointContents) -> None:
    typer.echo(f"checkpoint {found.checkpoint} of {found.pipeline}: {size_text(found.bytes)}")
    typer.echo(
        f"  lineage {found.lineage}, pace {found.pace}, fingerprint of the plan that its state fits {found.fingerprint}"
    )
    if len(found.generations) > 1:
        typer.echo(f"  generation {found.generation} of {', '.join(found.generations)}")
    for query, kept in found.queries.items():
        _show_query(query, kept)
    for file, reason in found.damaged.items():
        typer.echo(f"damaged: {file} {reason}\n  {remedy(file)}")
    if any(kept.damaged for kept in found.queries.values()):
        typer.echo(f"the next run repairs what it can of Spark's files, and reports it; else {START_OVER}")


def _show_query(query: str, kept: QueryContents) -> None:
    typer.echo(f"query {query}: {size_text(kept.bytes)}, watermark {iso_instant(kept.watermark)}")
    typer.echo(f"  epochs planned {ranges_text(kept.logged)}, done {ranges_text(kept.committed)}")
    owed = [epoch for epoch in kept.logged if epoch > max(kept.committed, default=-1)]
    if owed:
        typer.echo(
            f"  epoch {ranges_text(owed)} was started and not finished: the next run finishes it, with the same rows"
        )
    for source, offset in kept.offsets.items():
        typer.echo(f"  read {source} up to {offset_text(offset)}")
    if kept.state:
        head = ["  operator", "node", "stores", "rows", "size", "complete after epochs"]
        rows = [
            [f"  {h.operator}", h.node, h.stores, h.rows, size_text(h.bytes), ranges_text(h.whole)] for h in kept.state
        ]
        show_table(head, rows)
    for file, reason in kept.damaged.items():
        typer.echo(f"  damaged: queries/{query}/{file} {reason}")


def offset_text(offset: Any) -> str:
    """Format the offset of a source, without internal fields (declared times, topic ids).

    >>> offset_text({"0": 17, "1": 4, "@ticks": 1, "id": "vQpPHnXcTIWq0Tqgiz8u6A"}), offset_text({})
    ('0: 17, 1: 4', 'nothing')
    """
    if not isinstance(offset, dict):
        return str(offset)
    return ", ".join(f"{part}: {end}" for part, end in offsets_by_partition(offset).items()) or "nothing"


def ranges_text(numbers: list[int]) -> str:
    """Format numbers as ranges.

    >>> ranges_text([0, 1, 2, 5]), ranges_text([])
    ('0-2, 5', '-')
    """
    ends = [number for number in numbers if number + 1 not in numbers]
    starts = [number for number in numbers if number - 1 not in numbers]
    pairs = zip(starts, ends, strict=True)
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in pairs) or "-"
