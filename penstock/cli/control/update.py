"""`penstock update`: replace the source of a job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.control.access import JobName, Wait, on_server
from penstock.cli.control.commands import carry_out
from penstock.cli.control.submit import SettingPairs, SourceTarget, read_pairs
from penstock.cli.shared_options import Sets
from penstock.cli.tables import Json

if TYPE_CHECKING:
    from penstock.control.client import Client


@on_server
def update(
    client: Client,
    job: JobName,
    target: SourceTarget,
    sets: Sets = None,
    settings: SettingPairs = None,
    allow_drop: Annotated[
        bool, typer.Option("--allow-drop", help="Accept that changed nodes lose their state.")
    ] = False,
    wait: Wait = True,
    json: Json = False,
) -> None:
    """Stop a job with a savepoint and start a new version from it; arguments that are not given stay as they are.

    If the new version does not reach RUNNING, the old one is started again from the savepoint.

    Example: penstock update vwap examples/vwap.py --set window=30s
    """
    command = client.update(
        job,
        target,
        allow_drop=allow_drop,
        settings=read_pairs("--setting", settings) or None,
        arguments=read_pairs("--set", sets) or None,
    )
    carry_out(client, command, wait=wait, json=json)
