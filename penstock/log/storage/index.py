"""Sparse indexes of a segment, in Kafka's own file format: where an offset is, and which offset a time has."""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left, bisect_right
from itertools import pairwise
from pathlib import Path

INTERVAL = 4096  # bytes of log between two entries
_OFFSET = struct.Struct(">II")
_TIME = struct.Struct(">qI")


class OffsetIndex:
    """Batch starts: offsets relative to the segment's base, and positions. Kept in memory while in use."""

    __slots__ = ("_offsets", "_positions")

    def __init__(self, data: bytes = b"") -> None:
        numbers = array("I", data[: len(data) // 8 * 8])
        numbers.byteswap()
        self._offsets, self._positions = numbers[::2], numbers[1::2]

    def __len__(self) -> int:
        return len(self._offsets)

    def add(self, offset: int, position: int) -> bytes:
        """Remember where a batch begins; return the entry's bytes for the file."""
        self._offsets.append(offset)
        self._positions.append(position)
        return _OFFSET.pack(offset, position)

    def position_before(self, offset: int) -> int:
        """Return where the last known batch at or before an offset begins."""
        at = bisect_right(self._offsets, offset)
        return self._positions[at - 1] if at else 0

    def boundary_before(self, position: int) -> int:
        """Return the last known start of a batch at or before a position."""
        at = bisect_right(self._positions, position)
        return self._positions[at - 1] if at else 0

    def boundaries_after(self, position: int) -> list[int]:
        """Return the known starts of batches behind a position."""
        return list(self._positions[bisect_right(self._positions, position) :])

    def cut(self, position: int) -> None:
        """Forget the batches that begin at or behind a position."""
        at = bisect_left(self._positions, position)
        del self._offsets[at:], self._positions[at:]

    def fits(self, size: int) -> bool:
        """Say whether this can be the index of a segment so long: entries grow and stay inside."""
        rising = all(a < b for numbers in (self._offsets, self._positions) for a, b in pairwise(numbers))
        return rising and (not self._positions or self._positions[-1] < size)

    def encoded(self) -> bytes:
        """Return the whole file."""
        return b"".join(map(_OFFSET.pack, self._offsets, self._positions))


def time_entry(timestamp: int, offset: int) -> bytes:
    """Return one entry of a time index: no record before this relative offset is younger than the timestamp."""
    return _TIME.pack(timestamp, offset)


def time_entries(path: Path) -> list[tuple[int, int]]:
    """Return the (timestamp, relative offset) pairs of a time index; none if it is missing."""
    data = path.read_bytes() if path.exists() else b""
    return list(_TIME.iter_unpack(data[: len(data) // _TIME.size * _TIME.size]))
