"""A command to a job: stored by the job manager, carried out later; its end is waited for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer
from rich.console import Console

from penstock.cli.control.job_text import line
from penstock.cli.tables import show_json

if TYPE_CHECKING:
    from penstock.control.api.commands import Command
    from penstock.control.api.fields import Response
    from penstock.control.client import Client


INTERRUPTED = 130


@contextmanager
def waiting(what: str) -> Iterator[Callable[[str], None]]:
    """Return a function that shows a state: in a line that is redrawn on a terminal, else one line per change."""
    console = Console(stderr=True)
    try:
        if console.is_terminal:
            with console.status(what) as status:
                yield lambda state: status.update(f"{what}: {state}")
        else:
            yield _Lines(what)
    except KeyboardInterrupt:
        typer.echo(f"\n{what}: no longer waiting; the job manager continues", err=True)
        raise typer.Exit(INTERRUPTED) from None


class _Lines:
    def __init__(self, what: str) -> None:
        self._what, self._shown = what, ""

    def __call__(self, state: str) -> None:
        if state != self._shown:
            typer.echo(f"{self._what}: {state}", err=True)
        self._shown = state


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
        show_json(result)
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
