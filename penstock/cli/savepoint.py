"""`penstock savepoint`: named copies of a job's checkpoint."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from penstock.cli import command_group
from penstock.cli.checkpoints import offset_text
from penstock.cli.tables import Json, count_text, show_json, show_table, size_text
from penstock.cli.watermark_text import iso_instant
from penstock.errors import BadValue
from penstock.settings import Settings
from penstock.spark.checkpoints import savepoints
from penstock.spark.checkpoints.inspect import find_checkpoint
from penstock.spark.checkpoints.layout import read_layout
from penstock.storage.folders import Folder, folder

Named = Annotated[str, typer.Argument(metavar="SAVEPOINT", help="Savepoint: its name, path or URL.")]

app = command_group("Create, list, restore and delete savepoints of jobs.")


@app.command()
def create(
    checkpoint: Annotated[
        str, typer.Argument(metavar="CHECKPOINT", help="Checkpoint: folder, URL, or the name of the pipeline.")
    ],
    name: Annotated[str | None, typer.Option(help="Name of the savepoint; default: the current time.")] = None,
    to: Annotated[
        str | None, typer.Option(metavar="DIR|URL", help="Folder of savepoints; default: the setting `savepoints`.")
    ] = None,
    server: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Create it through this job manager; CHECKPOINT is then the name of a job."),
    ] = None,
) -> None:
    """Create a savepoint of a job, which may be running.

    Example: penstock savepoint create vwap --name before-upgrade
    """
    if server:
        if to:
            message = "--to is not for --server: the job manager has its own folder of savepoints"
            raise BadValue(message, hint="leave --to out, or --server")
        _create_through(server, checkpoint, name)
        return
    settings = Settings.load()
    there = folder(to or settings.savepoints)
    made = savepoints.create_savepoint(find_checkpoint(checkpoint, settings), there, name)
    epochs = ", ".join(f"{query} after epoch {saved.epoch}" for query, saved in made.queries.items())
    typer.echo(f"savepoint {made.name} of {made.pipeline}: {epochs}; {size_text(made.bytes)} in {there / made.name}")


def _create_through(server: str, job: str, name: str | None) -> None:
    from penstock.cli.control.commands import carry_out
    from penstock.control.client import Client

    with Client(server) as client:
        carry_out(client, client.savepoint(job, name), wait=True, json=False)


@app.command("list")
def list_(
    where: Annotated[
        str | None, typer.Argument(metavar="[DIR|URL]", help="Folder of savepoints; default: the setting `savepoints`.")
    ] = None,
    json: Json = False,
) -> None:
    """List savepoints, oldest first.

    Example: penstock savepoint list
    """
    found = savepoints.list_savepoints(folder(where or Settings.load().savepoints))
    if json:
        show_json(
            [{"name": name, "whole": one is not None, **(asdict(one) if one else {})} for name, one in found.items()]
        )
        return
    rows = [
        [
            name,
            one.pipeline,
            one.taken,
            ", ".join(f"{q} {s.epoch}" for q, s in one.queries.items()),
            size_text(one.bytes),
        ]
        if one
        else [name, "(incomplete)", None, None, None]
        for name, one in found.items()
    ]
    show_table(["savepoint", "pipeline", "taken", "epochs", "size"], rows)


@app.command()
def show(savepoint: Named, json: Json = False) -> None:
    """Show the content of a savepoint: offsets, epochs and plan.

    Example: penstock savepoint show before-upgrade
    """
    where = _find(savepoint)
    found, layout = savepoints.read_savepoint(where), read_layout(where / "checkpoint")
    if json:
        show_json({**asdict(found), "explain": layout.explain, "plan": layout.plan})
        return
    typer.echo(f"savepoint {found.name} of {found.pipeline}, taken {found.taken}")
    typer.echo(f"  {where}: {count_text(found.files, 'file')}, {size_text(found.bytes)}")
    typer.echo(f"  lineage {found.lineage}, fingerprint {found.fingerprint}")
    for query, saved in found.queries.items():
        typer.echo(f"query {query}: after epoch {saved.epoch}, watermark {iso_instant(saved.watermark)}")
        for source, offset in saved.offsets.items():
            typer.echo(f"  read {source} up to {offset_text(offset)}")
        for sink, (lineage, epoch) in saved.ledger.items():
            typer.echo(f"  sink {sink} has epochs up to {epoch} of lineage {lineage}")
    typer.echo(f"\n{layout.explain}" if layout.explain else "")


@app.command()
def restore(
    savepoint: Named,
    checkpoint: Annotated[str, typer.Option(metavar="DIR|URL", help="Folder or URL of the new checkpoint.")],
    name: Annotated[
        str | None, typer.Option(metavar="PIPELINE", help="New name of the pipeline, to fork the job.")
    ] = None,
) -> None:
    """Create a checkpoint from a savepoint; a job that runs with it continues from the savepoint.

    Example: penstock savepoint restore before-upgrade --checkpoint .penstock/checkpoints/vwap-2
    """
    made = savepoints.restore_savepoint(_find(savepoint), folder(checkpoint), name)
    typer.echo(f"checkpoint {checkpoint} of pipeline {made.pipeline}, lineage {made.lineage}")
    typer.echo(f"continue with: penstock run FILE.py --checkpoint {checkpoint}")
    typer.echo(f'  FILE.py must call its pipeline so: ps.Pipeline("{made.pipeline}", ...)')
    typer.echo("  its summary counts the epochs and rows before the savepoint as well")


@app.command()
def delete(savepoint: Named) -> None:
    """Delete a savepoint.

    Example: penstock savepoint delete before-upgrade
    """
    where = _find(savepoint)
    savepoints.delete_savepoint(folder(Settings.load().savepoints), where)
    typer.echo(f"deleted {where}")


def _find(savepoint: str) -> Folder:
    return savepoints.find_savepoint(savepoint, folder(Settings.load().savepoints), folder(savepoint))
