"""Single records inside a batch: made and opened here for what the broker itself keeps in the log.

Produce and fetch never come here; compaction, the coordinators and the tests do.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import cramjam

from penstock.log.storage.batches import _HEADER, HEADER_SIZE, LENGTH_END, Batch, Bytes, header_at, seal

COMMIT, ABORT = 1, 0
_DECOMPRESS = {
    1: lambda data: gzip.decompress(data),
    2: lambda data: _snappy(data),
    3: lambda data: bytes(cramjam.lz4.decompress(data)),
    4: lambda data: bytes(cramjam.zstd.decompress(data)),
}
_XERIAL = b"\x82SNAPPY\x00"


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
    _HEADER.pack_into(
        *(data, 0, base_offset, len(data) - LENGTH_END, 0, 2, 0, attributes, deltas[-1]),
        *(first, max(record.timestamp for record in items), producer_id, producer_epoch, base_sequence, len(items)),
    )
    seal(data, 0, len(data))
    return data


def build_marker(outcome: int, producer_id: int, producer_epoch: int, timestamp: int) -> bytearray:
    """Encode the control batch that ends a producer's transaction on one partition."""
    marker = Record(key=b"\0\0" + outcome.to_bytes(2), value=b"\0\0" + b"\0\0\0\0", timestamp=timestamp)
    return build_batch([marker], producer_id=producer_id, producer_epoch=producer_epoch, attributes=0x30)


def marker_outcome(data: Bytes, position: int = 0) -> int:
    """Return COMMIT or ABORT of a control batch."""
    key = next(open_batch(data, position)).key
    return int.from_bytes((key or b"\0\0\0\0")[2:4])


def open_batch(data: Bytes, position: int = 0) -> Iterator[Record]:
    """Yield the records of one batch."""
    batch = header_at(data, position)
    body = bytes(memoryview(data)[position + HEADER_SIZE : position + batch.size])
    if batch.compression:
        body = _DECOMPRESS[batch.compression](body)
    yield from _decode(body, batch)


def _decode(body: bytes, batch: Batch) -> Iterator[Record]:
    at = 0
    for _ in range(batch.record_count):
        size, at = _varint(body, at)
        end = at + size
        time_delta, at = _varint(body, at + 1)
        offset_delta, at = _varint(body, at)
        key, at = _field(body, at)
        value, at = _field(body, at)
        yield Record(
            key=key,
            value=value,
            headers=_headers(body, at),
            timestamp=batch.first_timestamp + time_delta,
            offset=batch.base_offset + offset_delta,
        )
        at = end


def _headers(body: bytes, at: int) -> tuple[tuple[str, bytes | None], ...]:
    count, at = _varint(body, at)
    found = []
    for _ in range(count):
        name, at = _field(body, at)
        value, at = _field(body, at)
        found.append(((name or b"").decode(), value))
    return tuple(found)


def _encode(record: Record, offset_delta: int, first_timestamp: int) -> bytes:
    parts = [b"\0", _zigzag(record.timestamp - first_timestamp), _zigzag(offset_delta)]
    parts += [_bytes(record.key), _bytes(record.value), _zigzag(len(record.headers))]
    for name, value in record.headers:
        parts += [_bytes(name.encode()), _bytes(value)]
    body = b"".join(parts)
    return _zigzag(len(body)) + body


def _bytes(value: bytes | None) -> bytes:
    return _zigzag(-1) if value is None else _zigzag(len(value)) + value


def _zigzag(number: int) -> bytes:
    number = (number << 1) ^ (number >> 63)
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    shift = number = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at
        shift += 7


def _field(data: bytes, at: int) -> tuple[bytes | None, int]:
    size, at = _varint(data, at)
    return (None, at) if size < 0 else (data[at : at + size], at + size)


def _snappy(data: bytes) -> bytes:
    # Java clients frame snappy in blocks of their own (xerial); librdkafka sends one bare block.
    if not data.startswith(_XERIAL):
        return bytes(cramjam.snappy.decompress_raw(data))
    blocks, at = [], 16
    while at < len(data):
        size = int.from_bytes(data[at : at + 4])
        blocks.append(bytes(cramjam.snappy.decompress_raw(data[at + 4 : at + 4 + size])))
        at += 4 + size
    return b"".join(blocks)
