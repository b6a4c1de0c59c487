"""`penstock up` and `penstock server`: start the job manager."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

DEFAULT_DATA = Path(".penstock")
DEFAULT_PORT = 8081
LOOPBACK = "127.0.0.1"

Data = Annotated[
    Path, typer.Option(metavar="DIR", help="Folder of jobs, checkpoints, savepoints and, with `up`, the event log.")
]
Port = Annotated[int, typer.Option(min=0, max=65_535, help="Port of the job manager; 0 is a free one.")]
Host = Annotated[
    str, typer.Option(metavar="ADDRESS", help="Address to listen on; beyond loopback every request needs a token.")
]
Spares = Annotated[
    int,
    typer.Option(min=0, max=16, help="Drivers with a started Spark that wait for a job, so that it starts at once."),
]
TlsCert = Annotated[Path | None, typer.Option(exists=True, dir_okay=False, help="Certificate of the server, PEM.")]
TlsKey = Annotated[Path | None, typer.Option(exists=True, dir_okay=False, help="Private key of the server, PEM.")]
AllowedHosts = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="Host name under which clients reach the job manager, repeatable."),
]
SparkMaster = Annotated[
    str | None,
    typer.Option(metavar="MASTER", help="Spark's master of all jobs, as spark://HOST:7077; default: this machine."),
]


def up(
    data: Data = DEFAULT_DATA,
    port: Port = DEFAULT_PORT,
    host: Host = LOOPBACK,
    log_port: Annotated[
        int | None, typer.Option(min=0, max=65_535, help="Port of the event log; default: 9092, or a free one.")
    ] = None,
    spares: Spares = 1,
    spark_master: SparkMaster = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    allow_host: AllowedHosts = None,
) -> None:
    """Run the job manager with its dashboard, and an event log, over one data folder; prints their addresses.

    Ctrl-C and SIGTERM finish the epochs of all jobs and stop them; the next `penstock up` resumes them.

    Example: penstock up --data .penstock --port 8081
    """
    from penstock.control.server import run_up
    from penstock.dashboard import create_dashboard

    run_up(
        data,
        host,
        port,
        log_port=log_port,
        spares=spares,
        spark_master=spark_master,
        tls_cert=tls_cert,
        tls_key=tls_key,
        allowed_hosts=tuple(allow_host or ()),
        dashboard=create_dashboard(),
    )


def server(
    store: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="Store: sqlite:///PATH or postgresql://...; default: a SQLite file in the data folder."
        ),
    ] = None,
    log: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Event log or Kafka, which jobs call `log`.")
    ] = None,
    spark_master: SparkMaster = None,
    checkpoints: Annotated[
        str | None,
        typer.Option(metavar="DIR|URL", help="Checkpoints of all jobs; default: a folder in the data folder."),
    ] = None,
    data: Data = DEFAULT_DATA,
    port: Port = DEFAULT_PORT,
    host: Host = LOOPBACK,
    spares: Spares = 1,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    allow_host: AllowedHosts = None,
) -> None:
    """Run the job manager alone. Several on one PostgreSQL store: one is active, the others stand by.

    Jobs keep running when it ends; the next job manager on the same store adopts them.

    Example: penstock server --store postgresql://penstock@db/penstock --log kafka-1:9092
    """
    from penstock.control.server import run_server
    from penstock.dashboard import create_dashboard

    run_server(
        store,
        data=data,
        host=host,
        port=port,
        log=log,
        spark_master=spark_master,
        checkpoints=checkpoints,
        spares=spares,
        tls_cert=tls_cert,
        tls_key=tls_key,
        allowed_hosts=tuple(allow_host or ()),
        dashboard=create_dashboard(),
    )
