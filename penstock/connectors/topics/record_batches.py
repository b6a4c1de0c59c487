"""Record batches of a fetch response: validated, decompressed, without aborted transactions and control batches.

Only format 2 is supported, which every Kafka since 0.11 writes; older formats that are still on disk raise `OldFormat`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from penstock.kafka.batches import HEADER_SIZE, LENGTH_END, MAGIC, BatchHeader, checksum_matches, header_at
from penstock.kafka.compression import decompress
from penstock.kafka.errors import ProtocolError

_LENGTH = struct.Struct(">qi")
_MAGIC_AT = 16


class OldFormat(Exception):
    """Records of format 0 or 1."""


class Damaged(Exception):
    """A corrupt batch; `next` is the first offset after it."""

    def __init__(self, first: int, next: int, why: str) -> None:
        super().__init__(why)
        self.why, self.first, self.next = why, first, next


class Batch(NamedTuple):
    """One batch: its offsets, the timestamp of its first record, and its decompressed records.

    `append_time` is the timestamp of all records if the broker sets it (LogAppendTime).
    """

    base: int
    next: int
    base_time: int
    append_time: int | None
    number: int
    records: memoryview


class _Frame(NamedTuple):
    base: int
    at: int
    size: int


def next_offset(data: memoryview, first: int, last: int) -> int:
    """Return the offset to fetch next, by the last complete batch in the range; it is not validated yet."""
    found = (_header(data[frame.at :]) for frame in reversed(_frames(data, last)))
    reached = next((header.last_offset + 1 for header in found if header), first)
    # Always advance; a corrupt batch is reported when it is read.
    return reached if reached > first else first + 1


def batches(data: memoryview, first: int, last: int, aborted: Sequence[tuple[int, int]]) -> Iterator[Batch]:
    """Yield the batches with committed records that overlap a range; an incomplete one at the end is left out.

    `aborted` is as the broker sends it: producer ids, each with the first offset of an aborted transaction.
    """
    coming = sorted(aborted, key=lambda one: one[1])
    aborting: set[int] = set()
    reached = 0
    for base, at, size in _frames(data, last) or [_Frame(0, 0, 0)]:
        if base >= last:
            return
        header = _checked(data[at:], size, max(first, reached), reached)
        reached = header.last_offset + 1
        while coming and coming[0][1] < header.last_offset + 1:
            aborting.add(coming.pop(0)[0])
        records = data[at + HEADER_SIZE : at + size]
        if header.is_control:
            if _is_abort(records):
                aborting.discard(header.producer_id)
        elif header.is_transactional and header.producer_id in aborting:
            continue
        elif header.record_count and header.last_offset + 1 > first:
            yield _batch(header, records)


def _frames(data: memoryview, last: int) -> list[_Frame]:
    """Return the complete batches up to the first one after the range."""
    found, at, base = [], 0, -1
    while at + HEADER_SIZE <= len(data) and base < last:
        base, length = _LENGTH.unpack_from(data, at)
        size = max(length + LENGTH_END, HEADER_SIZE)
        if at + size <= len(data):
            found.append(_Frame(base, at, size))
        at += size
    return found


def _header(data: memoryview) -> BatchHeader | None:
    """Return the header if it is plausible."""
    header = header_at(data)
    return header if header.magic == MAGIC and header.last_offset_delta >= 0 and header.base_offset >= 0 else None


def _checked(data: memoryview, size: int, first: int, reached: int) -> BatchHeader:
    """Return a header after validating its batch: format, order and checksum."""
    if len(data) > _MAGIC_AT and data[_MAGIC_AT] in (0, 1):
        message = f"offset {first} is in format {data[_MAGIC_AT]}"
        raise OldFormat(message)
    header = _header(data) if size else None
    if header is None or header.base_offset < reached:
        raise Damaged(first, _next_base(data[size:], first, first + 1), "it is not a record batch")
    if header.size != size or not checksum_matches(data, 0, header):
        raise Damaged(
            header.base_offset,
            _next_base(data[size:], header.base_offset, header.last_offset + 1),
            "its checksum does not match",
        )
    return header


def _next_base(data: memoryview, first: int, otherwise: int) -> int:
    """Return the base offset of the next batch: the header of a corrupt one is not to be trusted."""
    header = _header(data) if len(data) >= HEADER_SIZE else None
    return header.base_offset if header and header.base_offset > first else otherwise


def _batch(header: BatchHeader, records: memoryview) -> Batch:
    append_time = header.max_timestamp if header.is_stamped else None
    body = _decompressed(header, records)
    return Batch(
        header.base_offset, header.last_offset + 1, header.first_timestamp, append_time, header.record_count, body
    )


def _decompressed(header: BatchHeader, records: memoryview) -> memoryview:
    if not header.compression:
        return records
    try:
        return memoryview(decompress(header.compression, records))
    except ProtocolError as error:
        raise Damaged(header.base_offset, header.last_offset + 1, error.message) from error


def _is_abort(records: memoryview) -> bool:
    """Return whether a control batch aborts its transaction.

    Its one record has a byte each for its length, attributes, deltas of time and offset and the key's length. The key
    is a version and a kind, of two bytes each: 0 aborts, 1 commits.
    """
    return bytes(records[7:9]) == b"\0\0"
