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
