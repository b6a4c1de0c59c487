"""A range of offsets of one partition, fetched from its leader while what came before is decoded."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException

from penstock.connectors.connection import Connection
from penstock.connectors.kafka import SECONDS, failed
from penstock.connectors.offsets import OutOfRange
from penstock.connectors.records.batches import Batch, Damaged, batches, next_offset
from penstock.connectors.records.broker import FETCH, Broker, lent, refuse
from penstock.connectors.records.decode import decoded, inside
from penstock.connectors.records.frames import Reader, text
from penstock.connectors.records.leaders import FETCH_VERSION, forget, known, leader
from penstock.errors import SourceFailed

# Bytes: what one request may bring, and of what rows are made at once. A batch alone may be larger than both.
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


class Place(NamedTuple):
    """Offsets of one partition that are still to be read."""

    topic: str
    partition: int
    first: int
    last: int


class _Brought(NamedTuple):
    code: int
    end: int
    aborted: list[tuple[int, int]]
    records: memoryview


def read(connection: Connection, place: Place, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield what a partition holds in a range; raise OutOfRange if it does not have it, Damaged where it is broken."""
    deadline = time.monotonic() + SECONDS
    while place.first < place.last:
        try:
            for records, reached in _from_leader(connection, place, columns):
                place = place._replace(first=reached)
                if records is not None:
                    yield records
                deadline = time.monotonic() + SECONDS
            _refuse_silence(deadline, place, connection)
        except KafkaException as error:
            forget(connection, place.topic)
            _refuse_lasting(error, deadline, place, connection)
            time.sleep(_PAUSE_SECONDS)


def _refuse_silence(deadline: float, place: Place, connection: Connection) -> None:
    if place.first < place.last and time.monotonic() > deadline:
        where = f"{place.topic}/{place.partition}@{place.first}"
        message = f"{where}: {connection.servers} sent nothing for {SECONDS:.0f} s"
        raise SourceFailed(message, hint="see whether the log is alive, and run the job again", transient=True)


def _refuse_lasting(error: KafkaException, deadline: float, place: Place, connection: Connection) -> None:
    """Let an error pass that another try may mend."""
    code = error.args[0].code()
    if code in _GONE:
        raise OutOfRange from error
    if code not in _PASSING or time.monotonic() > deadline:
        raise failed(error, place.topic, connection) from error


def _from_leader(
    connection: Connection, place: Place, columns: Sequence[str]
) -> Iterator[tuple[pa.RecordBatch | None, int]]:
    """Yield records, and the offset that is reached with them; end where the leader has no more for now."""
    with lent(connection, leader(known(connection, place.topic), place.partition)) as broker:
        _send(broker, place, (place.last - place.first) * _GUESSED_RECORD)
        while place.first < place.last:
            brought = _received(broker, place)
            if not brought.records:
                return
            rest = place._replace(first=next_offset(brought.records, place.first, place.last))
            if rest.first < rest.last:
                # A little more than what it takes if records stay as large as they are.
                record = len(brought.records) / (rest.first - place.first)
                _send(broker, rest, int(1.1 * record * (rest.last - rest.first)))
            yield from _decoded(brought, place, columns)
            yield None, rest.first
            place = rest


def _decoded(brought: _Brought, place: Place, columns: Sequence[str]) -> Iterator[tuple[pa.RecordBatch, int]]:
    for group in _groups(batches(brought.records, place.first, place.last, brought.aborted)):
        for records in _each(group, place.partition, columns):
            found = inside(records, place.first, place.last)
            if found.num_rows:
                yield found, found.column("offset")[-1].as_py() + 1


def _groups(found: Iterator[Batch]) -> Iterator[list[Batch]]:
    """Yield batches that are decoded together; those before a damaged one are not lost with it."""
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
    """Yield the records of a group at once, or if one batch of it is damaged, of each before that."""
    try:
        yield decoded(group, partition, columns)
    except Damaged:
        if len(group) == 1:
            raise
        for batch in group:
            yield decoded([batch], partition, columns)


def _send(broker: Broker, place: Place, size: int) -> None:
    size = min(MOST_FETCHED, max(_LEAST_FETCHED, size))
    head = struct.pack(">iiiibiii", -1, _WAIT_MS, 1, size, _READ_COMMITTED, 0, -1, 1) + text(place.topic)
    part = struct.pack(">iiiqqi", 1, place.partition, -1, place.first, -1, size)
    broker.send(FETCH, FETCH_VERSION, head + part + struct.pack(">i", 0))


def _received(broker: Broker, place: Place) -> _Brought:
    answer = broker.receive()
    answer.int32()
    refuse(answer.int16())
    answer.int32()
    ((found,),) = answer.each(lambda one: (one.text(), one.each(_read_partition))[1])
    refuse(found.code)
    if not found.records and 0 <= found.end < place.last:
        # It had more when the epoch was planned.
        raise OutOfRange
    return found


def _read_partition(answer: Reader) -> _Brought:
    answer.int32()
    code, _, end, _ = answer.int16(), answer.int64(), answer.int64(), answer.int64()
    aborted = answer.each(lambda one: (one.int64(), one.int64()))
    return _Brought(code, end, aborted, answer.blob())
