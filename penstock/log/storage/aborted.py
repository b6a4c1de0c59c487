"""The index of aborted transactions of a segment: what readers of committed records have to skip.

It is written when a snapshot begins to vouch for the segment; before that recovery reads the markers themselves.
"""

from __future__ import annotations

import struct
from pathlib import Path

from penstock.log.storage.producers import Aborted
from penstock.log.storage.snapshot import write_whole

_ENTRY = struct.Struct(">hqqqq")  # Kafka's own file format: version, producer, first, last, last stable offset


def write_aborted(path: Path, entries: list[Aborted]) -> None:
    """Write the index of a segment, also an empty one: a missing one is not taken for "none were aborted"."""
    # Without entries there is nothing to lose: if the file is not there after a crash, the markers are read again.
    write_whole(path, b"".join(_ENTRY.pack(0, *entry) for entry in entries), sync=bool(entries))


def read_aborted(path: Path) -> list[Aborted]:
    """Return the aborted transactions whose markers are in a segment, as far as an index tells."""
    data = path.read_bytes() if path.exists() else b""
    return [Aborted(*entry[1:]) for entry in _ENTRY.iter_unpack(data[: len(data) // _ENTRY.size * _ENTRY.size])]
