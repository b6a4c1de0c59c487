"""`penstock log check`: read every batch of a log that is not running."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def check(
    data: Annotated[Path, typer.Option("--data", metavar="DIR", help="Folder that holds the log.")] = Path(
        ".penstock/log"
    ),
) -> None:
    """Read every batch of every segment and tell what is damaged; exits with 1 if anything is.

    The log must not be running.
    """
    from penstock.log.storage.check import check_folder

    found = check_folder(data)
    for damage in found.damages:
        typer.echo(str(damage))
    for torn in found.torn:
        typer.echo(f"{torn.path}: a torn tail at byte {torn.position} ({torn.size} bytes), cut off at the next start")
    whole = f"{len(found.damages)} damaged" if found.damages else "all whole"
    counts = f"{found.topics} topics, {found.partitions} partitions, {found.records} records, {found.size} bytes"
    typer.echo(f"{counts}: {whole}")
    if found.damages:
        raise typer.Exit(1)
