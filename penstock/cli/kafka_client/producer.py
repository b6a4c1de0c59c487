"""The producer of `penstock produce`, with librdkafka (loaded with this module)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicCollection
from confluent_kafka.admin import AclOperation, ConfigResource, ResourceType

from penstock.cli.kafka_client.cluster import DENIED, Cluster
from penstock.cli.tables import count_text
from penstock.errors import BrokerRefused, PenstockError, RowRejected, SinkFailed

Record = tuple[bytes | None, bytes]
Headers = list[tuple[str, str]]

_MOST_BYTES = 64 << 20
_BATCH_BYTES = 1_000_000
_BATCH_FRAME = 61  # bytes of a batch header
_MOST_FRAME = 100  # upper bound of the overhead of a batch with one record

# librdkafka prints fatal errors at any log level; they are reported below.
_silent = logging.getLogger("penstock.librdkafka")
_silent.disabled = True


class RecordSender:
    """Sends records and counts the acknowledged ones: all that were sent and did not fail."""

    def __init__(self, cluster: Cluster, topic: str, partition: int, headers: Headers, compression: str) -> None:
        _refuse_unwritable(cluster, topic)
        self._cluster, self._topic, self._headers = cluster, topic, headers
        self._to: dict[str, Any] = {"topic": topic, "partition": partition, **({"headers": headers} if headers else {})}
        self._most, self._compressed = _most_bytes(cluster, topic), compression != "none"
        self._sent = self._failed = 0
        self._failure: KafkaError | None = None
        config = cluster.config(
            enable_idempotence=True,
            compression_type=compression,
            partitioner="murmur2_random",  # as Java clients do, so that they put a key into the same partition
            message_max_bytes=_MOST_BYTES,  # the limit of the topic applies
            batch_size=max(1, min(_BATCH_BYTES, self._most)),  # a batch above the limit of the topic would be refused
            queue_buffering_max_kbytes=64 << 10,
            message_timeout_ms=60_000,
            delivery_report_only_error=True,  # a call into Python per record would halve the speed
        )
        self._producer = Producer({**config, "on_delivery": self._on_failure, "logger": _silent})

    def send(self, records: Iterable[Record]) -> None:
        """Pass the records to librdkafka, which sends them in batches; stop at the first failure.

        RowRejected for a record above the limit of the topic: all before it is sent, nothing after it.
        """
        plenty = self._most - _MOST_FRAME - _size_of_headers(self._headers)
        for key, value in records:
            if len(value) + len(key or b"") > plenty and self._size(key, value) > self._most:
                self._send_large(key, value)
            else:
                self._send(key, value)
            if self._failure:
                break

    def finish(self) -> str:
        """Wait until every record is acknowledged or has failed, and return how many were acknowledged."""
        self._flush()
        said = f"{count_text(self._sent - self._failed, 'record')} acknowledged"
        if self._failure:
            raise self._error(self._failure, said)
        return said

    def _send_large(self, key: bytes | None, value: bytes) -> None:
        """Send a large record in its own batch: it may fit when compressed."""
        size = self._size(key, value)
        if self._compressed and size <= _MOST_BYTES:
            self._flush()
            if self._failure:
                return
            self._send(key, value)
            self._flush()
            if self._failure is None or self._failure.code() != KafkaError.MSG_SIZE_TOO_LARGE:
                return
            self._sent, self._failed, self._failure = self._sent - 1, self._failed - 1, None
        limit = "max.message.bytes of the topic" if self._most < _MOST_BYTES else "the limit of this command"
        message = f"line {self._sent + 1} is too large: its record takes {size:,} bytes, {limit} is {self._most:,}"
        raise RowRejected(message)

    def _send(self, key: bytes | None, value: bytes) -> None:
        while True:
            try:
                self._producer.produce(key=key, value=value, **self._to)
            except BufferError:
                self._call(self._producer.poll, 0.005)
            except KafkaException as error:
                self._fail(error)
                return
            else:
                self._sent += 1
                self._call(self._producer.poll, 0)
                return

    def _flush(self) -> None:
        while self._call(self._producer.flush, 1):
            pass

    def _call(self, wait: Callable[[float], int], seconds: float) -> int:
        try:
            return wait(seconds)
        except KafkaException as error:
            self._fail(error)
        except SystemError as error:
            # The client raises a fatal error inside a delivery callback, which Python turns into a SystemError.
            if not isinstance(error.__cause__, KafkaException):
                raise
            self._fail(error.__cause__)
        return 1

    def _fail(self, error: KafkaException) -> None:
        cause: KafkaError = error.args[0]
        if self._failure is None or cause.fatal():
            self._failure = cause

    def _on_failure(self, error: KafkaError, _message: Message) -> None:
        self._failed += 1
        self._failure = self._failure or error

    def _error(self, failure: KafkaError, said: str) -> PenstockError:
        if failure.code() in DENIED:
            return _may_not_write(self._cluster, self._topic, f"{said}; nothing more was sent")
        message = f"{count_text(self._failed, 'record')} not acknowledged: {failure.str()}"
        return SinkFailed(message, hint=f"{said}; nothing more was sent")

    def _size(self, key: bytes | None, value: bytes) -> int:
        """Return the uncompressed size of a batch with only this record."""
        body = 3 + _size_of(key) + _size_of(value) + _varint(len(self._headers)) + _size_of_headers(self._headers)
        return _BATCH_FRAME + _varint(body) + body


def _refuse_unwritable(cluster: Cluster, topic: str) -> None:
    # An idempotent producer would only get the error that it cannot be initialised.
    asked = cluster.admin.describe_topics(
        TopicCollection([topic]), include_authorized_operations=True, **cluster.patience
    )
    allowed = cluster.settle(asked).authorized_operations
    if allowed is not None and AclOperation.WRITE not in allowed:
        raise _may_not_write(cluster, topic)


def _may_not_write(cluster: Cluster, topic: str, so_far: str = "") -> BrokerRefused:
    user = cluster.access.user
    who = f"user '{user}'" if user else "a client without --user"
    hint = f"allow it: penstock acl add User:{user or 'ANONYMOUS'} --operation write --topic {topic}"
    return BrokerRefused(
        f"permission denied: {who} may not write to topic '{topic}'", hint=f"{so_far}\n  {hint}" if so_far else hint
    )


def _most_bytes(cluster: Cluster, topic: str) -> int:
    """Return max.message.bytes of the topic; without permission to see it, the broker refuses larger batches itself."""
    try:
        found = cluster.settle(
            cluster.admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)], **cluster.patience)
        )
    except KafkaException as error:
        if error.args[0].code() not in DENIED:
            raise
        return _MOST_BYTES
    return min(int(found["max.message.bytes"].value), _MOST_BYTES)


def _size_of_headers(headers: Headers) -> int:
    return sum(_size_of(part.encode()) for header in headers for part in header)


def _size_of(data: bytes | None) -> int:
    return _varint(len(data)) + len(data) if data is not None else 1


def _varint(number: int) -> int:
    """Return the size of a zigzag varint."""
    return number.bit_length() // 7 + 1
