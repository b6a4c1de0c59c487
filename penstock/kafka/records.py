"""Encodes and decodes the single records of a batch.

Compaction and the coordinators use it; produce and fetch never decode records.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from penstock.kafka.batches import HEADER_SIZE, MAGIC, BatchHeader, Bytes, header_at, write_header
from penstock.kafka.compression import decompress
from penstock.kafka.errors import CORRUPT_MESSAGE, ProtocolError
from penstock.kafka.wire import zigzag

COMMIT, ABORT = 1, 0


@dataclass(frozen=True, slots=True)
class Record:
    """One record; `offset` and `timestamp` are absolute."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp: int = 0
    offset: int = -1


def build_batch(
    records: Iterable[Record],
    *,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    attributes: int = 0,
    base_offset: int = 0,
) -> bytearray:
    """Encode records as one uncompressed batch; their offsets are 0, 1, ... unless they have some."""
    items = list(records)
    deltas = [record.offset - base_offset if record.offset >= 0 else at for at, record in enumerate(items)]
    first = items[0].timestamp
    body = b"".join(_encode(record, delta, first) for record, delta in zip(items, deltas, strict=True))
    data = bytearray(HEADER_SIZE) + body
    last = max(record.timestamp for record in items)
    producer = (producer_id, producer_epoch, base_sequence)
    write_header(
        data, BatchHeader(base_offset, 0, 0, MAGIC, 0, attributes, deltas[-1], first, last, *producer, len(items))
    )
    return data


def build_control_batch(outcome: int, producer_id: int, producer_epoch: int, timestamp: int) -> bytearray:
    """Encode the control batch that ends a producer's transaction on one partition."""
    marker = Record(key=b"\0\0" + outcome.to_bytes(2), value=b"\0\0" + b"\0\0\0\0", timestamp=timestamp)
    return build_batch([marker], producer_id=producer_id, producer_epoch=producer_epoch, attributes=0x30)


def control_outcome(data: Bytes, position: int = 0) -> int:
    """Return COMMIT or ABORT of a control batch."""
    key = next(decode_batch(data, position)).key
    return int.from_bytes((key or b"\0\0\0\0")[2:4])


def decode_batch(data: Bytes, position: int = 0) -> Iterator[Record]:
    """Yield the records of one batch; raises ProtocolError if it contains anything else."""
    batch = header_at(data, position)
    body = decompress_records(data, position)
    for time_delta, offset_delta, start, _ in raw_records(body, batch.record_count):
        with _readable():
            key, at = _field(body, start)
            value, at = _field(body, at)
            headers = _headers(body, at)
        timestamp = batch.max_timestamp if batch.is_stamped else batch.first_timestamp + time_delta
        yield Record(key, value, headers, timestamp, batch.base_offset + offset_delta)


def decompress_records(data: Bytes, position: int = 0) -> bytes:
    """Return the decompressed records of a batch, as bytes."""
    batch = header_at(data, position)
    return decompress(batch.compression, memoryview(data)[position + HEADER_SIZE : position + batch.size])


def raw_records(body: Bytes, count: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield for each record its time and offset, relative to the batch, and the positions of its key and its end."""
    at = 0
    with _readable():
        for _ in range(count):
            size, at = _varint(body, at)
            end = at + size
            if size < 1 or end > len(body):
                raise IndexError
            time_delta, at = _varint(body, at + 1)
            offset_delta, at = _varint(body, at)
            if at >= end:
                raise IndexError
            yield time_delta, offset_delta, at, end
            at = end


def key_and_value(body: bytes, start: int) -> tuple[bytes | None, bool]:
    """Return the key of a record, and whether it has a value."""
    with _readable():
        key, at = _field(body, start)
        return key, _varint(body, at)[0] >= 0


@contextmanager
def _readable() -> Iterator[None]:
    # The checksum only proves that the sender wrote these bytes, not that they are records.
    try:
        yield
    except IndexError:
        raise ProtocolError(CORRUPT_MESSAGE, "a batch contains fewer records than its header says") from None


def _headers(body: bytes, at: int) -> tuple[tuple[str, bytes | None], ...]:
    count, at = _varint(body, at)
    found = []
    for _ in range(count):
        name, at = _field(body, at)
        value, at = _field(body, at)
        found.append(((name or b"").decode(errors="replace"), value))
    return tuple(found)


def _encode(record: Record, offset_delta: int, first_timestamp: int) -> bytes:
    parts = [b"\0", zigzag(record.timestamp - first_timestamp), zigzag(offset_delta)]
    parts += [_bytes(record.key), _bytes(record.value), zigzag(len(record.headers))]
    for name, value in record.headers:
        parts += [_bytes(name.encode()), _bytes(value)]
    body = b"".join(parts)
    return zigzag(len(body)) + body


def _bytes(value: bytes | None) -> bytes:
    return zigzag(-1) if value is None else zigzag(len(value)) + value


def _varint(data: Bytes, at: int) -> tuple[int, int]:
    number = 0
    for shift in range(0, 70, 7):
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at
    raise IndexError


def _field(data: bytes, at: int) -> tuple[bytes | None, int]:
    size, at = _varint(data, at)
    return (None, at) if size < 0 else (data[at : at + size], at + size)
