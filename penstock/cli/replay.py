"""`penstock replay`: send rejected rows back to the source of the job."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.options import Target
from penstock.cli.shared_options import Sets
from penstock.cli.tables import Cell, show_table
from penstock.entry_points import load_entry
from penstock.rejected.reading import read_rejected, resolve_location
from penstock.rejected.replay import Replayed, Why
from penstock.rejected.replay import replay as replay_rows
from penstock.settings import Settings
from penstock.storage.folders import folder


def replay(
    target: Target,
    sets: Sets = None,
    where: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="TOPIC|FOLDER", help="Topic or folder of the rejected rows.", show_default="rejected_to"
        ),
    ] = None,
    node: Annotated[str | None, typer.Option(metavar="NODE", help="Only rows rejected by this node.")] = None,
    reason: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Only rows whose reason contains this text.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be replayed.")] = False,
    checkpoint: Annotated[
        str | None, typer.Option(metavar="DIR", help="Checkpoint of the job, which records what was replayed.")
    ] = None,
    profile: Annotated[
        str | None, typer.Option(help="Profile: section [profiles.NAME] of penstock.toml overrides [settings].")
    ] = None,
) -> None:
    """Send rejected rows back to their source, each once; the job reads them when it runs.

    Example: penstock replay job.py --reason "not a number" --dry-run
    """
    settings = Settings.load(profile)
    pipeline = load_entry(target, sets or [])
    place = resolve_location(where, pipeline.graph.rejected_to)
    rows = read_rejected(place, pipeline.name, settings)
    root = folder(checkpoint) if checkpoint else folder(settings.checkpoints) / pipeline.name
    done = replay_rows(pipeline, rows, root, settings, node=node, reason=reason, dry_run=dry_run)
    typer.echo(f"{len(rows):,} rejected rows in {place.name}")
    _show(done, dry_run=dry_run)
    if done.lost:
        raise typer.Exit(1)


def _show(done: Replayed, *, dry_run: bool) -> None:
    verb = "would be replayed" if dry_run else "replayed"
    for source, count in done.rows.items():
        typer.echo(f"  {count:,} {verb} into {done.into[source]}")
    if done.before:
        typer.echo(f"  {done.before:,} were replayed before")
    if done.reasons:
        show_table(["rows", "node", "reason"], _lines(done.reasons))
    if done.lost:
        typer.echo(f"  {sum(done.lost.values()):,} cannot be replayed:")
        show_table(["rows", "node", "why"], _lines(done.lost))


def _lines(counted: dict[Why, int]) -> list[list[Cell]]:
    return [[count, node, why] for (node, why), count in sorted(counted.items(), key=lambda one: -one[1])]
