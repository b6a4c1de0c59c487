"""`penstock logs`: the output of a job's driver."""

from __future__ import annotations

import json as encoder
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.control.access import JobName, on_server

if TYPE_CHECKING:
    from penstock.control.client import Client


@on_server
def logs(
    client: Client,
    job: JobName,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Print new lines until Ctrl-C.")] = False,
    tail: Annotated[int, typer.Option(min=0, max=100_000, help="Start with the last N lines.")] = 100,
    json: Annotated[bool, typer.Option("--json", help="Print each line as a JSON object.")] = False,
) -> None:
    """Print the output of a job's driver: its own lines, Spark's, and what the pipeline prints.

    Example: penstock logs vwap -f
    """
    try:
        for text in client.logs(job, tail=tail, follow=follow):
            typer.echo(encoder.dumps({"line": text}, ensure_ascii=False) if json else text)
    except KeyboardInterrupt:
        raise typer.Exit from None
