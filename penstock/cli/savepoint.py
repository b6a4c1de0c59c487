"""`penstock savepoint`: named copies of a job's checkpoint."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from penstock.cli.checkpoints import reached
from penstock.cli.summary import iso_instant
from penstock.cli.tables import Json, counted, show_json, show_table, sized
from penstock.folders import Folder, folder
from penstock.settings import Settings
from penstock.spark.checkpoints import savepoints
from penstock.spark.checkpoints.inspect import find_checkpoint
from penstock.spark.checkpoints.layout import read_layout

Named = Annotated[
    str, typer.Argument(metavar="SAVEPOINT", help="Its name in the folder of savepoints, or its path or URL.")
]

app = typer.Typer(
    help="Take, see, restore and delete savepoints of jobs.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)


@app.command()
def create(
    checkpoint: Annotated[str, typer.Argument(metavar="CHECKPOINT", help="Folder or URL, or the pipeline's name.")],
    name: Annotated[str | None, typer.Option(help="Its name; the time unless given.")] = None,
    to: Annotated[
        str | None, typer.Option(metavar="DIR|URL", help="Folder of savepoints, if not the setting's.")
    ] = None,
) -> None:
    """Take a savepoint of a job, which goes on running."""
    settings = Settings.load()
    there = folder(to or settings.savepoints)
    made = savepoints.create_savepoint(find_checkpoint(checkpoint, settings), there, name)
    epochs = ", ".join(f"{query} after epoch {saved.epoch}" for query, saved in made.queries.items())
    typer.echo(f"savepoint {made.name} of {made.pipeline}: {epochs}; {sized(made.bytes)} in {there / made.name}")


@app.command("list")
def list_(
    where: Annotated[str | None, typer.Argument(metavar="[DIR|URL]", help="Folder of savepoints.")] = None,
    json: Json = False,
) -> None:
    """List savepoints, oldest first."""
    found = savepoints.list_savepoints(folder(where or Settings.load().savepoints))
    if json:
        show_json(
            [{"name": name, "whole": one is not None, **(asdict(one) if one else {})} for name, one in found.items()]
        )
        return
    rows = [
        [name, one.pipeline, one.taken, ", ".join(f"{q} {s.epoch}" for q, s in one.queries.items()), sized(one.bytes)]
        if one
        else [name, "(not whole)", None, None, None]
        for name, one in found.items()
    ]
    show_table(["savepoint", "pipeline", "taken", "epochs", "size"], rows)


@app.command()
def show(savepoint: Named, json: Json = False) -> None:
    """Show what a savepoint holds."""
    where = _find(savepoint)
    found, layout = savepoints.read_savepoint(where), read_layout(where / "checkpoint")
    if json:
        show_json({**asdict(found), "explain": layout.explain, "plan": layout.plan})
        return
    typer.echo(f"savepoint {found.name} of {found.pipeline}, taken {found.taken}")
    typer.echo(f"  {where}: {counted(found.files, 'file')}, {sized(found.bytes)}")
    typer.echo(f"  lineage {found.lineage}, fingerprint {found.fingerprint}")
    for query, saved in found.queries.items():
        typer.echo(f"query {query}: after epoch {saved.epoch}, watermark {iso_instant(saved.watermark)}")
        for source, offset in saved.offsets.items():
            typer.echo(f"  read {source} up to {reached(offset)}")
        for sink, (lineage, epoch) in saved.ledger.items():
            typer.echo(f"  sink {sink} has epochs up to {epoch} of lineage {lineage}")
    typer.echo(f"\n{layout.explain}" if layout.explain else "")


@app.command()
def restore(
    savepoint: Named,
    checkpoint: Annotated[str, typer.Option(metavar="DIR|URL", help="Where the new checkpoint shall be.")],
    name: Annotated[str | None, typer.Option(metavar="PIPELINE", help="Name of the pipeline, to fork the job.")] = None,
) -> None:
    """Make a new checkpoint of a savepoint; a job that runs from it goes on where the savepoint was taken."""
    made = savepoints.restore_savepoint(_find(savepoint), folder(checkpoint), name)
    typer.echo(f"checkpoint {checkpoint} of pipeline {made.pipeline}, lineage {made.lineage}")
    typer.echo(f"go on with: penstock run FILE.py --checkpoint {checkpoint}")
    typer.echo(f'  FILE.py must call its pipeline so: ps.Pipeline("{made.pipeline}", ...)')
    typer.echo("  its summary counts the epochs and rows before the savepoint as well")


@app.command()
def delete(savepoint: Named) -> None:
    """Delete a savepoint."""
    where = _find(savepoint)
    savepoints.delete_savepoint(folder(Settings.load().savepoints), where)
    typer.echo(f"deleted {where}")


def _find(savepoint: str) -> Folder:
    return savepoints.find_savepoint(savepoint, folder(Settings.load().savepoints), folder(savepoint))
