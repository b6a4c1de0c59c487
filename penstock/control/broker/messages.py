"""Reads and writes records, with librdkafka (loaded with this module)."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka import Message as KafkaMessage

from penstock.control.api.topics import Header, Message, MessageList, MessageQuery, Produced, Record, TailQuery
from penstock.control.broker.client import SECONDS, KafkaClient
from penstock.control.broker.documents import document_of
from penstock.control.broker.positions import start_offsets

MOST_SCANNED = 100_000
MOST_SECONDS = 10.0
# With a filter, so many of the newest records of each partition are searched.
NEWEST_SEARCHED = 5_000
_BATCH = 1_000
# At the end of a topic a read need not wait for more.
_WAIT_MS = 20


def read_messages(
    client: KafkaClient, topic: str, query: MessageQuery, clock: Callable[[], float] = time.monotonic
) -> MessageList:
    """Read records from a position on, or the newest; stop at the limit, or at the bounds of one request."""
    partitions = client.partitions(topic, query.partition)
    starts = first_offsets(client, topic, partitions, query)
    reading = _Reading(client, topic, starts, clock() + MOST_SECONDS, clock)
    newest = wants_newest(query)
    found: list[Message] = []
    with client.translated(f"topic '{topic}'"):
        for record in reading:
            if is_wanted(record, query):
                found.append(message_of(record))
            if len(found) >= query.limit and not newest:
                break
    return MessageList(
        items=in_order(found, query.limit, newest=newest), scanned=reading.scanned, complete=reading.complete
    )


def in_order(found: Iterable[Message], limit: int, *, newest: bool) -> list[Message]:
    """Return messages by their times; only the newest, or the first."""
    order = sorted(found, key=lambda each: (each.timestamp or _EPOCH, each.partition, each.offset))
    return order[-limit:] if newest else order[:limit]


def produce(client: KafkaClient, topic: str, record: Record) -> Produced:
    """Write a record to a topic that exists."""
    client.partitions(topic, record.partition)
    delivered: list[tuple[KafkaError | None, KafkaMessage]] = []
    where = {} if record.partition is None else {"partition": record.partition}
    with client.translated(f"topic '{topic}'"):
        producer = Producer(client.config(acks="all", message_timeout_ms=int(SECONDS * 1000)))
        producer.produce(
            topic,
            key=_bytes(record.key),
            value=_bytes(record.value),
            headers=[(key, value.encode()) for key, value in record.headers.items()],
            on_delivery=lambda error, message: delivered.append((error, message)),
            **where,  # type: ignore[arg-type]
        )
        producer.flush(SECONDS + 1)
        error, message = delivered[0] if delivered else (KafkaError(KafkaError._TIMED_OUT), None)
        if error is not None or message is None:
            raise KafkaException(error)
    return Produced(partition=int(message.partition() or 0), offset=int(message.offset() or 0))


class _Reading:
    """Records of some partitions until their ends, or until one request has taken enough."""

    def __init__(
        self, client: KafkaClient, topic: str, starts: dict[int, int], deadline: float, clock: Callable[[], float]
    ) -> None:
        self._client, self._topic, self._starts = client, topic, starts
        self._deadline, self._clock = deadline, clock
        self.scanned, self.complete = 0, False

    def __iter__(self) -> Iterator[KafkaMessage]:
        reader = consumer(self._client, self._topic, self._starts, wait_ms=_WAIT_MS)
        left = set(self._starts)
        try:
            while left and self.scanned < MOST_SCANNED and self._clock() < self._deadline:
                for record in reader.consume(_BATCH, 0.2):
                    error = record.error()
                    if error is None:
                        self.scanned += 1
                        yield record
                    elif error.code() == KafkaError._PARTITION_EOF:
                        left.discard(int(record.partition() or 0))
                    elif not error.retriable():
                        raise KafkaException(error)
            self.complete = not left
        finally:
            reader.close()


def consumer(client: KafkaClient, topic: str, starts: dict[int, int], *, wait_ms: int = 500) -> Consumer:
    """Return a consumer of some partitions from these offsets on; it joins no group and commits nothing.

    The broker waits so long for records that are not there yet.
    """
    made = Consumer(
        client.config(
            group_id=f"penstock-read-{uuid4()}",
            enable_auto_commit=False,
            enable_partition_eof=True,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            fetch_wait_max_ms=wait_ms,
        )
    )
    made.assign([TopicPartition(topic, number, start) for number, start in starts.items()])
    return made


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def wants_newest(query: MessageQuery) -> bool:
    """Return whether a query asks for the end of a topic."""
    return query.start == "end" and query.offset is None and query.time is None


def first_offsets(client: KafkaClient, topic: str, partitions: list[int], query: MessageQuery) -> dict[int, int]:
    """Return where to begin to read each partition."""
    if query.offset is not None or query.time is not None:
        return start_offsets(client, topic, partitions, offset=query.offset, time=query.time)
    first = start_offsets(client, topic, partitions, to="beginning")
    if query.start == "beginning":
        return first
    # Each transaction leaves a marker at an offset of its own, so that half of the newest offsets may be no records.
    searched = max(2 * query.limit, NEWEST_SEARCHED if query.key or query.contains or query.where else 0)
    ends = start_offsets(client, topic, partitions, to="end")
    return {number: max(first[number], ends[number] - searched) for number in partitions}


def is_wanted(record: KafkaMessage, query: MessageQuery | TailQuery) -> bool:
    """Return whether a record has the key and the text of a query."""
    has_key = query.key is None or record.key() == query.key.encode()
    return has_key and (query.contains is None or query.contains.encode() in (_raw(record.value()) or b""))


def message_of(record: KafkaMessage) -> Message:
    """Return a record as the API shows it."""
    kind, ms = record.timestamp()
    headers: list[tuple[str, Any]] = list(record.headers() or [])  # type: ignore[arg-type]
    where = (int(record.partition() or 0), int(record.offset() or 0))
    return shown_message(*where, ms if kind else None, record.key(), record.value(), headers)


def shown_message(
    partition: int, offset: int, ms: int | None, key: Any, value: Any, headers: Iterable[tuple[str, Any]]
) -> Message:
    """Return the parts of a record as the API shows them: `ms` is its timestamp."""
    return Message(
        partition=partition,
        offset=offset,
        timestamp=datetime.fromtimestamp(ms / 1000, UTC) if ms is not None else None,
        headers=[Header(key=name, **_text("value", data)) for name, data in headers],
        json=document_of(value),
        **_text("key", key),
        **_text("value", value),
    )


def _raw(data: Any) -> bytes | None:
    return data.encode() if isinstance(data, str) else data


def _text(name: str, data: Any) -> dict[str, Any]:
    """Return bytes as text if they are UTF-8, else in base64 under another name."""
    raw = _raw(data)
    if raw is None:
        return {name: None}
    try:
        return {name: raw.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(raw).decode()}


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()
