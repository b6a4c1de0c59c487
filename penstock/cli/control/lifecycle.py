"""`penstock stop`, `cancel`, `restart` and `rescale`: commands to a job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.control.access import JobName, Wait, on_server
from penstock.cli.control.commands import carry_out
from penstock.cli.tables import Json
from penstock.errors import BadValue

if TYPE_CHECKING:
    from penstock.control.client import Client


@on_server
def stop(
    client: Client,
    job: JobName,
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Name of the savepoint; default: the current time.")
    ] = None,
    savepoint: Annotated[bool, typer.Option("--savepoint", help="Create a savepoint after the last epoch.")] = False,
    wait: Wait = True,
    json: Json = False,
) -> None:
    """Stop a job after its epoch. `penstock restart` continues it from there.

    Example: penstock stop vwap --savepoint before-upgrade
    """
    if name and not savepoint:
        message = f"'{name}': a job is stopped with its name or its id only"
        raise BadValue(message, hint=f"for a savepoint of that name: penstock stop {job} --savepoint {name}")
    carry_out(client, client.stop(job, savepoint=name or savepoint), wait=wait, json=json)


@on_server
def cancel(client: Client, job: JobName, wait: Wait = True, json: Json = False) -> None:
    """End a job at once, without finishing its epoch. The checkpoint stays: `penstock restart` continues it.

    Example: penstock cancel vwap
    """
    carry_out(client, client.cancel(job), wait=wait, json=json)


@on_server
def restart(client: Client, job: JobName, wait: Wait = True, json: Json = False) -> None:
    """Start a job again from its checkpoint; a running job finishes its epoch first.

    Example: penstock restart vwap
    """
    carry_out(client, client.restart(job), wait=wait, json=json)


@on_server
def rescale(
    client: Client,
    job: JobName,
    parallelism: Annotated[int, typer.Argument(min=1, max=4096, help="How many tasks run at once.")],
    wait: Wait = True,
    json: Json = False,
) -> None:
    """Change the parallelism of a job: stop with a savepoint, then continue from it with as many state partitions.

    Example: penstock rescale vwap 4
    """
    carry_out(client, client.rescale(job, parallelism), wait=wait, json=json)
