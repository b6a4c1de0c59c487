"""`penstock log`: run the event log, check its data folder, and manage its users."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from penstock.cli import command_group
from penstock.errors import SettingsError
from penstock.log.security.users import SCRAM, Users

users_app = command_group("Add, list and remove the users of a log.")
DEFAULT_DATA = Path(".penstock/log")
Data = Annotated[
    Path, typer.Option("--data", file_okay=False, metavar="DIR", help="Data folder of the log.", show_default=True)
]
Name = Annotated[str, typer.Argument(metavar="NAME", help="User name; User:NAME in ACLs.")]
app = command_group("Run the event log: a durable broker that speaks the Kafka protocol.")
DATA = ".penstock/log"
Folder = Annotated[Path, typer.Option("--data", help="Data folder of the log.")]


@app.command()
def check(
    data: Annotated[Path, typer.Option("--data", metavar="DIR", help="Data folder of the log.")] = Path(
        ".penstock/log"
    ),
) -> None:
    """Check every batch of every segment, and report damage; exit code 1 if there is any.

    The log must not be running.

    Example: penstock log check --data .penstock/log
    """
    from penstock.log.storage.integrity import check_folder

    found = check_folder(data)
    for damage in found.damages:
        typer.echo(str(damage))
    for torn in found.torn:
        typer.echo(f"{torn.path}: a torn tail at byte {torn.position} ({torn.size} bytes), truncated at the next start")
    verdict = f"{len(found.damages)} damaged" if found.damages else "no damage"
    counts = f"{found.topics} topics, {found.partitions} partitions, {found.records} records, {found.size} bytes"
    typer.echo(f"{counts}: {verdict}")
    if found.damages:
        raise typer.Exit(1)


@users_app.command("add")
def add(
    name: Name,
    data: Data = DEFAULT_DATA,
    mechanism: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help=f"Only for this SASL mechanism: {' or '.join(SCRAM)}."),
    ] = None,
    is_super: Annotated[
        bool, typer.Option("--super", help="Super user: allowed everything, whatever the ACLs.")
    ] = False,
    password_file: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, metavar="FILE", help="Read the password from a file.")
    ] = None,
) -> None:
    """Add a user, or change the password, which is read from PENSTOCK_PASSWORD or the terminal.

    A running log applies the change at the next login.

    Example: penstock log user add ada --super
    """
    user = Users(data).add(name, _password(password_file), mechanism or SCRAM, is_super=is_super)
    typer.echo(f"{user.name}: {', '.join(user.credentials)}{', super user' if user.is_super else ''}, in {data}")


@users_app.command("list")
def show(data: Data = DEFAULT_DATA) -> None:
    """List the users and their SASL mechanisms.

    Example: penstock log user list
    """
    for user in Users(data):
        typer.echo(f"{user.name:20}{', '.join(user.credentials)}{'  super user' if user.is_super else ''}")


@users_app.command("remove")
def remove(name: Name, data: Data = DEFAULT_DATA) -> None:
    """Remove a user; open connections stay open.

    Example: penstock log user remove ada
    """
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


@app.command()
def serve(
    data: Folder = Path(DATA),
    listen: Annotated[str, typer.Option(help="HOST:PORT to listen on; port 0 chooses a free port.")] = "127.0.0.1:9092",
    sync: Annotated[
        Literal["always", "interval", "none"],
        typer.Option(
            help="When records are synced to disk: before each acknowledgement, every second, or when the OS decides."
        ),
    ] = "always",
    advertise: Annotated[
        str | None, typer.Option(help="HOST:PORT that clients use to connect, if it differs from --listen.")
    ] = None,
    metrics: Annotated[str | None, typer.Option(help="HOST:PORT of the Prometheus endpoint /metrics.")] = None,
    partitions: Annotated[int, typer.Option(min=1, help="Default number of partitions of new topics.")] = 1,
    auto_create: Annotated[bool, typer.Option(help="Create topics when they are first used.")] = True,
    login: Annotated[bool, typer.Option("--login", help="Require user and password (SASL PLAIN or SCRAM).")] = False,
    tls_cert: Annotated[Path | None, typer.Option(help="TLS certificate of the server, PEM.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Private key of the certificate, PEM.")] = None,
    client_ca: Annotated[Path | None, typer.Option(help="Require client certificates of this CA, PEM.")] = None,
    super_user: Annotated[list[str] | None, typer.Option(help="Super user as User:NAME, repeatable.")] = None,
    acls: Annotated[
        bool,
        typer.Option("--acls", help="Enforce ACLs without authentication too; clients are User:ANONYMOUS."),
    ] = False,
    node_id: Annotated[int, typer.Option(min=0, max=2**31 - 1, help="Node id in responses to clients.")] = 1,
    group_min_session_timeout: Annotated[
        str, typer.Option(help="Shortest session timeout that group members may request.")
    ] = "6s",
    group_initial_rebalance_delay: Annotated[
        str, typer.Option(help="How long a new group waits for more members before its first rebalance.")
    ] = "3s",
    group_consumer_session_timeout: Annotated[
        str, typer.Option(help="Session timeout of groups with group.protocol=consumer.")
    ] = "45s",
    group_consumer_heartbeat_interval: Annotated[
        str, typer.Option(help="Heartbeat interval of groups with group.protocol=consumer.")
    ] = "5s",
) -> None:
    """Run the log until SIGTERM or SIGINT; prints `listening on HOST:PORT` when it is ready.

    Example: penstock log serve --data .penstock/log --listen 127.0.0.1:9092
    """
    from penstock.log.serve import Options, serve_until_stopped

    options = Options(
        data=data,
        listen=listen,
        sync=sync,
        advertise=advertise,
        metrics=metrics,
        partitions=partitions,
        auto_create=auto_create,
        login=login,
        tls_cert=tls_cert,
        tls_key=tls_key,
        client_ca=client_ca,
        super_users=tuple(super_user or ()),
        acls=acls,
        node_id=node_id,
        group_min_session_timeout=group_min_session_timeout,
        group_initial_rebalance_delay=group_initial_rebalance_delay,
        group_consumer_session_timeout=group_consumer_session_timeout,
        group_consumer_heartbeat_interval=group_consumer_heartbeat_interval,
    )
    asyncio.run(serve_until_stopped(options, typer.echo))


app.add_typer(users_app, name="user")
