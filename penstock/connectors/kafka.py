"""Connections to Kafka and to Penstock's own log: where a name or a URL leads, and what goes wrong there."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote

from confluent_kafka import KafkaError, KafkaException

from penstock.errors import BadValue, PenstockError, SettingsError, SourceFailed, choices
from penstock.settings import HIDDEN, Settings, masked

DEFAULT = "127.0.0.1:9092"
SECONDS = 20.0
START_ONE = "start one with: penstock log serve"
_PORT = "9092"
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_OPTIONS = ("mechanism", "tls", "ca", "cert", "key")
_FILES = {"ca": "ssl.ca.location", "cert": "ssl.certificate.location", "key": "ssl.key.location"}
_LOST = {
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TIMED_OUT,
    KafkaError._RESOLVE,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
}
_DENIED = {
    KafkaError._AUTHENTICATION,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
}


@dataclass(frozen=True)
class Connection:
    """One cluster: its addresses and how to prove who one is; the password shows in no text."""

    servers: str
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    options: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, url: str) -> Connection:
        """Read `host:port,...` or `kafka://user:password@host:port,...?mechanism=SCRAM-SHA-256&tls=true&ca=FILE`.

        Options with a dot in their name go to librdkafka as they are.

        >>> Connection.parse("kafka://ada:secret@a:1,b?tls=true")
        Connection(servers='a:1,b:9092', user='ada', options={'tls': 'true'})
        """
        address, _, query = url.removeprefix("kafka://").partition("?")
        login, _, hosts = address.rstrip("/").rpartition("@")
        user, _, password = (unquote(part) for part in login.partition(":"))
        if not hosts or "/" in hosts:
            message = f"{masked(url)!r} is not the address of a log"
            raise BadValue(message, hint='write "host:port" or "kafka://user:password@host:port?tls=true"')
        options = dict(parse_qsl(query, keep_blank_values=True))
        _refuse_unknown(options)
        servers = ",".join(host if _has_port(host) else f"{host}:{_PORT}" for host in hosts.split(","))
        return cls(servers, user or None, password or None, options)

    def config(self, **more: Any) -> dict[str, Any]:
        """Return the configuration of a librdkafka client, which by itself writes nothing to the terminal."""
        tls = self.options.get("tls", "true" if "ca" in self.options else "false") == "true"
        secure = {"bootstrap.servers": self.servers, "client.id": "penstock", "log_level": 0}
        if self.user is not None:
            mechanism = self.options.get("mechanism", _MECHANISMS[0])
            secure |= {"sasl.mechanism": mechanism, "sasl.username": self.user, "sasl.password": self.password or ""}
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

    def refuse_unreachable(self) -> None:
        """Raise a SettingsError if nobody listens at any of the addresses: librdkafka alone would wait long."""
        if self.password == HIDDEN:
            message = f"the password for {self.servers} is not kept in plans"
            raise SettingsError(message, hint="name the connection, and give its URL in Settings.connections")
        if not any(_listens(server) for server in self.servers.split(",")):
            message = f"nobody listens at {self.servers}"
            raise SettingsError(message, hint=f"{START_ONE}; or set PENSTOCK_LOG to where the log is")


def resolve(connection: str, settings: Settings) -> Connection:
    """Return where a connection leads: "log", a name in the settings, or an address."""
    if connection in settings.connections:
        return Connection.parse(settings.connections[connection])
    if connection == "log":
        return Connection.parse(settings.log or DEFAULT)
    if "://" in connection or ":" in connection:
        return Connection.parse(connection)
    message = f"unknown connection '{connection}'"
    raise SettingsError(message, hint=choices("connections", ["log", *settings.connections], connection))


def failed(
    error: KafkaException | KafkaError, what: str, connection: Connection, kind: type[PenstockError] = SourceFailed
) -> PenstockError:
    """Return a client's error as the user should meet it."""
    cause: KafkaError = error.args[0] if isinstance(error, KafkaException) else error
    code, text = cause.code(), cause.str()
    if code in _DENIED:
        message = f"{what}: {connection.servers} refuses this user: {text}"
        return kind(message, hint="check user, password and mechanism of the connection, and what the user may do")
    if code in _LOST:
        message = f"{what}: {connection.servers} does not answer: {text}"
        return kind(message, hint=START_ONE if "127.0.0.1" in connection.servers else None, transient=True)
    return kind(f"{what}: {text}", transient=bool(cause.retriable()))


def answered(
    call: Callable[[], Any], what: str, connection: Connection, kind: type[PenstockError] = SourceFailed
) -> Any:
    """Call a client; its errors become ours."""
    try:
        return call()
    except KafkaException as error:
        raise failed(error, what, connection, kind) from error
    except TimeoutError as error:
        message = f"{what}: {connection.servers} does not answer"
        raise kind(message, hint=START_ONE, transient=True) from error


def _refuse_unknown(options: Mapping[str, str]) -> None:
    for name, value in options.items():
        if name not in _OPTIONS and "." not in name:
            message = f"a connection has no option '{name}'"
            raise BadValue(message, hint=choices("options", _OPTIONS, name))
        valid: Iterable[str] = {"mechanism": _MECHANISMS, "tls": ("true", "false")}.get(name, (value,))
        if value not in valid:
            message = f"{name}={value!r} is not known"
            raise BadValue(message, hint=choices(name, valid, value))


def _has_port(host: str) -> bool:
    return re.search(r":\d+$", host) is not None


def _listens(server: str) -> bool:
    host, _, port = server.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=3):
            return True
    except OSError:
        return False
