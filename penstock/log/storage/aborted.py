"""The index of aborted transactions of a segment: what readers of committed records have to skip."""

from __future__ import annotations

import struct
from pathlib import Path

from penstock.log.storage.producers import Aborted

_ENTRY = struct.Struct(">hqqqq")  # Kafka's own file format: version, producer, first, last, last stable offset


def add_aborted(path: Path, entry: Aborted) -> None:
    """Append one transaction to the index file."""
    with open(path, "ab") as file:
        file.write(_ENTRY.pack(0, *entry))


def write_aborted(path: Path, entries: list[Aborted]) -> None:
    """Write the index of a segment anew."""
    if entries or path.exists():
        path.write_bytes(b"".join(_ENTRY.pack(0, *entry) for entry in entries))


def read_aborted(path: Path) -> list[Aborted]:
    """Return the aborted transactions whose markers are in a segment."""
    data = path.read_bytes() if path.exists() else b""
    return [Aborted(*entry[1:]) for entry in _ENTRY.iter_unpack(data[: len(data) // _ENTRY.size * _ENTRY.size])]
