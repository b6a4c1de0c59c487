"""The address of a Kafka cluster or of Penstock's own log, as users write it, and the client configuration for it."""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote

from penstock.errors import BadValue, SettingsError, choices, one_of
from penstock.masking import is_secret, masked, masked_options
from penstock.settings import Settings, unread

DEFAULT = "127.0.0.1:9092"
DEFAULT_ORIGIN = "the default address"
START_ONE = "start one with: penstock log serve"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_PORT = "9092"
_OPTIONS = ("mechanism", "tls", "ca", "cert", "key")
_FILES = {"ca": "ssl.ca.location", "cert": "ssl.certificate.location", "key": "ssl.key.location"}


@dataclass(frozen=True)
class Connection:
    """One cluster: its addresses and credentials; secrets appear in no text."""

    servers: str
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    options: Mapping[str, str] = field(default_factory=dict, hash=False)
    origin: str = field(default="", compare=False)

    @classmethod
    def parse(cls, url: str, origin: str = "") -> Connection:
        """Read `host:port,...` or `kafka://user:password@host:port,...?mechanism=SCRAM-SHA-256&tls=true&ca=FILE`.

        Options with a dot in their name go to librdkafka as they are. `origin` is where the address is written.

        >>> Connection.parse("kafka://ada:secret@a:1,b?tls=true")
        Connection(servers='a:1,b:9092', user='ada', options={'tls': 'true'})
        """
        address, _, query = url.removeprefix("kafka://").partition("?")
        login, _, hosts = address.rstrip("/").rpartition("@")
        user, _, password = (unquote(part) for part in login.partition(":"))
        if not hosts or "/" in hosts or re.match(r"\w+://", address):
            message = f"{masked(url)!r} is not the address of a log"
            raise BadValue(
                message, node=origin or None, hint='write "host:port" or "kafka://user:password@host:port?tls=true"'
            )
        options = dict(parse_qsl(query, keep_blank_values=True))
        _refuse_cut_password(options)
        _refuse_unknown(options)
        for host in hosts.split(","):
            _refuse_port(host, origin)
        servers = ",".join(host if _has_port(host) else f"{host}:{_PORT}" for host in hosts.split(","))
        return cls(servers, user or None, password or None, options, origin)

    def __repr__(self) -> str:
        shown = f"servers={self.servers!r}, user={self.user!r}, options={masked_options(self.options)}"
        return f"Connection({shown})"

    @property
    def secrets(self) -> list[str]:
        """Values that must not appear in any text."""
        return [self.password or "", *(value for name, value in self.options.items() if is_secret(name))]

    @property
    def mechanism(self) -> str:
        """The SASL mechanism."""
        return self.options.get("mechanism", MECHANISMS[0])

    def config(self, **more: Any) -> dict[str, Any]:
        """Return the configuration of a librdkafka client, which by itself writes nothing to the terminal."""
        tls = self.options.get("tls", "true" if "ca" in self.options else "false") == "true"
        # A client that rebootstraps by itself can hang or crash (librdkafka 5456, 5511).
        calm = {"log_level": 0, "metadata.recovery.strategy": "none"}
        secure = {"bootstrap.servers": self.servers, "client.id": "penstock", **calm}
        if self.user is not None:
            login = {"sasl.username": self.user, "sasl.password": self.password or ""}
            secure |= {"sasl.mechanism": self.mechanism, **login}
        secure["security.protocol"] = ("SASL_" if self.user is not None else "") + ("SSL" if tls else "PLAINTEXT")
        secure |= {_FILES[name]: value for name, value in self.options.items() if name in _FILES}
        secure |= {name: value for name, value in self.options.items() if "." in name}
        return secure | {name.replace("_", "."): value for name, value in more.items()}

    def java_config(self) -> dict[str, str]:
        """Return the same for Kafka's Java client, as options of Spark's connector."""
        config = self.config()
        named = {"bootstrap.servers": self.servers, "security.protocol": config["security.protocol"]}
        if self.user is not None:
            module = "scram.ScramLoginModule" if "SCRAM" in config["sasl.mechanism"] else "plain.PlainLoginModule"
            login = f"username={json.dumps(self.user)} password={json.dumps(self.password or '')}"
            named |= {
                "sasl.mechanism": config["sasl.mechanism"],
                "sasl.jaas.config": f"org.apache.kafka.common.security.{module} required {login};",
            }
        if "ca" in self.options:
            named |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": self.options["ca"]}
        return {f"kafka.{name}": value for name, value in named.items()}

    def listens(self) -> bool:
        """Return whether one of the addresses accepts connections."""
        return any(_listens(server) for server in self.servers.split(","))

    def refuse_unreachable(self) -> None:
        """Raise a SettingsError if no address accepts connections: librdkafka alone would wait long."""
        if not self.listens():
            message = f"nothing listens at {self.servers}"
            raise SettingsError(message, node=self.origin or None, hint=self.remedy)

    @property
    def remedy(self) -> str:
        """What to do when the address does not answer."""
        if not self.origin or self.origin == DEFAULT_ORIGIN:
            lacking = unread(Settings(), "log") if self.origin else ""
            return f"{lacking}; or {START_ONE}" if lacking else f"{START_ONE}; or set PENSTOCK_LOG to where the log is"
        local = ("127.0.0.1:", "localhost:", "[::1]:")
        here = any(server.startswith(local) for server in self.servers.split(","))
        return f"correct the address in {self.origin}" + (f", or {START_ONE}" if here else ", or see whether it is up")


def origin(settings: Settings, name: str | None = None) -> str:
    """Return where the address of the log, or of a named connection, was set."""
    setting = "log" if name is None else "connections"
    given = settings.log if name is None else settings.connections.get(name)
    if not given:
        return DEFAULT_ORIGIN
    variable = f"PENSTOCK_{setting.upper()}"
    if given in os.environ.get(variable, ""):
        return f"{variable} of the environment"
    return f"the setting {setting}" + ("" if name is None else f".{name}")


def _refuse_cut_password(options: Mapping[str, str]) -> None:
    # A "?" in a password looks like the start of the options; what follows it must not be shown.
    suspicious = any(name not in _OPTIONS and "." not in name for name in options) and "@" in "".join(options.values())
    if suspicious or "@" in "".join(options):
        message = "the address of the log has a '@' in its options"
        raise BadValue(message, hint="if user or password hold a '?', '@', '/' or ':', write %3F, %40, %2F or %3A")


def _refuse_unknown(options: Mapping[str, str]) -> None:
    for name, value in options.items():
        if name not in _OPTIONS and "." not in name:
            message = f"a connection has no option '{name}'"
            raise BadValue(message, hint=choices("options", _OPTIONS, name))
        valid: Iterable[str] = {"mechanism": MECHANISMS, "tls": ("true", "false")}.get(name, (value,))
        one_of(value, valid, name)


def _refuse_port(host: str, origin: str) -> None:
    found = re.fullmatch(r"(?:\[[^\]]*\]|[^:]*)(?::(.*))?", host)
    port = found[1] if found else host.rpartition(":")[2]
    if port is not None and not (port.isdecimal() and 0 < int(port) < 65536):
        message = f"{port!r} of {masked(host)!r} is not a port"
        raise BadValue(message, node=origin or None, hint="a port is a number from 1 to 65535, as in host:9092")
    if not host.strip() or host.startswith(":"):
        message = f"{masked(host)!r} has no host"
        raise BadValue(message, node=origin or None, hint='write "host:port"')


def _has_port(host: str) -> bool:
    return re.search(r":\d+$", host) is not None


def _listens(server: str) -> bool:
    host, _, port = server.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=3):
            return True
    except OSError:
        return False
