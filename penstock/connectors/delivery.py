"""Records on their way to a topic without a transaction: acknowledged, but written again with a replayed epoch."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from penstock.connectors.connection import Connection
from penstock.connectors.kafka import SECONDS, failed
from penstock.connectors.row_payloads import Records
from penstock.errors import PenstockError, SinkFailed

# A producer connects once per process: Spark's workers live longer than their tasks.
_producers: dict[Connection, Producer] = {}
# What stops a producer is written to stderr otherwise, whatever the log level; the job's error says it.
_silent = logging.Logger("librdkafka", logging.CRITICAL + 1)


class Delivery:
    """The records of one task on their way; over when each is acknowledged."""

    def __init__(self, connection: Connection, topic: str) -> None:
        self._connection, self._topic = connection, topic
        self._error: KafkaError | None = None

    def send(self, records: Iterable[Records]) -> int:
        """Send them all, and return how many there were."""
        producer, count = _producer(self._connection), 0
        try:
            for keys, values in records:
                for key, value in zip(keys, values, strict=True):
                    self._produce(producer, key, value)
                count += len(values)
                self._refuse_failures()
            left = producer.flush(SECONDS)
        except (KafkaException, SystemError) as error:
            raise self._failed(_said(error)) from error
        self._refuse_failures()
        if left:
            message = f"{self._connection.servers} did not acknowledge {left} records in {SECONDS:.0f} s"
            raise self._dropped(SinkFailed(message, hint="see whether the log is alive", transient=True))
        return count

    def _produce(self, producer: Producer, key: bytes | None, value: bytes | None) -> None:
        while True:
            try:
                producer.produce(self._topic, value, key, on_delivery=self._delivered)
                return
            except BufferError:
                producer.poll(0.1)
                self._refuse_failures()

    def _delivered(self, error: KafkaError | None, message: Any) -> None:
        self._error = self._error or error

    def _refuse_failures(self) -> None:
        if self._error is not None:
            raise self._failed(self._error)

    def _failed(self, error: KafkaError) -> PenstockError:
        return self._dropped(failed(error, self._topic, self._connection, SinkFailed))

    def _dropped(self, error: PenstockError) -> PenstockError:
        """Forget a producer that may be out of order; the next task gets a new one."""
        producer = _producers.pop(self._connection, None)
        if producer is not None:
            producer.purge()
        return error


def producer_config(connection: Connection, **more: Any) -> dict[str, Any]:
    """Return what all producers share; options of the connection's own address win."""
    ours = {"linger.ms": 5, "compression.type": "lz4"}
    # The partitioner is that of Kafka's own clients, so that equal keys meet whoever wrote them.
    ours |= {"partitioner": "murmur2_random", "logger": _silent}
    return ours | {name.replace("_", "."): value for name, value in more.items()} | connection.config()


def _said(error: KafkaException | SystemError) -> KafkaError:
    """Return what stopped the producer: its client hides a fatal error behind a call of `on_delivery`."""
    cause = error if isinstance(error, KafkaException) else error.__cause__
    if not isinstance(cause, KafkaException):
        raise error
    said: KafkaError = cause.args[0]
    return said


def _producer(connection: Connection) -> Producer:
    if connection not in _producers:
        _producers[connection] = Producer(producer_config(connection, enable_idempotence=True))
    return _producers[connection]
