"""`penstock jars`: jars from Maven Central that some connectors need."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli import command_group
from penstock.spark.session import jars

app = command_group("Download the jars that some connectors need.")
Settings = Annotated[
    Path | None,
    typer.Option("--ivy-settings", exists=True, dir_okay=False, metavar="FILE", help="Ivy settings, to use a mirror."),
]


@app.command("fetch")
def fetch(
    names: Annotated[list[str], typer.Argument(metavar="SET...", help="Sets of jars; see `penstock jars list`.")],
    ivy_settings: Settings = None,
) -> None:
    """Download sets of jars from Maven Central, unless they were downloaded before.

    Example: penstock jars fetch kafka
    """
    for name in names:
        files = jars.fetch(name, ivy_settings)
        size = sum(file.stat().st_size for file in files) / 2**20
        typer.echo(f"{name}: {len(files)} jars, {size:.0f} MB, in {files[0].parent}")


@app.command("list")
def show() -> None:
    """List the sets, their jars, and whether they were downloaded.

    Example: penstock jars list
    """
    for each in jars.jar_sets().values():
        typer.echo(f"{each.name:8}{'fetched' if each.fetched else 'not fetched':13}{each.purpose}")
        for jar in each.jars:
            typer.echo(f"{'':21}{jar}")
