"""`penstock secret`: secrets in the store of the job manager."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import command_group
from penstock.cli.control.access import on_server
from penstock.cli.control.job_text import time_text
from penstock.cli.tables import Cell, Json, show_json, show_table
from penstock.errors import BadValue, MissingInput

if TYPE_CHECKING:
    from penstock.control.client import Client

Name = Annotated[str, typer.Argument(help="Name, as in ${secret:NAME}.")]

app = command_group("Set, list and delete secrets that jobs refer to by ${secret:NAME}.")


@app.command("set")
@on_server
def set_(
    client: Client,
    name: Name,
    file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="File with the value; else it is asked for, or read from stdin.")
    ] = None,
    json: Json = False,
) -> None:
    """Set a secret, or change it. The value is no argument: other users can see those.

    Drivers that start from now on use it: restart a job to let it have the new value.

    Example: penstock secret set CRM < password.txt
    """
    made = client.set_secret(name, _value(name, file))
    if json:
        show_json(made)
    else:
        typer.echo(f"set {made.name}; jobs refer to it by ${{secret:{made.name}}}")


def _value(name: str, file: Path | None) -> str:
    if file is None and sys.stdin.isatty():
        value: str = typer.prompt(f"value of {name}", hide_input=True, confirmation_prompt=True)
        return value
    try:
        text = (file.read_bytes() if file else sys.stdin.buffer.read()).decode()
    except OSError as error:
        message = f"cannot read {file}: {error.strerror}"
        raise MissingInput(message, hint="give a file with the value, or write it to standard input") from error
    except UnicodeDecodeError:
        message = f"secret '{name}': the value is not UTF-8 text"
        raise BadValue(message, hint="write binary secrets as base64") from None
    return text.removesuffix("\n").removesuffix("\r")


@app.command("list")
@on_server
def list_(client: Client, json: Json = False) -> None:
    """List the secrets in the store, without their values.

    Example: penstock secret list
    """
    found = client.secrets()
    if json:
        show_json(found)
        return
    rows: list[list[Cell]] = [[one.name, time_text(one.updated_at), one.updated_by or ""] for one in found]
    show_table(["secret", "changed", "by"], rows)


@app.command()
@on_server
def delete(client: Client, name: Name, json: Json = False) -> None:
    """Delete a secret. Drivers that run keep its value.

    Example: penstock secret delete CRM
    """
    client.delete_secret(name)
    if json:
        show_json({"deleted": name})
    else:
        typer.echo(f"deleted {name}")
