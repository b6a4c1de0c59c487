"""Integrity check of Spark's files in a checkpoint: damaged files, and files that are missing.

On a local disk Hadoop writes a checksum of every 512 bytes into a file beside. An object store has no such files, but
writes a file completely or not at all, so there it is enough that the file can be decompressed.

Spark deletes the oldest epochs and the oldest state, so a gap between files means that somebody else deleted some.
Files that a repair moved to `set-aside/` are not missing.
"""

from __future__ import annotations

import io
import json
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator

import cramjam

from penstock.errors import CheckpointDamaged
from penstock.spark.checkpoints.history import History, StateStoreFiles, checksum_of, is_checksum
from penstock.spark.epochs.bounds import BOUNDS, parse_bounds
from penstock.spark.tasks.offset_files import REPLAY, parse_replayed
from penstock.storage.folders import Folder

MISSING = "is missing"
_LZ4_MAGIC = b"LZ4Block"
_LZ4_HEADER = struct.Struct("<8sBIII")
_LZ4_STORED = 0x10
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_SET_ASIDE = re.compile(r"[^/]+/queries/(?P<query>[^/]+)/(?P<name>.+)")


def damage_in(history: History, name: str) -> str | None:
    """Return what is wrong with a file, or None if it is intact."""
    if is_checksum(name):
        return None
    data = history.folder.read(name)
    if data is None:
        return MISSING
    if not data:
        return "is empty"
    checksums = history.folder.read(checksum_of(name)) if checksum_of(name) in history.files else None
    if checksums is not None and not _matches(data, checksums):
        return "does not match its checksum"
    try:
        return _damaged_content(history, name, data, checked=checksums is not None)
    except (ValueError, CheckpointDamaged, cramjam.DecompressionError, zipfile.BadZipFile, zlib.error) as error:
        return f"cannot be read ({type(error).__name__})"


def decompress(data: bytes) -> Iterator[bytes]:
    """Yield the content of a state file, block by block; ValueError if it is truncated."""
    if data.startswith(_ZSTD_MAGIC):
        yield bytes(cramjam.zstd.decompress(data))
        return
    if not data.startswith(_LZ4_MAGIC):
        message = "unknown compression"
        raise ValueError(message)
    at = 0
    while at < len(data):
        if len(data) - at < _LZ4_HEADER.size:
            break
        magic, token, compressed, size, _ = _LZ4_HEADER.unpack_from(data, at)
        at += _LZ4_HEADER.size
        if magic != _LZ4_MAGIC or len(data) - at < compressed:
            break
        if size == 0:
            return
        block = data[at : at + compressed]
        yield block if token & 0xF0 == _LZ4_STORED else bytes(cramjam.lz4.decompress_block(block, output_len=size))
        at += compressed
    message = "the file is truncated"
    raise ValueError(message)


def missing_files(history: History, set_aside: set[str], *, migrated: bool = False) -> list[str]:
    """Return the missing files of a query; the epochs of a `migrated` one do not start with the first."""
    expected = [
        *_expected_logs(history, migrated),
        *_expected_metadata(history),
        *(name for store in history.stores for name in _expected_changes(history, store)),
    ]
    return [name for name in dict.fromkeys(expected) if name not in history.files and name not in set_aside]


def files_set_aside(data: Folder, query: str) -> set[str]:
    """Return the files of a query that repairs have moved away."""
    found = (_SET_ASIDE.fullmatch(path) for path in (data / "set-aside").files())
    return {match["name"] for match in found if match and match["query"] == query}


def is_restorable(store: StateStoreFiles, epoch: int, damaged: dict[str, str]) -> bool:
    """Return whether the state after an epoch can be built from files that are not damaged."""
    return any(not damaged.keys() & {*chain} for chain in store.chains(epoch + 1))


def _damaged_content(history: History, name: str, data: bytes, *, checked: bool) -> str | None:
    log = name.partition("/")[0]
    if log in ("offsets", "commits"):
        epoch = int(name.rpartition("/")[2])
        history.commit(epoch) if log == "commits" else (history.header(epoch), history.offsets(epoch))
    elif name == "metadata":
        json.loads(data)
    elif name == REPLAY:
        parse_replayed(data)
    elif name == BOUNDS:
        parse_bounds(data)
    elif name.endswith("/_metadata/metadata"):
        history.operator_metadata(name)
    elif name.endswith(".zip"):
        return _damaged_snapshot(history, name, data)
    elif not checked and name.endswith((".delta", ".snapshot", ".changelog")):
        for _ in decompress(data):
            pass
    return None


def _damaged_snapshot(history: History, name: str, data: bytes) -> str | None:
    """Check a RocksDB snapshot, and the files that it shares with other snapshots."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        if bad := archive.testzip():
            return f"has a damaged {bad}"
    for shared, size in history.shared_files(name, data).items():
        if shared not in history.files:
            return f"needs {shared}, which {MISSING}"
        if history.files[shared] != size:
            return f"needs {shared}, which has {history.files[shared]} of {size} bytes"
        if reason := damage_in(history, shared):
            return f"needs {shared}, which {reason}"
    return None


def _matches(data: bytes, checksums: bytes) -> bool:
    """Compare with Hadoop's checksum file: a magic number, the length of a chunk, then the CRC-32 of each chunk."""
    if len(checksums) < 8 or checksums[:4] != b"crc\0":
        return False
    (length,) = struct.unpack_from(">I", checksums, 4)
    view = memoryview(data)
    found = (zlib.crc32(view[at : at + length]) for at in range(0, len(data), length))
    return b"".join(struct.pack(">I", one) for one in found) == checksums[8:]


def _expected_logs(history: History, migrated: bool) -> Iterator[str]:
    """Yield offsets from the oldest epoch to the newest, and commits of all epochs but the newest."""
    epochs = sorted({*history.logged, *history.committed})
    if not epochs:
        return
    yield "metadata"
    yield from (f"offsets/{epoch}" for epoch in range(epochs[0], epochs[-1] + 1))
    first = 0 if epochs[0] == 0 and not migrated else min(history.committed, default=epochs[-1])
    yield from (f"commits/{epoch}" for epoch in range(first, epochs[-1]))


def _expected_metadata(history: History) -> Iterator[str]:
    operators = {*range(history.operators), *(store.operator for store in history.stores)}
    for operator in sorted(operators) if history.committed else ():
        if not any(name.startswith(f"state/{operator}/_metadata/v2/") for name in history.files):
            yield f"state/{operator}/_metadata/metadata"
    for store in history.stores if history.committed else ():
        if store.path.split("/")[1] == "0":
            yield f"state/{store.path}/_metadata/schema"


def _expected_changes(history: History, store: StateStoreFiles) -> Iterator[str]:
    """Yield the changes of each epoch since the oldest that is retained."""
    if not history.committed:
        return
    newest = max(history.committed) + 1
    starts = [*([min(store.changes)] if store.changes else []), *(version + 1 for version in store.snapshots)]
    suffix = _suffix_of_changes(history)
    oldest = 1 if 0 in history.committed and 1 not in store.snapshots else min(starts, default=newest)
    for version in range(oldest, newest + 1):
        replaced = version in store.snapshots and history.repartitioned
        if version not in store.changes and not replaced:
            yield f"state/{store.path}/{version}.{suffix}"


def _suffix_of_changes(history: History) -> str:
    names = [name for store in history.stores for changes in store.changes.values() for name in changes]
    if names:
        return names[0].rpartition(".")[2]
    return "changelog" if any(name.endswith((".zip", ".sst")) for name in history.files) else "delta"
