"""`penstock token`: tokens of the job manager."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from penstock.cli import command_group
from penstock.cli.control.access import on_server
from penstock.cli.control.job_text import time_text
from penstock.cli.tables import Cell, Json, show_json, show_table
from penstock.errors import MissingInput

if TYPE_CHECKING:
    from penstock.control.api.access import NewToken
    from penstock.control.client import Client

Role = Literal["viewer", "operator", "admin"]

app = command_group("Create, list and revoke tokens of the job manager.")


@app.command()
@on_server
def create(
    client: Client,
    name: Annotated[str, typer.Argument(help="Name, which the audit log shows.")],
    role: Annotated[
        Role, typer.Option(help="viewer: read. operator: also submit and change jobs. admin: also tokens.")
    ] = "viewer",
    data: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write to the data folder of `penstock up` directly, for the first token."),
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Write to the store of `penstock server` directly, for the first token."),
    ] = None,
    json: Json = False,
) -> None:
    """Create a token. Its text is printed once; the job manager stores only a hash of it.

    From then on every request needs a token.

    Example: penstock token create ci --role operator
    """
    url = store or (store_of(data) if data else None)
    made = create_in_store(url, name, role) if url else client.create_token(name, role)
    if json:
        show_json(made)
        return
    typer.echo(made.token)
    typer.echo(f"token {made.name} ({made.role}), id {made.id}; use it as PENSTOCK_TOKEN", err=True)


def store_of(data: Path) -> str:
    """Return the URL of the store in a data folder."""
    from penstock.control.supervisor.data_folder import DataFolder

    if not data.is_dir():
        message = f"{data} is not a folder"
        raise MissingInput(message, hint="give the data folder of `penstock up`, which creates it")
    return DataFolder(data).store_url


def create_in_store(url: str, name: str, role: Role) -> NewToken:
    """Create a token without a job manager: whoever may write to its store may do everything."""
    from penstock.control.api.access import NewToken
    from penstock.control.security.roles import Role as StoredRole
    from penstock.control.security.tokens import Access
    from penstock.control.store.store import Store

    with Store(url) as opened:
        opened.migrate()
        made = Access(opened.tokens).create(name, StoredRole(role))
    created = datetime.fromtimestamp(made.token.created_at, UTC)
    return NewToken(id=made.token.id, name=name, role=role, created_at=created, token=made.text)


@app.command("list")
@on_server
def list_(client: Client, json: Json = False) -> None:
    """List the tokens, without their texts.

    Example: penstock token list
    """
    found = client.tokens()
    if json:
        show_json(found)
        return
    rows: list[list[Cell]] = [
        [t.name, t.id, t.role, time_text(t.created_at), time_text(t.expires_at), time_text(t.last_used_at)]
        for t in found
    ]
    show_table(["token", "id", "role", "created", "expires", "last used"], rows)


@app.command()
@on_server
def revoke(
    client: Client,
    named: Annotated[str, typer.Argument(metavar="NAME|ID", help="Name or id of the token.")],
    json: Json = False,
) -> None:
    """Revoke a token: requests with it are refused from now on.

    Example: penstock token revoke ci
    """
    found = [one for one in client.tokens() if named in (one.id, one.name)]
    chosen = found[0].id if len(found) == 1 else named
    client.revoke_token(chosen)
    if json:
        show_json({"revoked": chosen})
    else:
        typer.echo(f"revoked {named}")
