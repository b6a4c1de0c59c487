"""How far a partition is known to be on disk: recovery tells by it what a power cut left from what has gone bad.

Records are acknowledged in order, each after an fsync. So where the file of a partition has a hole that no fsync had
passed, nothing behind the hole was acknowledged, although whole batches may stand there: the disk wrote them first. The
position is written without an fsync of its own. After a power cut it may be an older one, never one that is too large.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import NamedTuple

from crc32c import crc32c

_BODY = struct.Struct(">qq")
_CHECKSUM = struct.Struct(">I")


class Synced(NamedTuple):
    """All bytes before this position of a segment, and all segments before it, are on disk."""

    segment: int = 0
    position: int = 0

    def within(self, base: int) -> int:
        """Return how many bytes of the segment with this base are known to be on disk."""
        if base < self.segment:
            return 2**63 - 1
        return self.position if base == self.segment else 0


def synced_path(folder: Path) -> Path:
    """Return where the position is stored."""
    return folder / "synced"


def encode_synced(synced: Synced) -> bytes:
    """Return the bytes of the file: few enough that a disk writes all or none of them."""
    body = _BODY.pack(*synced)
    return body + _CHECKSUM.pack(crc32c(body))


def read_synced(folder: Path) -> Synced | None:
    """Return the position; None if none is stored, because the log does not sync each record."""
    try:
        data = synced_path(folder).read_bytes()
    except FileNotFoundError:
        return None
    body, checksum = data[: _BODY.size], data[_BODY.size :]
    return Synced(*_BODY.unpack(body)) if checksum == _CHECKSUM.pack(crc32c(body)) else Synced()
