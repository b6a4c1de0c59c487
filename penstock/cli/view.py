"""`penstock view`: the contents of a view, now or after an epoch, and as they change."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Annotated

import typer

from penstock.cli.state import show_state
from penstock.cli.tables import Json
from penstock.errors import BadValue, CheckpointMissing
from penstock.settings import Settings
from penstock.spark.checkpoints.inspect import find_checkpoint
from penstock.spark.checkpoints.state.tables import StateTable, find_view

_EVERY_SECONDS = 0.5


def view(
    job: Annotated[str, typer.Argument(metavar="JOB", help="Checkpoint: folder, URL, or the name of the pipeline.")],
    name: Annotated[str | None, typer.Option("--name", help="The view, if the job has several.")] = None,
    key: Annotated[str | None, typer.Option(help="Only the row of this key; with several columns: A,B.")] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Show the view again after each epoch that changes it.")
    ] = False,
    as_of: Annotated[
        int | None,
        typer.Option("--as-of", metavar="EPOCH", min=0, help="The view after this epoch; default: the last."),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of rows.")] = 100,
    json: Json = False,
) -> None:
    """Show the contents of a view, of a running or stopped job.

    Example: penstock view auctions --key 17 --watch
    """
    if watch and as_of is not None:
        message = "--watch follows the last epoch, and --as-of is one of the past"
        raise BadValue(message, hint="leave out one of them")
    settings = Settings.load()
    root = find_checkpoint(job, settings)
    node = find_view(root, name)
    from penstock.spark.checkpoints.state.reader import read_state

    def read() -> StateTable:
        return read_state(root, settings, node=node, key=key, at=as_of, limit=limit, report=_report)

    def show(found: StateTable) -> None:
        empty = "(no rows)" if key is None else f"(no row with {', '.join(found.keys)} = {key})"
        show_state(found, limit, empty, json=json)

    if watch:
        follow(read, show)
    else:
        show(read())


def follow(
    read: Callable[[], StateTable],
    show: Callable[[StateTable], None],
    *,
    sleep: Callable[[float], None] = time.sleep,
    times: int | None = None,
) -> None:
    """Show a view whenever its rows have changed, until the user stops it, or `times` reads are done."""
    last: StateTable | None = None
    done = 0
    while times is None or done < times:
        done += 1
        try:
            found = read()
        except CheckpointMissing as error:
            # Before the first epoch, and where an epoch is cleaned up while it is read.
            if not error.transient:
                raise
            found = None
        if found is not None and (last is None or found.rows != last.rows):
            show(found)
            last = found
        sleep(_EVERY_SECONDS)


def _report(reason: str) -> None:
    typer.echo(reason, err=True)
