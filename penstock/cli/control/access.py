"""The options of the connection to a job manager, and the argument that names a job."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, ParamSpec

import typer

from penstock.cli.shared_options import with_options
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.control.client import Client

_Own = ParamSpec("_Own")
COMPLETION_SECONDS = 1.0


def complete_job(incomplete: str) -> list[str]:
    """Return the names of jobs for the shell; none if no job manager answers."""
    from penstock.control.client import Client

    try:
        with Client(timeout=COMPLETION_SECONDS) as client:
            return [job.name for job in client.jobs() if job.name.startswith(incomplete)]
    except PenstockError:
        return []


JobName = Annotated[
    str,
    typer.Argument(metavar="JOB", help="Job: its name, its id, or the start of its id.", autocompletion=complete_job),
]
Wait = Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until it is done; Ctrl-C stops waiting only.")]


def connect(
    server: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Job manager. Default: PENSTOCK_SERVER, `server` in penstock.toml, or http://127.0.0.1:8081.",
        ),
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(envvar="PENSTOCK_TOKEN", help="Prefer the environment variable: other users can see arguments."),
    ] = None,
    profile: Annotated[str | None, typer.Option(help="Profile: `server` of [profiles.NAME] in penstock.toml.")] = None,
) -> Client:
    """Return the client of the job manager."""
    from penstock.control.client import Client

    return Client(server, token, profile=profile)


_OPTIONS = inspect.signature(connect, locals={"Client": object}, eval_str=True).parameters


def on_server(command: Callable[Concatenate[Client, _Own], None]) -> Callable[..., None]:
    """Add the options of the connection to a command, which gets the client."""

    @wraps(command)
    def call(**given: Any) -> None:
        with connect(**{name: given.pop(name) for name in _OPTIONS}) as client:
            command(client, **given)  # type: ignore[call-arg]

    return with_options(call, command, _OPTIONS, {"Client": object})
