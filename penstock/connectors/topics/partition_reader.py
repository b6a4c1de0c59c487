"""Reads a range of offsets of one partition from its leader; the next fetch is sent before a response is decoded."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException

from penstock.connectors.topics.broker_client import FETCH, Broker, borrowed, raise_for_code
from penstock.connectors.topics.client_errors import SECONDS, translated
from penstock.connectors.topics.connection import Connection
from penstock.connectors.topics.leaders import FETCH_VERSION, cached_topic, invalidate, leader
from penstock.connectors.topics.offsets import OutOfRange
from penstock.connectors.topics.record_arrays import decoded, inside
from penstock.connectors.topics.record_batches import Batch, Damaged, batches, next_offset
from penstock.errors import SourceFailed
from penstock.kafka.wire import WireReader, text

# Bytes per fetch request, and bytes decoded at once. A single batch may be larger than both.
MOST_FETCHED = 8 << 20
_LEAST_FETCHED = 64 << 10
_DECODED = 2 << 20
_GUESSED_RECORD = 256
_WAIT_MS = 500
_READ_COMMITTED = 1
_GONE = {KafkaError.OFFSET_OUT_OF_RANGE, KafkaError.UNKNOWN_TOPIC_OR_PART}
_PASSING = {
    KafkaError._TRANSPORT,
    KafkaError._TIMED_OUT,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.REPLICA_NOT_AVAILABLE,
    KafkaError.BROKER_NOT_AVAILABLE,
    KafkaError.OFFSET_NOT_AVAILABLE,
}
_PAUSE_SECONDS = 0.05


class FetchRange(NamedTuple):
    """A range of offsets of one partition that is still to be read."""

    topic: str
    partition: int
    first: int
    last: int


class _Fetched(NamedTuple):
    code: int
    end: int
    aborted: list[tuple[int, int]]
    records: memoryview


def read(connection: Connection, wanted: FetchRange, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the records of a range; raises OutOfRange if offsets are missing, Damaged at a corrupt batch."""
    deadline = time.monotonic() + SECONDS
    while wanted.first < wanted.last:
        try:
            for records, reached in _from_leader(connection, wanted, columns):
                wanted = wanted._replace(first=reached)
                if records is not None:
                    yield records
                deadline = time.monotonic() + SECONDS
            _check_timeout(deadline, wanted, connection)
        except KafkaException as error:
            invalidate(connection, wanted.topic)
            _raise_if_permanent(error, deadline, wanted, connection)
            time.sleep(_PAUSE_SECONDS)


def _check_timeout(deadline: float, wanted: FetchRange, connection: Connection) -> None:
    if wanted.first < wanted.last and time.monotonic() > deadline:
        where = f"{wanted.topic}/{wanted.partition}@{wanted.first}"
        message = f"{where}: {connection.servers} sent nothing for {SECONDS:.0f} s"
        raise SourceFailed(message, hint="check that the broker is running, then run the job again", transient=True)


def _raise_if_permanent(error: KafkaException, deadline: float, wanted: FetchRange, connection: Connection) -> None:
    """Raise an error unless a retry can succeed."""
    code = error.args[0].code()
    if code in _GONE:
        raise OutOfRange from error
    if code not in _PASSING or time.monotonic() > deadline:
        raise translated(error, wanted.topic, connection) from error


def _from_leader(
    connection: Connection, wanted: FetchRange, columns: Sequence[str]
) -> Iterator[tuple[pa.RecordBatch | None, int]]:
    """Yield records and the offset after them; end where the leader has no more for now."""
    with borrowed(connection, leader(cached_topic(connection, wanted.topic), wanted.partition)) as broker:
        _send(broker, wanted, (wanted.last - wanted.first) * _GUESSED_RECORD)
        while wanted.first < wanted.last:
            fetched = _received(broker, wanted)
            if not fetched.records:
                return
            rest = wanted._replace(first=next_offset(fetched.records, wanted.first, wanted.last))
            if rest.first < rest.last:
                # A little more than needed if records stay as large as they are.
                record = len(fetched.records) / (rest.first - wanted.first)
                _send(broker, rest, int(1.1 * record * (rest.last - rest.first)))
            yield from _decoded(fetched, wanted, columns)
            yield None, rest.first
            wanted = rest


def _decoded(fetched: _Fetched, wanted: FetchRange, columns: Sequence[str]) -> Iterator[tuple[pa.RecordBatch, int]]:
    for group in _groups(batches(fetched.records, wanted.first, wanted.last, fetched.aborted)):
        for records in _each(group, wanted.partition, columns):
            found = inside(records, wanted.first, wanted.last)
            if found.num_rows:
                yield found, found.column("offset")[-1].as_py() + 1


def _groups(found: Iterator[Batch]) -> Iterator[list[Batch]]:
    """Yield groups of batches that are decoded together; those before a corrupt one are not lost with it."""
    group: list[Batch] = []
    size = 0
    try:
        for batch in found:
            group.append(batch)
            size += len(batch.records)
            if size >= _DECODED:
                yield group
                group, size = [], 0
    except Damaged:
        if group:
            yield group
        raise
    if group:
        yield group


def _each(group: list[Batch], partition: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the records of a group at once, or if one batch of it is corrupt, of each batch before that."""
    try:
        yield decoded(group, partition, columns)
    except Damaged:
        if len(group) == 1:
            raise
        for batch in group:
            yield decoded([batch], partition, columns)


def _send(broker: Broker, wanted: FetchRange, size: int) -> None:
    size = min(MOST_FETCHED, max(_LEAST_FETCHED, size))
    head = struct.pack(">iiiibiii", -1, _WAIT_MS, 1, size, _READ_COMMITTED, 0, -1, 1) + text(wanted.topic)
    part = struct.pack(">iiiqqi", 1, wanted.partition, -1, wanted.first, -1, size)
    broker.send(FETCH, FETCH_VERSION, head + part + struct.pack(">i", 0))


def _received(broker: Broker, wanted: FetchRange) -> _Fetched:
    answer = broker.receive()
    answer.int32()
    raise_for_code(answer.int16())
    answer.int32()
    ((found,),) = answer.each(lambda one: (one.text(), one.each(_read_partition))[1])
    raise_for_code(found.code)
    if not found.records and 0 <= found.end < wanted.last:
        # The partition was longer when the epoch was planned.
        raise OutOfRange
    return found


def _read_partition(answer: WireReader) -> _Fetched:
    answer.int32()
    code, _, end, _ = answer.int16(), answer.int64(), answer.int64(), answer.int64()
    aborted = answer.each(lambda one: (one.int64(), one.int64()))
    return _Fetched(code, end, aborted, answer.blob() or memoryview(b""))
