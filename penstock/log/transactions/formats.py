"""The record formats of `__transaction_state`, as in Kafka (TransactionLogKey and TransactionLogValue, version 0)."""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterable

from penstock.kafka.records import Record
from penstock.kafka.wire import WireReader, text
from penstock.log.transactions.state_machine import Producer, State, TopicPartition, Transaction

_VALUE = struct.Struct(">hqhib")
_TIMES = struct.Struct(">qq")


def encode(transaction: Transaction, now: int) -> Record:
    """Encode a transaction; a dead one as a tombstone."""
    key = b"\0\0" + text(transaction.transactional_id)
    return Record(key=key, value=None if transaction.state is State.DEAD else _value(transaction), timestamp=now)


def decode(record: Record) -> tuple[str, Transaction | None]:
    """Decode the transactional id and its transaction; None for a tombstone."""
    transactional_id = WireReader(memoryview(record.key or b""), at=2).text() or ""
    if record.value is None:
        return transactional_id, None
    _, producer_id, epoch, timeout, state = _VALUE.unpack_from(record.value)
    reader = WireReader(memoryview(record.value), at=_VALUE.size)
    topics = reader.each(lambda one: (one.text() or "", one.each(WireReader.int32)))
    updated, started = reader.int64(), reader.int64()
    return transactional_id, Transaction(
        transactional_id=transactional_id,
        producer=Producer(producer_id, epoch),
        timeout=timeout,
        state=State(state),
        partitions=frozenset((topic, index) for topic, indexes in topics for index in indexes),
        started=started,
        updated=updated,
    )


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Group partitions by their topic, both in order."""
    found: defaultdict[str, list[int]] = defaultdict(list)
    for topic, partition in sorted(partitions):
        found[topic].append(partition)
    return dict(found)


def _value(transaction: Transaction) -> bytes:
    head = _VALUE.pack(0, *transaction.producer, transaction.timeout, transaction.state)
    topics = by_topic(transaction.partitions)
    # Kafka writes no list at all, rather than an empty one, before the first transaction.
    parts = [head, struct.pack(">i", -1 if transaction.state is State.EMPTY else len(topics))]
    for topic, indexes in topics.items():
        parts += [text(topic), struct.pack(f">i{len(indexes)}i", len(indexes), *indexes)]
    return b"".join([*parts, _TIMES.pack(transaction.updated, transaction.started)])
