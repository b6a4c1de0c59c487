"""Record batches, format v2: their headers and how a sequence of them is validated. Records are not decoded here."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from crc32c import crc32c

from penstock.kafka.errors import CORRUPT_MESSAGE, INVALID_RECORD, MESSAGE_TOO_LARGE, UNSUPPORTED_FORMAT, ProtocolError

Bytes = bytes | bytearray | memoryview

_HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_SIZE = _HEADER.size
SHORTEST = HEADER_SIZE
LENGTH_END = 12  # base offset and length, which the length does not count
_CRC_START = 21
MAGIC = 2
HAS_HORIZON = 0x40
_COMPRESSION, _LOG_APPEND_TIME, _TRANSACTIONAL, _CONTROL = 0x07, 0x08, 0x10, 0x20


class BatchHeader(NamedTuple):
    """The header of one batch; the fields in the order of the wire."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    first_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return self.length + LENGTH_END

    @property
    def last_offset(self) -> int:
        """Offset of its last record, whether compaction left that record or not."""
        return self.base_offset + self.last_offset_delta

    @property
    def last_sequence(self) -> int:
        """Sequence of its last record; sequences start again at 0 after the largest 32-bit integer."""
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF

    @property
    def compression(self) -> int:
        """Number of the codec; 0 is none."""
        return self.attributes & _COMPRESSION

    @property
    def is_transactional(self) -> bool:
        """Whether it belongs to a transaction."""
        return bool(self.attributes & _TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        """Whether it is a control batch, which ends a transaction."""
        return bool(self.attributes & _CONTROL)

    @property
    def is_stamped(self) -> bool:
        """Whether its records have the time of their arrival (LogAppendTime), which is `max_timestamp`."""
        return bool(self.attributes & _LOG_APPEND_TIME)

    @property
    def horizon(self) -> int | None:
        """When compaction may drop its tombstones; it is stored in the field of the first timestamp."""
        return self.first_timestamp if self.attributes & HAS_HORIZON else None


def header_at(data: Bytes, position: int = 0) -> BatchHeader:
    """Return the header at a position; the caller knows that it is complete."""
    return BatchHeader._make(_HEADER.unpack_from(data, position))


def headers(data: Bytes) -> Iterator[tuple[int, BatchHeader]]:
    """Yield position and header of each complete batch, not validated."""
    position, end = 0, len(data)
    while position + HEADER_SIZE <= end:
        batch = header_at(data, position)
        if batch.size < SHORTEST or position + batch.size > end:
            return
        yield position, batch
        position += batch.size


def checksum_matches(data: Bytes, position: int, batch: BatchHeader) -> bool:
    """Return whether the checksum of a batch matches its bytes."""
    return batch.crc == crc32c(memoryview(data)[position + _CRC_START : position + batch.size])


def check_batches(data: memoryview, max_bytes: int) -> list[tuple[int, BatchHeader]]:
    """Return the batches that a client sent; if one is invalid, refuse them all."""
    found = list(headers(data))
    if not found or found[-1][0] + found[-1][1].size != len(data):
        raise ProtocolError(CORRUPT_MESSAGE, "the records end in the middle of a batch")
    for position, batch in found:
        _check_batch(data, position, batch, max_bytes)
    return found


def _check_batch(data: memoryview, position: int, batch: BatchHeader, max_bytes: int) -> None:
    if batch.magic != MAGIC:
        raise ProtocolError(UNSUPPORTED_FORMAT, f"message format {batch.magic}; only 2 is supported")
    if batch.size > max_bytes:
        raise ProtocolError(MESSAGE_TOO_LARGE, f"a batch of {batch.size} bytes; max.message.bytes is {max_bytes}")
    if not checksum_matches(data, position, batch):
        raise ProtocolError(CORRUPT_MESSAGE, "the checksum of a batch does not match")
    # Offsets are given out by this count, so a wrong count would let two records share one or leave a gap.
    if batch.record_count != batch.last_offset_delta + 1 or batch.record_count < 1:
        raise ProtocolError(
            INVALID_RECORD, f"a batch of {batch.record_count} records ends at {batch.last_offset_delta}"
        )
    if batch.is_control:
        raise ProtocolError(INVALID_RECORD, "clients cannot write control batches")


def assign_offset(data: bytearray | memoryview, position: int, offset: int, leader_epoch: int) -> None:
    """Write the base offset and leader epoch of a batch; the checksum does not cover these two fields."""
    struct.pack_into(">q", data, position, offset)
    struct.pack_into(">i", data, position + LENGTH_END, leader_epoch)


def set_append_time(data: bytearray | memoryview, position: int, batch: BatchHeader, now: int) -> BatchHeader:
    """Replace a batch's timestamps with the time of its arrival (message.timestamp.type=LogAppendTime)."""
    struct.pack_into(">h", data, position + _CRC_START, batch.attributes | _LOG_APPEND_TIME)
    struct.pack_into(">q", data, position + 35, now)
    write_checksum(data, position, batch.size)
    return header_at(data, position)


def write_header(data: bytearray, batch: BatchHeader) -> None:
    """Write the header of a batch that was built or changed here, with its length and checksum."""
    _HEADER.pack_into(data, 0, *batch._replace(length=len(data) - LENGTH_END))
    write_checksum(data, 0, len(data))


def write_checksum(data: bytearray | memoryview, position: int, size: int) -> None:
    """Write the checksum of a batch that was built or changed here."""
    crc = crc32c(memoryview(data)[position + _CRC_START : position + size])
    struct.pack_into(">I", data, position + 17, crc)
