"""`penstock replay`: send rejected rows back into the job that refused them."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.options import Sets, Target
from penstock.cli.tables import Cell, show_table
from penstock.entries import load_entry
from penstock.folders import folder
from penstock.rejected.reading import place_of, read_rejected
from penstock.rejected.replay import Replayed, Why
from penstock.rejected.replay import replay as replay_rows
from penstock.settings import Settings


def replay(
    target: Target,
    sets: Sets = None,
    where: Annotated[
        str | None,
        typer.Option("--from", metavar="TOPIC|FOLDER", help="Where the rejected rows are.", show_default="rejected_to"),
    ] = None,
    node: Annotated[str | None, typer.Option(metavar="NODE", help="Only rows that this node rejected.")] = None,
    reason: Annotated[str | None, typer.Option(metavar="TEXT", help="Only rows whose reason has this text.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be replayed, and replay nothing.")
    ] = False,
    checkpoint: Annotated[
        str | None, typer.Option(metavar="DIR", help="Folder of the job's checkpoint; it notes what was replayed.")
    ] = None,
    profile: Annotated[
        str | None, typer.Option(help="Section [profiles.NAME] of penstock.toml to lay over [settings].")
    ] = None,
) -> None:
    """Send rejected rows back into their source, each once; the job reads them, now or when it runs again."""
    settings = Settings.load(profile)
    pipeline = load_entry(target, sets or [])
    place = place_of(where, pipeline.graph.rejected_to)
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
