"""State store files of RocksDB, read without Spark: snapshots and changelogs, as Spark writes them on a local disk.

A snapshot is a list of table files (format 2 to 5 of RocksDB's block-based tables). These are blocks of entries, and an
index of blocks, whose position is in the footer. An entry's key shares a prefix with the key before it; it ends with a
number that tells which of several values of a key is newest. Keys and values begin with a byte for their encoding.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

import cramjam

from penstock.spark.checkpoints.history import History
from penstock.spark.checkpoints.spark_files import damage_in, decompress
from penstock.spark.checkpoints.state.store_files import parse_changes

_MAGIC = bytes.fromhex("f7cff485b741e288")
_FOOTER = 53
_FORMATS = range(2, 6)
# From this format on the index has no lengths of its values.
_DELTAS = 4
_PLAIN, _LZ4 = 0, 4
_DELETED, _VALUE = 0, 1


class Entry(NamedTuple):
    """An entry of a table: the newest one of a key has the highest number; the value is None where it was deleted."""

    key: bytes
    number: int
    value: bytes | None


def rocksdb_values(history: History, names: list[str]) -> list[bytes]:
    """Return the values of a store that a snapshot, if there is one, and the changes after it make.

    Raises ValueError for files that are damaged or in another format.
    """
    found: dict[bytes, bytes | None] = {}
    for name in names:
        if reason := damage_in(history, name):
            message = f"{name} {reason}"
            raise ValueError(message)
        data = history.read(name)
        if name.endswith(".zip"):
            found = _snapshot(history, name, data)
        elif b"".join(decompress(data))[:3] == b"\0\2v":
            message = f"{name} is a changelog with a version"
            raise ValueError(message)
        else:
            found.update(parse_changes(data))
    return [value[1:] for value in found.values() if value is not None]


def table_entries(data: bytes) -> Iterator[Entry]:
    """Yield the entries of a table file; ValueError if it has another format."""
    footer = data[-_FOOTER:]
    (version,) = struct.unpack_from("<I", footer, _FOOTER - 12)
    if footer[-8:] != _MAGIC or version not in _FORMATS:
        message = "not a table of RocksDB in a known format"
        raise ValueError(message)
    at = 1
    for _ in range(2):
        _, at = _varint(footer, at)
    for handle in _index(_block(data, footer, at), with_lengths=version < _DELTAS):
        block = _block(data, handle, 0)
        for key, value in _pairs(block):
            (trailer,) = struct.unpack("<Q", key[-8:])
            kind = trailer & 0xFF
            if kind not in (_DELETED, _VALUE):
                message = f"an entry of kind {kind}"
                raise ValueError(message)
            yield Entry(key[:-8], trailer >> 8, value if kind == _VALUE else None)


def _snapshot(history: History, name: str, data: bytes) -> dict[bytes, bytes | None]:
    newest: dict[bytes, Entry] = {}
    for table in history.shared_files(name, data):
        for entry in table_entries(history.read(table)) if table.endswith(".sst") else ():
            if entry.key not in newest or newest[entry.key].number < entry.number:
                newest[entry.key] = entry
    return {key: entry.value for key, entry in newest.items()}


def _block(data: bytes, handle: bytes, at: int) -> bytes:
    """Return the content of a block whose position and size are at a position of `handle`."""
    start, at = _varint(handle, at)
    size, _ = _varint(handle, at)
    content, compression = data[start : start + size], data[start + size]
    if compression == _PLAIN:
        return content
    if compression != _LZ4:
        message = f"compression {compression}"
        raise ValueError(message)
    length, at = _varint(content, 0)
    return bytes(cramjam.lz4.decompress_block(content[at:], output_len=length))


def _index(block: bytes, *, with_lengths: bool) -> Iterator[bytes]:
    """Yield the position and size of each block, as the index has them."""
    if with_lengths:
        yield from (value for _, value in _pairs(block))
        return
    (restarts,) = struct.unpack_from("<I", block, len(block) - 4)
    for number in range(restarts):
        (at,) = struct.unpack_from("<I", block, len(block) - 4 - 4 * (restarts - number))
        _, at = _varint(block, at)
        length, at = _varint(block, at)
        # Spark's tables have one entry for each restart, so none is a difference to the one before.
        yield block[at + length : at + length + 20]


def _pairs(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    (restarts,) = struct.unpack_from("<I", block, len(block) - 4)
    at, key = 0, b""
    while at < len(block) - 4 - 4 * restarts:
        shared, at = _varint(block, at)
        rest, at = _varint(block, at)
        length, at = _varint(block, at)
        key = key[:shared] + block[at : at + rest]
        at += rest
        yield key, block[at : at + length]
        at += length


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a number that is stored seven bits at a time, and where it ends."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
