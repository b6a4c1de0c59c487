"""`penstock log`: run the event log."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Literal

import typer

from penstock.cli import log_check, log_users

app = typer.Typer(
    help="Run the event log: a durable broker that every Kafka client can talk to.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)

app.add_typer(log_users.app, name="user")
app.command("check")(log_check.check)

DATA = ".penstock/log"
Folder = Annotated[Path, typer.Option("--data", help="Folder that holds the log.")]


@app.command()
def serve(
    data: Folder = Path(DATA),
    listen: Annotated[str, typer.Option(help="HOST:PORT to listen on; port 0 chooses a free one.")] = "127.0.0.1:9092",
    sync: Annotated[
        Literal["always", "interval", "none"],
        typer.Option(
            help="When records reach the disk: before they are acknowledged, every second, when the OS likes."
        ),
    ] = "always",
    advertise: Annotated[str | None, typer.Option(help="HOST:PORT that clients are told to connect to.")] = None,
    metrics: Annotated[str | None, typer.Option(help="HOST:PORT that serves Prometheus metrics at /metrics.")] = None,
    partitions: Annotated[int, typer.Option(min=1, help="Partitions of topics that are created without a number.")] = 1,
    auto_create: Annotated[bool, typer.Option(help="Create topics when they are first used.")] = True,
    login: Annotated[bool, typer.Option("--login", help="Ask for user and password (PLAIN, SCRAM).")] = False,
    tls_cert: Annotated[Path | None, typer.Option(help="Certificate of the server, PEM.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Its private key, PEM.")] = None,
    client_ca: Annotated[Path | None, typer.Option(help="Ask clients for a certificate of this CA, PEM.")] = None,
    super_user: Annotated[list[str] | None, typer.Option(help="User:NAME who may do everything.")] = None,
    acls: Annotated[
        bool,
        typer.Option("--acls", help="Without a login too, allow only what ACLs allow; clients are User:ANONYMOUS."),
    ] = False,
    node_id: Annotated[int, typer.Option(min=0, max=2**31 - 1, help="Node id in responses to clients.")] = 1,
    group_min_session_timeout: Annotated[
        str, typer.Option(help="Shortest session timeout that members of groups may ask for.")
    ] = "6s",
    group_initial_rebalance_delay: Annotated[
        str, typer.Option(help="How long a new group waits for more members before its first assignment.")
    ] = "3s",
    group_consumer_session_timeout: Annotated[
        str, typer.Option(help="Session timeout of groups with group.protocol=consumer.")
    ] = "45s",
    group_consumer_heartbeat_interval: Annotated[
        str, typer.Option(help="Heartbeat interval of groups with group.protocol=consumer.")
    ] = "5s",
) -> None:
    """Serve the log until SIGTERM or SIGINT; prints `listening on HOST:PORT` when it accepts."""
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
