"""Fetches a range of offsets as Arrow batches: with Penstock's own client if possible, otherwise with librdkafka.

librdkafka is needed for its own options, and for clusters and records older than Kafka 2.1. A range ends by offset, not
by count: compaction and transactions leave gaps. So it ends at the first record at or after its end, or where the
partition ends.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from penstock.connectors.topics.client_errors import SECONDS, translate_errors, translated
from penstock.connectors.topics.connection import Connection
from penstock.connectors.topics.leaders import UnsupportedVersion, is_supported
from penstock.connectors.topics.offsets import OutOfRange
from penstock.connectors.topics.partition_reader import FetchRange, read
from penstock.connectors.topics.payloads import RECORDS
from penstock.connectors.topics.record_batches import OldFormat
from penstock.errors import SourceFailed

BATCH = 20_000
_POLL_SECONDS = 0.5
_GONE = {
    KafkaError._PARTITION_EOF,
    KafkaError._AUTO_OFFSET_RESET,
    KafkaError.OFFSET_OUT_OF_RANGE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError._UNKNOWN_TOPIC,
}
_PASSING = {KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN}
_NO_COORDINATOR_YET = {
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
}
_PAUSE_SECONDS = 0.05
_log = logging.getLogger(__name__)
# A consumer connects once per process: Spark's workers live longer than their tasks.
_consumers: dict[str, Consumer] = {}
_known: set[tuple[Consumer, str]] = set()


def fetch(connection: Connection, group: str, wanted: FetchRange, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the records of a range; raises OutOfRange if offsets are missing, Damaged at a corrupt batch."""
    if is_supported(connection):
        try:
            for records in read(connection, wanted, columns):
                yield records
                wanted = wanted._replace(first=records.column("offset")[-1].as_py() + 1)
            return
        except (UnsupportedVersion, OldFormat) as error:
            _log.info("%s/%d is read by librdkafka: %s", wanted.topic, wanted.partition, error)
    yield from fetch_by_message(connection, group, wanted, columns)


def fetch_by_message(
    connection: Connection, group: str, wanted: FetchRange, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Yield the same with librdkafka, which creates an object per record."""
    schema = pa.schema([RECORDS.field(name) for name in columns])
    start = TopicPartition(wanted.topic, wanted.partition, wanted.first)
    for messages in _messages(connection, group, start, wanted.last):
        arrays = [pa.array(list(map(_COLUMNS[f.name], messages)), f.type) for f in schema]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def consumer(connection: Connection, group: str) -> Consumer:
    """Return this process's consumer for a cluster; it joins no group, and has no automatic commit."""
    config = connection.config(
        group_id=group,
        enable_auto_commit=False,
        enable_partition_eof=True,
        auto_offset_reset="error",
        isolation_level="read_committed",
        check_crcs=True,
        # One request at a time is in flight: one that waits at the end of a partition blocks the next task's.
        fetch_wait_max_ms=5,
        fetch_queue_backoff_ms=5,
    )
    key = repr(sorted((name, str(value)) for name, value in config.items()))
    if key not in _consumers:
        _consumers[key] = Consumer(config)
    return _consumers[key]


def commit(connection: Connection, group: str, offsets: list[TopicPartition]) -> None:
    """Commit offsets to a group; retry while a new group has no coordinator yet."""
    deadline = time.monotonic() + SECONDS
    while True:
        try:
            consumer(connection, group).commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            if error.args[0].code() not in _NO_COORDINATOR_YET or time.monotonic() > deadline:
                raise
            time.sleep(_PAUSE_SECONDS)
        else:
            return


def _messages(connection: Connection, group: str, start: TopicPartition, last: int) -> Iterator[list[Message]]:
    client = _with_metadata(start.topic, connection, group)
    client.assign([start])
    try:
        waiting: list[Message] = []
        over = False
        while not over:
            arrived = _arrived(client, connection, start.topic)
            if not _all_inside(arrived, last):
                inside = list(itertools.takewhile(lambda message: not _is_over(message, last, connection), arrived))
                over = len(inside) < len(arrived)
                arrived = [message for message in inside if message.error() is None]
            waiting += arrived
            over = over or (bool(waiting) and waiting[-1].offset() == last - 1)
            if waiting and (over or len(waiting) >= BATCH):
                yield waiting
                waiting = []
    finally:
        client.unassign()


def _with_metadata(topic: str, connection: Connection, group: str) -> Consumer:
    """Return the consumer with the topic's metadata loaded: by itself it would refresh only once a second."""
    client = consumer(connection, group)
    if (client, topic) not in _known:
        translate_errors(lambda: client.list_topics(topic, timeout=SECONDS), topic, connection)
        _known.add((client, topic))
    return client


def _arrived(client: Consumer, connection: Connection, topic: str) -> list[Message]:
    """Return all messages that have arrived; wait for the first."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        first = client.poll(_POLL_SECONDS)
        if first is not None:
            return [first, *client.consume(BATCH, 0)]
    message = f"{topic}: {connection.servers} sent nothing for {SECONDS:.0f} s"
    raise SourceFailed(message, hint="check that the broker is running, then run the job again", transient=True)


def _all_inside(messages: list[Message], last: int) -> bool:
    """Return whether there are no errors and no offset after the end, as in nearly all batches."""
    return not any(map(Message.error, messages)) and (messages[-1].offset() or 0) < last


def _is_over(message: Message, last: int, connection: Connection) -> bool:
    """Return whether the range ends before this message."""
    error, offset = message.error(), message.offset() or 0
    if error is None:
        return offset >= last
    if error.code() == KafkaError._PARTITION_EOF and offset >= last:
        return True
    if error.code() in _GONE:
        raise OutOfRange
    if error.retriable() or error.code() in _PASSING:
        # The client reconnects by itself, and `_arrived` has a timeout.
        return False
    raise translated(KafkaException(error), message.topic() or "", connection)


def _micros(message: Message) -> int | None:
    kind, millis = message.timestamp()
    return millis * 1000 if kind else None


def _headers(message: Message) -> list[dict[str, Any]] | None:
    pairs: Any = message.headers()
    return [{"key": name, "value": value} for name, value in pairs] if pairs else None


_COLUMNS: dict[str, Callable[[Message], Any]] = {
    "offset": Message.offset,
    "value": Message.value,
    "key": Message.key,
    "partition": Message.partition,
    "timestamp": _micros,
    "headers": _headers,
}
