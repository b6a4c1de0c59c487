"""Which broker a command speaks to and as whom: the options, and what librdkafka is told."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, Literal, ParamSpec, get_type_hints

import typer

from penstock.errors import UnknownSetting
from penstock.settings import Settings

if TYPE_CHECKING:
    from penstock.cli.brokers import Cluster

DEFAULT = "127.0.0.1:9092"
Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
_Own = ParamSpec("_Own")


@dataclass(frozen=True)
class Access:
    """The address of a broker, and how to log in there."""

    address: str
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    mechanism: Mechanism = "PLAIN"
    tls: bool = False
    ca: Path | None = None

    def config(self) -> dict[str, Any]:
        """Return what librdkafka is told; it is told to keep its own log lines to itself."""
        login = {"sasl.mechanism": self.mechanism, "sasl.username": self.user, "sasl.password": self.password}
        protocol = ("SASL_" if self.user else "") + ("SSL" if self.tls or self.ca else "PLAINTEXT")
        return {
            "bootstrap.servers": self.address,
            "security.protocol": protocol,
            "client.id": "penstock",
            "log_level": 0,
            **(login if self.user else {}),
            **({"ssl.ca.location": str(self.ca)} if self.ca else {}),
        }


def read_access(
    broker: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help=f"The broker; default: PENSTOCK_LOG, penstock.toml, else {DEFAULT}."),
    ] = None,
    user: Annotated[str | None, typer.Option(help="The user to log in as.")] = None,
    password: Annotated[
        str | None, typer.Option(envvar="PENSTOCK_PASSWORD", help="Better in the variable: others see arguments.")
    ] = None,
    mechanism: Annotated[Mechanism, typer.Option(help="How the password is proven.")] = "PLAIN",
    tls: Annotated[bool, typer.Option("--tls", help="Speak TLS.")] = False,
    ca: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="Trust this certificate authority; means --tls.")
    ] = None,
) -> Access:
    """Read the options that say which broker, and as whom."""
    if user and not password:
        message = f"--user {user} has no password"
        raise UnknownSetting(message, hint="set PENSTOCK_PASSWORD, or add --password")
    address = broker or Settings.load().log or DEFAULT
    return Access(address.removeprefix("kafka://"), user, password, mechanism, tls, ca)


_OPTIONS = inspect.signature(read_access, eval_str=True).parameters


def on_broker(command: Callable[Concatenate[Cluster, _Own], None]) -> Callable[..., None]:
    """Add the options of `read_access` to a command, which gets the cluster that they lead to."""

    @wraps(command)
    def call(**given: Any) -> None:
        # librdkafka takes long to load, and most commands do without it.
        from penstock.cli.brokers import Cluster, errors_as_ours

        access = read_access(**{name: given.pop(name) for name in _OPTIONS})
        with errors_as_ours(access):
            command(Cluster(access), **given)  # type: ignore[call-arg]

    hints = get_type_hints(command, localns={"Cluster": object}, include_extras=True)
    _, *own = inspect.signature(command).parameters.values()
    parameters = [*(each.replace(annotation=hints[each.name]) for each in own), *_OPTIONS.values()]
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {each.name: each.annotation for each in parameters}
    return call
