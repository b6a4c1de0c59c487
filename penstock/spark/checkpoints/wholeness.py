"""Whether a file of a checkpoint is whole: by the checksum beside it, or by reading it to its end.

On a local disk Hadoop keeps a checksum of every 512 bytes in a file beside. On an object store there is none, but there
a file is put whole or not at all, so it is enough to see that it can be unpacked.
"""

from __future__ import annotations

import io
import json
import struct
import zipfile
import zlib
from collections.abc import Iterator

import cramjam

from penstock.errors import CheckpointDamaged
from penstock.spark.checkpoints.history import History, checksum_of, is_checksum
from penstock.spark.epochs.notes import REPLAY

_MAGIC = b"LZ4Block"
_HEAD = struct.Struct("<8sBIII")
_STORED = 0x10
_ZSTD = b"\x28\xb5\x2f\xfd"


def broken(history: History, name: str) -> str | None:
    """Return what is wrong with a file, or None if it is whole."""
    if is_checksum(name):
        return None
    data = history.folder.read(name)
    if data is None:
        return "is gone"
    if not data:
        return "is empty"
    sums = history.folder.read(checksum_of(name)) if checksum_of(name) in history.files else None
    if sums is not None and not _matches(data, sums):
        return "does not match its checksum"
    try:
        return _content(history, name, data, checked=sums is not None)
    except (ValueError, CheckpointDamaged, cramjam.DecompressionError, zipfile.BadZipFile, zlib.error) as error:
        return f"cannot be read ({type(error).__name__})"


def _content(history: History, name: str, data: bytes, *, checked: bool) -> str | None:
    log = name.partition("/")[0]
    if log in ("offsets", "commits"):
        epoch = int(name.rpartition("/")[2])
        history.commit(epoch) if log == "commits" else (history.header(epoch), history.offsets(epoch))
    elif name in ("metadata", REPLAY):
        json.loads(data)
    elif name.endswith("/_metadata/metadata"):
        history.described(name)
    elif name.endswith(".zip"):
        return _archive(history, name, data)
    elif not checked and name.endswith((".delta", ".snapshot", ".changelog")):
        for _ in unpacked(data):
            pass
    return None


def _archive(history: History, name: str, data: bytes) -> str | None:
    """Look into a snapshot of RocksDB: it names files that it shares with others."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        if bad := archive.testzip():
            return f"has a damaged {bad}"
    for table, size in history.tables(name, data).items():
        if table not in history.files:
            return f"needs {table}, which is gone"
        if history.files[table] != size:
            return f"needs {table}, which has {history.files[table]} of {size} bytes"
        if reason := broken(history, table):
            return f"needs {table}, which {reason}"
    return None


def unpacked(data: bytes) -> Iterator[bytes]:
    """Yield the content of a file of state, block by block; ValueError if it ends too soon."""
    if data.startswith(_ZSTD):
        yield bytes(cramjam.zstd.decompress(data))
        return
    if not data.startswith(_MAGIC):
        message = "it is packed in no way that is known"
        raise ValueError(message)
    at = 0
    while at < len(data):
        if len(data) - at < _HEAD.size:
            break
        magic, token, packed, size, _ = _HEAD.unpack_from(data, at)
        at += _HEAD.size
        if magic != _MAGIC or len(data) - at < packed:
            break
        if size == 0:
            return
        block = data[at : at + packed]
        yield block if token & 0xF0 == _STORED else bytes(cramjam.lz4.decompress_block(block, output_len=size))
        at += packed
    message = "it ends too soon"
    raise ValueError(message)


def _matches(data: bytes, sums: bytes) -> bool:
    """Compare with Hadoop's checksums: a magic word, how many bytes each is of, and then CRC-32 of each piece."""
    if len(sums) < 8 or sums[:4] != b"crc\0":
        return False
    (each,) = struct.unpack_from(">I", sums, 4)
    view = memoryview(data)
    found = (zlib.crc32(view[at : at + each]) for at in range(0, len(data), each))
    return b"".join(struct.pack(">I", one) for one in found) == sums[8:]


def rows_of(history: History, names: list[str]) -> int | None:
    """Count the rows of a state that is kept in memory; None if it is RocksDB's, whose files tell too little."""
    if any(name.endswith((".zip", ".changelog")) for name in names):
        return None
    keys: set[bytes] = set()
    for name in names:
        content = b"".join(unpacked(history.read(name)))
        for key, kept in _changes(content):
            keys.add(key) if kept else keys.discard(key)
    return len(keys)


def _changes(content: bytes) -> Iterator[tuple[bytes, bool]]:
    """Yield the keys of a delta or snapshot, and whether each is kept or removed."""
    at = 0
    while (length := struct.unpack_from(">i", content, at)[0]) >= 0:
        key = content[at + 4 : at + 4 + length]
        at += 4 + length
        (size,) = struct.unpack_from(">i", content, at)
        at += 4 + max(size, 0)
        yield key, size >= 0
