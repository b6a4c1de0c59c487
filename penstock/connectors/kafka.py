"""Connections to Kafka and to Penstock's own log: where a name or a URL leads, and what goes wrong there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from penstock.connectors.connection import DEFAULT, START_ONE, Connection
from penstock.errors import PenstockError, SettingsError, SourceFailed, choices
from penstock.settings import Settings

SECONDS = 20.0
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
