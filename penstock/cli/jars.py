"""`penstock jars`: jars of Maven Central that Spark's wheel lacks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.spark import jars

app = typer.Typer(
    help="Fetch jars that Spark needs for some connectors.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)
Settings = Annotated[
    Path | None,
    typer.Option("--ivy-settings", exists=True, dir_okay=False, metavar="FILE", help="Ivy settings, for a mirror."),
]


@app.command("fetch")
def fetch(
    names: Annotated[list[str], typer.Argument(metavar="SET...", help="Which sets; `penstock jars list` has them.")],
    ivy_settings: Settings = None,
) -> None:
    """Fetch sets of jars from Maven Central, unless they are there."""
    for name in names:
        files = jars.fetch(name, ivy_settings)
        size = sum(file.stat().st_size for file in files) / 2**20
        typer.echo(f"{name}: {len(files)} jars, {size:.0f} MB, in {files[0].parent}")


@app.command("list")
def show() -> None:
    """List the sets, their jars, and whether they were fetched."""
    for each in jars.jar_sets().values():
        typer.echo(f"{each.name:8}{'fetched' if each.fetched else 'not fetched':13}{each.purpose}")
        for jar in each.jars:
            typer.echo(f"{'':21}{jar}")
