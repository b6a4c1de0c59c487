"""What a fetch brings, batch by batch: checked, unpacked, and without what no reader should see.

Only records of format 2 are known here, which every Kafka since 0.11 writes; older ones that are still on disk raise
`OldFormat`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from crc32c import crc32c

from penstock.connectors.records.codecs import Unreadable, unpack

# base offset, length, leader epoch, magic, crc; then what the crc covers: attributes, last offset delta, first and
# largest timestamp, producer id, producer epoch, base sequence, count.
_HEADER = struct.Struct(">qiibIhiqqqhii")
_LENGTH = struct.Struct(">qi")
_BEFORE_LENGTH_ENDS, _MAGIC_AT, _CRC_FROM = 12, 16, 21
_CODEC, _LOG_TIME, _TRANSACTIONAL, _CONTROL = 7, 8, 16, 32


class OldFormat(Exception):
    """Records of format 0 or 1."""


class Damaged(Exception):
    """Bytes that are no batch; `next` is the first offset behind them."""

    def __init__(self, first: int, next: int, why: str) -> None:
        super().__init__(why)
        self.why, self.first, self.next = why, first, next


class Batch(NamedTuple):
    """One batch: where its records stand, when the first was made, and its records unpacked.

    `log_time` is the time of all of them where the broker sets it.
    """

    base: int
    next: int
    base_time: int
    log_time: int | None
    number: int
    records: memoryview


class _Frame(NamedTuple):
    base: int
    at: int
    size: int


class _Header(NamedTuple):
    base: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_delta: int
    base_time: int
    max_time: int
    producer: int
    producer_epoch: int
    sequence: int
    number: int

    @property
    def next(self) -> int:
        return self.base + self.last_delta + 1


def next_offset(data: memoryview, first: int, last: int) -> int:
    """Return where to fetch next, by the last batch that is whole and in the range; it is not checked yet."""
    found = (_header(data[frame.at :]) for frame in reversed(_frames(data, last)))
    reached = next((header.next for header in found if header), first)
    # Nobody may be sent back; what is no batch is told where it is read.
    return reached if reached > first else first + 1


def batches(data: memoryview, first: int, last: int, aborted: Sequence[tuple[int, int]]) -> Iterator[Batch]:
    """Yield the batches with committed records that overlap a range; one that is cut off at the end is left out.

    `aborted` is as the broker sends it: producers, and the offset at which an aborted transaction of theirs begins.
    """
    coming = sorted(aborted, key=lambda one: one[1])
    doomed: set[int] = set()
    reached = 0
    for base, at, size in _frames(data, last) or [_Frame(0, 0, 0)]:
        if base >= last:
            return
        header = _checked(data[at:], size, max(first, reached), reached)
        reached = header.next
        while coming and coming[0][1] < header.next:
            doomed.add(coming.pop(0)[0])
        records = data[at + _HEADER.size : at + size]
        if header.attributes & _CONTROL:
            if _is_abort(records):
                doomed.discard(header.producer)
        elif header.attributes & _TRANSACTIONAL and header.producer in doomed:
            continue
        elif header.number and header.next > first:
            yield _batch(header, records)


def _frames(data: memoryview, last: int) -> list[_Frame]:
    """Return the whole batches up to the first one behind a range."""
    found, at, base = [], 0, -1
    while at + _HEADER.size <= len(data) and base < last:
        base, length = _LENGTH.unpack_from(data, at)
        size = max(length + _BEFORE_LENGTH_ENDS, _HEADER.size)
        if at + size <= len(data):
            found.append(_Frame(base, at, size))
        at += size
    return found


def _header(data: memoryview) -> _Header | None:
    """Return the header if it can be one at all."""
    header = _Header(*_HEADER.unpack_from(data))
    return header if header.magic == 2 and header.last_delta >= 0 and header.base >= 0 else None


def _checked(data: memoryview, size: int, first: int, reached: int) -> _Header:
    """Return a header and know that its batch is as it was sent, and behind the one before."""
    if len(data) > _MAGIC_AT and data[_MAGIC_AT] in (0, 1):
        message = f"offset {first} is in format {data[_MAGIC_AT]}"
        raise OldFormat(message)
    header = _header(data) if size else None
    if header is None or header.base < reached:
        raise Damaged(first, _behind(data[size:], first, first + 1), "it is no batch of records")
    if crc32c(data[_CRC_FROM:size]) != header.crc:
        raise Damaged(header.base, _behind(data[size:], header.base, header.next), "its checksum does not fit")
    return header


def _behind(data: memoryview, first: int, otherwise: int) -> int:
    """Return where the next batch begins: of one that is damaged, its own word is the last to be believed."""
    header = _header(data) if len(data) >= _HEADER.size else None
    return header.base if header and header.base > first else otherwise


def _batch(header: _Header, records: memoryview) -> Batch:
    log_time = header.max_time if header.attributes & _LOG_TIME else None
    unpacked = _unpacked(header, records)
    return Batch(header.base, header.next, header.base_time, log_time, header.number, unpacked)


def _unpacked(header: _Header, records: memoryview) -> memoryview:
    try:
        return memoryview(unpack(header.attributes & _CODEC, records))
    except Unreadable as error:
        raise Damaged(header.base, header.next, str(error)) from error


def _is_abort(records: memoryview) -> bool:
    """Say whether a control batch ends a transaction by undoing it.

    Its one record has a byte each for its length, attributes, deltas of time and offset and the key's length. The key
    is a version and a kind, of two bytes each: 0 aborts, 1 commits.
    """
    return bytes(records[7:9]) == b"\0\0"
