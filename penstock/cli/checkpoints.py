"""`penstock checkpoints`: the content of a checkpoint, and its integrity."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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

# More damaged files of one operator or log than these are shown in one line.
_LISTED = 3


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
        _show_query(query, kept, found_damage=bool(found.all_damaged))
    for file, reason in found.damaged.items():
        typer.echo(f"damaged: {file} {reason}\n  {found.next_run[file]}")


def _show_query(query: str, kept: QueryContents, *, found_damage: bool) -> None:
    typer.echo(f"query {query}: {size_text(kept.bytes)}, watermark {iso_instant(kept.watermark)}")
    typer.echo(f"  epochs planned {ranges_text(kept.logged)}, done {ranges_text(kept.committed)}")
    owed = [epoch for epoch in kept.logged if epoch > max(kept.committed, default=-1)]
    if owed:
        left = f"epoch {owed[0]} was" if len(owed) == 1 else f"epochs {ranges_text(owed)} were"
        # What the next run does about damage is said with the damage.
        then = "" if found_damage else ": the next run finishes it, with the same rows"
        typer.echo(f"  {left} started and not finished{then}")
    for source, offset in kept.offsets.items():
        typer.echo(f"  read {source} up to {offset_text(offset)}")
    if kept.state:
        head = ["  operator", "node", "stores", "rows", "size", "complete after epochs"]
        rows = [
            [f"  {h.operator}", h.node, h.stores, h.rows, size_text(h.bytes), ranges_text(h.whole)] for h in kept.state
        ]
        show_table(head, rows)
    for line in damage_lines(query, kept.damaged):
        typer.echo(f"  damaged: {line}")
    if kept.next_run:
        typer.echo(f"  {kept.next_run}")


def damage_lines(query: str, damaged: Mapping[str, str]) -> Iterator[str]:
    """Yield a line for each damaged file; one for many of an operator or a log with the same reason.

    >>> list(damage_lines("final", {"offsets/2": "is empty"}))
    ['queries/final/offsets/2 is empty']
    >>> list(damage_lines("final", {f"state/0/1/{number}.delta": "is missing" for number in range(1, 6)}))
    ['5 files in queries/final/state/0, each of which is missing: 1/1.delta, 1/2.delta and 3 more (--json lists them)']
    """
    alike: dict[tuple[str, str], list[str]] = {}
    for file, reason in damaged.items():
        where, name = _operator_or_log(file)
        alike.setdefault((where, reason), []).append(name)
    for (where, reason), names in alike.items():
        place = f"queries/{query}/{where}".rstrip("/")
        if len(names) <= _LISTED:
            yield from (f"{place}/{name} {reason}" for name in names)
        else:
            more = f"{', '.join(names[:2])} and {len(names) - 2} more (--json lists them)"
            yield f"{len(names)} files in {place}, each of which {reason}: {more}"


def _operator_or_log(file: str) -> tuple[str, str]:
    """Split a path behind the folder of an operator's state, or of a log.

    >>> _operator_or_log("state/0/1/3.delta"), _operator_or_log("commits/4"), _operator_or_log("metadata")
    (('state/0', '1/3.delta'), ('commits', '4'), ('', 'metadata'))
    """
    parts = file.split("/")
    depth = min(2 if parts[0] == "state" else 1, len(parts) - 1)
    return "/".join(parts[:depth]), "/".join(parts[depth:])


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
