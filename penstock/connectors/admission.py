"""First contact with a cluster: says at once what keeps us out, where librdkafka would only wait.

The answer to a request says no more than that no broker could be asked; why, the client tells its error callback.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from penstock.connectors.connection import Connection
from penstock.connectors.kafka import LOGIN, SECONDS, answered, failed
from penstock.errors import PenstockError

# A log that is started anew closes connections too: this long it may.
_PATIENCE = 4.0
_KEPT = 32


def admitted(connection: Connection, kind: type[PenstockError]) -> AdminClient:
    """Return a client that a cluster has answered."""
    troubles: deque[KafkaError] = deque(maxlen=_KEPT)
    config = connection.config() | {"error_cb": troubles.append}
    client: AdminClient = answered(lambda: AdminClient(config), "connection", connection, kind)
    began = time.monotonic()
    while True:
        try:
            client.list_topics(timeout=1)
            return client
        except KafkaException as error:
            client.poll(0.1)
            waited = time.monotonic() - began
            cause = _refusal(troubles) or (_slammed(troubles, connection) if waited > _PATIENCE else None)
            if cause or waited > SECONDS:
                raise failed(cause or error, "connection", connection, kind) from error


def _refusal(troubles: Iterable[KafkaError]) -> KafkaError | None:
    return next((each for each in troubles if each.code() in LOGIN), None)


def _slammed(troubles: Iterable[KafkaError], connection: Connection) -> KafkaError | None:
    """Return the error of a client whose connections are taken and closed: it does not speak as the log does."""
    down = (each for each in troubles if each.code() == KafkaError._ALL_BROKERS_DOWN)
    return next(down, None) if connection.listens() else None
