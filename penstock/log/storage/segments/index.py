"""Sparse offset and time indexes of a segment, in Kafka's file format."""

from __future__ import annotations

import os
import struct
from array import array
from bisect import bisect_right
from operator import le, lt
from pathlib import Path
from typing import NamedTuple

INTERVAL = 4096  # bytes of log between two entries
_OFFSET = struct.Struct(">II")
_TIME = struct.Struct(">qI")
TIME_SIZE = _TIME.size


class Entry(NamedTuple):
    """Where a batch starts; its offset is relative to the segment's base offset."""

    offset: int
    position: int


class OffsetIndex:
    """Batch starts: offsets relative to the base offset, and positions. In memory while in use."""

    __slots__ = ("_offsets", "_positions")

    def __init__(self, data: bytes = b"") -> None:
        numbers = array("I", data[: len(data) // 8 * 8])
        numbers.byteswap()
        self._offsets, self._positions = numbers[::2], numbers[1::2]

    def __len__(self) -> int:
        return len(self._offsets)

    @staticmethod
    def entry(offset: int, position: int) -> bytes:
        """Return the bytes of one entry."""
        return _OFFSET.pack(offset, position)

    def add(self, offset: int, position: int) -> None:
        """Add the start of a batch."""
        self._offsets.append(offset)
        self._positions.append(position)

    def before(self, offset: int) -> Entry:
        """Return the last indexed batch at or before an offset."""
        return self._entry(bisect_right(self._offsets, offset) - 1)

    def before_position(self, position: int) -> Entry:
        """Return the last indexed batch that starts at or before a position."""
        return self._entry(bisect_right(self._positions, position) - 1)

    def last(self) -> Entry:
        """Return the last indexed batch."""
        return self._entry(len(self) - 1)

    def _entry(self, at: int) -> Entry:
        return Entry(self._offsets[at], self._positions[at]) if at >= 0 else Entry(0, 0)

    def fits(self, size: int) -> bool:
        """Return whether this can be the index of a segment of this size: entries ascend and lie within it."""
        rising = all(all(map(lt, numbers, numbers[1:])) for numbers in (self._offsets, self._positions))
        return rising and (not self._positions or self._positions[-1] < size)

    def encoded(self) -> bytes:
        """Return the content of the index file."""
        return b"".join(map(_OFFSET.pack, self._offsets, self._positions))


def time_entry(timestamp: int, offset: int) -> bytes:
    """Encode a time index entry: no record before this relative offset is newer than the timestamp."""
    return _TIME.pack(timestamp, offset)


def time_entries(path: Path) -> list[tuple[int, int]] | None:
    """Return the (timestamp, relative offset) pairs of a time index; None if it is missing or invalid."""
    data = path.read_bytes() if path.exists() else b"?"
    if len(data) % TIME_SIZE:
        return None
    entries = list(_TIME.iter_unpack(data))
    rising = all(all(map(le, numbers, numbers[1:])) for numbers in zip(*entries, strict=True))
    return entries if rising else None


def last_time(path: Path) -> tuple[int, int] | None:
    """Return the last entry of a time index, if there is one."""
    if not path.exists():
        return None
    with open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        if not size or size % TIME_SIZE:
            return None
        file.seek(size - TIME_SIZE)
        timestamp, offset = _TIME.unpack(file.read(TIME_SIZE))
        return timestamp, offset
