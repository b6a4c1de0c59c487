"""The record formats of `__transaction_state`, as in Kafka (TransactionLogKey and TransactionLogValue, version 0)."""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterable

from penstock.kafka.records import Record
from penstock.log.transactions.state_machine import Producer, State, TopicPartition, Transaction

_VALUE = struct.Struct(">hqhib")
_TIMES = struct.Struct(">qq")


def encode(transaction: Transaction, now: int) -> Record:
    """Encode a transaction; a dead one as a tombstone."""
    key = b"\0\0" + _string(transaction.transactional_id)
    return Record(key=key, value=None if transaction.state is State.DEAD else _value(transaction), timestamp=now)


def decode(record: Record) -> tuple[str, Transaction | None]:
    """Decode the transactional id and its transaction; None for a tombstone."""
    transactional_id, _ = _read_string(record.key or b"", 2)
    if record.value is None:
        return transactional_id, None
    _, producer_id, epoch, timeout, state = _VALUE.unpack_from(record.value)
    partitions, at = _read_partitions(record.value, _VALUE.size)
    updated, started = _TIMES.unpack_from(record.value, at)
    return transactional_id, Transaction(
        transactional_id=transactional_id,
        producer=Producer(producer_id, epoch),
        timeout=timeout,
        state=State(state),
        partitions=frozenset(partitions),
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
        parts += [_string(topic), struct.pack(f">i{len(indexes)}i", len(indexes), *indexes)]
    return b"".join([*parts, _TIMES.pack(transaction.updated, transaction.started)])


def _read_partitions(data: bytes, at: int) -> tuple[list[TopicPartition], int]:
    found: list[TopicPartition] = []
    topics, at = _read_int(data, at)
    for _ in range(topics):
        topic, at = _read_string(data, at)
        count, at = _read_int(data, at)
        found += [(topic, index) for index in struct.unpack_from(f">{count}i", data, at)]
        at += 4 * count
    return found, at


def _read_int(data: bytes, at: int) -> tuple[int, int]:
    return int.from_bytes(data[at : at + 4], signed=True), at + 4


def _string(text: str) -> bytes:
    data = text.encode()
    return len(data).to_bytes(2) + data


def _read_string(data: bytes, at: int) -> tuple[str, int]:
    start = at + 2
    end = start + int.from_bytes(data[at:start])
    return data[start:end].decode(), end
