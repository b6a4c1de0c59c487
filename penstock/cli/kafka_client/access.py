"""The options of the connection to a broker: its address, user, password and TLS."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, Literal, ParamSpec

import typer

from penstock.cli.shared_options import with_options
from penstock.connectors.topics.connection import DEFAULT, Connection, origin
from penstock.errors import UnknownSetting
from penstock.settings import Settings

if TYPE_CHECKING:
    from penstock.cli.kafka_client.cluster import Cluster

Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
_Own = ParamSpec("_Own")


def read_access(
    broker: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help=f"The broker, or its URL. Default: PENSTOCK_LOG, the log of penstock.toml, or {DEFAULT}.",
        ),
    ] = None,
    user: Annotated[str | None, typer.Option(help="The user to log in as.")] = None,
    password: Annotated[
        str | None,
        typer.Option(
            envvar="PENSTOCK_PASSWORD", help="Prefer the environment variable: other users can see arguments."
        ),
    ] = None,
    mechanism: Annotated[Mechanism | None, typer.Option(help="SASL mechanism; default: PLAIN.")] = None,
    tls: Annotated[bool, typer.Option("--tls", help="Connect with TLS.")] = False,
    ca: Annotated[
        Path | None,
        typer.Option(exists=True, dir_okay=False, help="Certificate authority to trust, PEM; implies --tls."),
    ] = None,
) -> Connection:
    """Return the connection; options override the URL of the broker."""
    settings = Settings.load()
    found = Connection.parse(broker or settings.log or DEFAULT, "--broker" if broker else origin(settings))
    who = user or found.user
    secret = password or (found.password if who == found.user else None)
    if who and not secret:
        message = f"user '{who}' has no password"
        raise UnknownSetting(message, hint="set PENSTOCK_PASSWORD, or add --password")
    given = {"mechanism": mechanism, "tls": "true" if tls or ca else None, "ca": str(ca) if ca else None}
    options = {**found.options, **{name: value for name, value in given.items() if value}}
    return Connection(found.servers, who, secret if who else None, options, found.origin)


_OPTIONS = inspect.signature(read_access, eval_str=True).parameters


def on_broker(command: Callable[Concatenate[Cluster, _Own], None]) -> Callable[..., None]:
    """Add the connection options to a command, which gets the connected cluster."""

    @wraps(command)
    def call(**given: Any) -> None:
        # librdkafka takes long to load, and `--help` does not need it.
        from penstock.cli.kafka_client.cluster import Cluster, translated_errors

        access = read_access(**{name: given.pop(name) for name in _OPTIONS})
        with translated_errors(access):
            command(Cluster(access), **given)  # type: ignore[call-arg]

    return with_options(call, command, _OPTIONS, {"Cluster": object})
