"""Records being sent for `penstock produce`; loading this loads librdkafka."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicCollection
from confluent_kafka.admin import AclOperation, ConfigResource, ResourceType

from penstock.cli.brokers import DENIED, Cluster
from penstock.cli.tables import counted
from penstock.errors import BrokerRefused, PenstockError, RowRejected, SinkFailed

Record = tuple[bytes | None, bytes]
Headers = list[tuple[str, str]]

_MOST_BYTES = 64 << 20
_BATCH_BYTES = 1_000_000
_BATCH_FRAME = 61  # bytes of a batch before its first record
_MOST_FRAME = 100  # what a batch, a record and their lengths add to key, value and headers, rounded up

# librdkafka prints fatal errors whatever the level of its log; we report them ourselves.
_silent = logging.getLogger("penstock.librdkafka")
_silent.disabled = True


class Sender:
    """Sends records and knows how many were acknowledged: all that were sent and did not fail."""

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
            partitioner="murmur2_random",  # as Java's clients do, so that one key is in one partition
            message_max_bytes=_MOST_BYTES,  # the topic's own limit decides
            batch_size=max(1, min(_BATCH_BYTES, self._most)),  # a batch above the topic's limit would be refused whole
            queue_buffering_max_kbytes=64 << 10,
            message_timeout_ms=60_000,
            delivery_report_only_error=True,  # a call into Python per record would halve the speed
        )
        self._producer = Producer({**config, "on_delivery": self._on_failure, "logger": _silent})

    def send(self, records: Iterable[Record]) -> None:
        """Hand the records to librdkafka, which sends them in batches; stop at the first that is known to fail.

        RowRejected for one that the topic is too small for: all before it is sent, nothing from it on.
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
        """Wait until every record is acknowledged or has failed, and say how many were acknowledged."""
        self._flush()
        said = f"{counted(self._sent - self._failed, 'record')} acknowledged"
        if self._failure:
            raise self._error(self._failure, said)
        return said

    def _send_large(self, key: bytes | None, value: bytes) -> None:
        """Send a record alone that may fit when it is compressed, and know at once whether it did."""
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
            # A fatal error is raised by the client in the midst of reports of failures, which Python finds odd.
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
        message = f"{counted(self._failed, 'record')} not acknowledged: {failure.str()}"
        return SinkFailed(message, hint=f"{said}; nothing more was sent")

    def _size(self, key: bytes | None, value: bytes) -> int:
        """Return what a batch with nothing but this record takes before it is compressed."""
        body = 3 + _size_of(key) + _size_of(value) + _varint(len(self._headers)) + _size_of_headers(self._headers)
        return _BATCH_FRAME + _varint(body) + body


def _refuse_unwritable(cluster: Cluster, topic: str) -> None:
    # An idempotent producer would only learn that it may not begin at all.
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
    return BrokerRefused(f"{who} may not write to topic '{topic}'", hint=f"{so_far}\n  {hint}" if so_far else hint)


def _most_bytes(cluster: Cluster, topic: str) -> int:
    """Return how large a batch may be; who may not see the topic's limit learns it from the broker's refusal."""
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
    """Return how many bytes a number takes, of seven bits each; one bit is its sign."""
    return number.bit_length() // 7 + 1
