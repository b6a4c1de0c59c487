"""`penstock log user`: who may log in to a log, kept in its data folder."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from penstock.errors import SettingsError
from penstock.log.security.credentials import SCRAM
from penstock.log.security.users import Users

app = typer.Typer(
    help="Add, list and remove the users of a log.", no_args_is_help=True, add_completion=False, rich_markup_mode=None
)
DEFAULT_DATA = Path(".penstock/log")
Data = Annotated[
    Path, typer.Option("--data", file_okay=False, metavar="DIR", help="The data folder of the log.", show_default=True)
]
Name = Annotated[str, typer.Argument(metavar="NAME", help="The user; ACLs call it User:NAME.")]


@app.command("add")
def add(
    name: Name,
    data: Data = DEFAULT_DATA,
    mechanism: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help=f"Keep the password for this mechanism only: {' or '.join(SCRAM)}."),
    ] = None,
    is_super: Annotated[bool, typer.Option("--super", help="Every right, whatever ACLs say.")] = False,
    password_file: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, metavar="FILE", help="Read the password from a file.")
    ] = None,
) -> None:
    """Add a user, or give one a new password, which is asked for or taken from PENSTOCK_PASSWORD.

    A log that runs takes it in at the next login.
    """
    user = Users(data).add(name, _password(password_file), mechanism or SCRAM, is_super=is_super)
    typer.echo(f"{user.name}: {', '.join(user.credentials)}{', super user' if user.is_super else ''}, in {data}")


@app.command("list")
def show(data: Data = DEFAULT_DATA) -> None:
    """List the users with the mechanisms that their passwords are kept for."""
    for user in Users(data):
        typer.echo(f"{user.name:20}{', '.join(user.credentials)}{'  super user' if user.is_super else ''}")


@app.command("remove")
def remove(name: Name, data: Data = DEFAULT_DATA) -> None:
    """Remove a user: no new login from now on; connections that are open stay."""
    Users(data).remove(name)
    typer.echo(f"{name}: removed")


def _password(file: Path | None) -> str:
    if file:
        return file.read_text().removesuffix("\n").removesuffix("\r")
    given = os.environ.get("PENSTOCK_PASSWORD")
    if given is not None:
        return given
    if not sys.stdin.isatty():
        message = "no password was given"
        raise SettingsError(message, hint="set PENSTOCK_PASSWORD, give --password-file, or run in a terminal")
    return str(typer.prompt("Password", hide_input=True, confirmation_prompt=True))
