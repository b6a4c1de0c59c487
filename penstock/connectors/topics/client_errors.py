"""Resolves connections of topics, and translates errors of Kafka's client."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from penstock.connectors.topics.connection import DEFAULT, Connection, origin
from penstock.errors import BadValue, PenstockError, SettingsError, SinkFailed, SourceFailed, choices
from penstock.masking import masked, without
from penstock.settings import Settings, unread

SECONDS = 20.0
IN_PIPELINE = "connection= of the pipeline"
LOGIN = {KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED, KafkaError._SSL}
# librdkafka's prefix and suffix of an error message: the connection and its state.
_FRAME = re.compile(r"^\S+/(bootstrap|\d+): | \(after .*$")
_CHECK_TLS = "check tls and ca of the connection"
_LOST = {
    KafkaError._TRANSPORT,
    KafkaError._TIMED_OUT,
    KafkaError._RESOLVE,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
}
# The second is the error of a producer without any write permission.
_DENIED = {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED}
_NEEDED: dict[type[PenstockError], str] = {SinkFailed: "write"}


def resolve(connection: str, settings: Settings) -> Connection:
    """Return the connection by "log", a name in the settings, or an address."""
    if connection in settings.connections:
        return Connection.parse(settings.connections[connection], origin(settings, connection))
    if connection == "log":
        return Connection.parse(settings.log or DEFAULT, origin(settings))
    if is_address(connection):
        return Connection.parse(connection, IN_PIPELINE)
    message = f"unknown connection '{masked(connection)}'"
    known = unread(settings, "connections", connection)
    known = known or choices("connections", ["log", *settings.connections], connection)
    hint = f"{known}\n  name it under [settings.connections] of penstock.toml, or write its address: host:9092"
    raise SettingsError(message, node=IN_PIPELINE, hint=hint)


def is_address(connection: str) -> bool:
    """Return whether a connection is an address, not a name in the settings."""
    return "://" in connection or ":" in connection


def check_address(connection: object, node: str) -> None:
    """Raise BadValue for an invalid address when the pipeline is built; names are resolved when it runs."""
    if not isinstance(connection, str) or not connection:
        message = f"connection={connection!r} is neither a name nor an address"
        raise BadValue(message, node=node, hint='pass a name of the settings, or an address such as "host:9092"')
    if is_address(connection):
        Connection.parse(connection, f"{node}: connection")


def translated(
    error: KafkaException | KafkaError,
    what: str,
    connection: Connection,
    kind: type[PenstockError] = SourceFailed,
    need: str | None = None,
) -> PenstockError:
    """Return a client's error as a PenstockError; `need` is the permission that the request needs."""
    cause: KafkaError = error.args[0] if isinstance(error, KafkaException) else error
    code, text, servers = cause.code(), _said(cause, connection), connection.servers
    if code in LOGIN or code == KafkaError._ALL_BROKERS_DOWN:
        return _login_failed(code, text, what, connection, kind)
    if code in _DENIED:
        return _denied(need or _NEEDED.get(kind, "read"), what, connection, kind)
    if code in _LOST:
        return kind(f"{what}: {servers} does not answer: {text}", hint=connection.remedy, transient=True)
    return kind(f"{what}: {text}", transient=bool(cause.retriable()))


def translate_errors(
    call: Callable[[], Any],
    what: str,
    connection: Connection,
    kind: type[PenstockError] = SourceFailed,
    need: str | None = None,
) -> Any:
    """Call a client and translate its errors."""
    try:
        return call()
    except KafkaException as error:
        raise translated(error, what, connection, kind, need) from error
    except TimeoutError as error:
        message = f"{what}: {connection.servers} does not answer"
        raise kind(message, hint=connection.remedy, transient=True) from error


def _said(cause: KafkaError, connection: Connection) -> str:
    return without(_FRAME.sub("", cause.str()), connection.secrets)


def _login_failed(code: int, text: str, what: str, connection: Connection, kind: type[PenstockError]) -> PenstockError:
    servers, user = connection.servers, connection.user
    if code == KafkaError._SSL:
        return kind(f"{what}: no TLS with {servers}: {text}", hint=_CHECK_TLS)
    if code == KafkaError._ALL_BROKERS_DOWN:
        hint = f"{_CHECK_TLS}, and {'mechanism' if user else 'user and password, should it want a login'}"
        return kind(f"{what}: {servers} closes the connection", hint=hint, transient=True)
    hint = "check user, password and mechanism of the connection"
    return kind(f"{what}: {servers} refuses user '{user}': {text}", hint=hint)


def _denied(need: str, what: str, connection: Connection, kind: type[PenstockError]) -> PenstockError:
    who = f"user '{connection.user}'" if connection.user else "a client without login"
    allow = f"penstock acl add User:{connection.user or 'ANONYMOUS'} --operation {need} --topic {what}"
    return kind(
        f"{what}: {who} has no permission to {need} it at {connection.servers}",
        hint=f"an administrator can grant it: {allow}",
    )
