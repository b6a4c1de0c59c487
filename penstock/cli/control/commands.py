"""A command to a job: stored by the job manager, carried out later; its end is waited for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from penstock.cli.control.job_text import line
from penstock.cli.control.waiting import waiting
from penstock.cli.tables import show_json

if TYPE_CHECKING:
    from penstock.control.api.commands import Command
    from penstock.control.api.fields import Response
    from penstock.control.client import Client


def carry_out(client: Client, command: Command, *, wait: bool, json: bool) -> None:
    """Wait for the end of a command and print its job; raise JobFailed if the job manager could not carry it out."""
    if wait:
        command = _wait(client, command)
    if command.kind == "delete":
        _show(command, f"delete {command.job}: {command.state}", json=json)
        return
    job = client.job(command.job)
    message = f"\n  {command.message}" if command.message else ""
    _show(job, line(job) + message, json=json)


def _show(result: Response, text: str, *, json: bool) -> None:
    if json:
        show_json(result.model_dump(mode="json"))
    else:
        typer.echo(text)


def _wait(client: Client, command: Command) -> Command:
    # A job that is deleted may be gone already.
    name = command.job if command.kind == "delete" else client.job(command.job).name
    with waiting(f"{command.kind} {name}") as show:
        for current in client.watch_command(command):
            command = current
            show(current.state)
    return command
