"""Z-sets and deltas as bytes: frames of Arrow IPC with a CRC-32C, which can stand one after the other.

A frame is a header of 16 bytes and its content:

    0   magic "PSD1"
    4   kind: 1 for a Z-set, 2 for deltas (little-endian, as all that follows)
    8   number of bytes of the content, a multiple of 8
    12  CRC-32C of the bytes 4 to 12 and of the content
    16  an Arrow IPC stream of one record batch; the schema's metadata has the key of deltas
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from functools import lru_cache

import pyarrow as pa
from crc32c import crc32c

from penstock.errors import BadValue, FrameDamaged
from penstock.incremental.deltas import Deltas
from penstock.incremental.zsets import weights

MAGIC = b"PSD1"
ZSET, DELTAS = 1, 2
_HEADER = struct.Struct("<4sIII")
_HEAD = struct.Struct("<II")
_KEY = b"penstock.key"
_END = b"\xff\xff\xff\xff\0\0\0\0"
_MOST = 2**32 - 8
_HINT = "fetch the frame again, or send the whole view instead of its deltas"


def encode(content: Deltas | pa.Table) -> bytes:
    """Return deltas or a Z-set as one frame.

    >>> from penstock.incremental.zsets import from_rows
    >>> decode(encode(from_rows(pa.table({"a": [7]})))).to_pylist()
    [{'a': 7, '__penstock_weight': 1}]
    """
    if isinstance(content, Deltas):
        kind, table = DELTAS, content.table
        table = table.replace_schema_metadata({_KEY: json.dumps(content.key)})
    else:
        weights(content)
        kind, table = ZSET, content.replace_schema_metadata(None)
    body = _written(table)
    if len(body) > _MOST:
        message = f"a frame of {len(body):,} bytes is too large"
        raise BadValue(message, hint=f"split it: a frame has at most {_MOST:,} bytes")
    checksum = crc32c(body, crc32c(_HEAD.pack(kind, len(body))))
    return b"".join((_HEADER.pack(MAGIC, kind, len(body), checksum), body))


def decode(data: bytes) -> Deltas | pa.Table:
    """Return what one frame has; raises FrameDamaged if its bytes are not what was written."""
    frames = list(decode_all(data))
    if len(frames) != 1:
        message = f"expected one frame, found {len(frames)}"
        raise FrameDamaged(message, hint="decode_all reads frames that stand one after the other")
    return frames[0]


def decode_all(data: bytes) -> Iterator[Deltas | pa.Table]:
    """Return what frames that stand one after the other have; the first that is damaged raises FrameDamaged."""
    view = memoryview(data)
    position = number = 0
    while position < len(view):
        content, position = _frame(view, position, number)
        number += 1
        yield content


def _frame(view: memoryview, position: int, number: int) -> tuple[Deltas | pa.Table, int]:
    where = f"frame {number} at byte {position}"
    start = position + _HEADER.size
    if len(view) < start:
        raise _damaged(where, f"ends in its header: {len(view) - position} of {_HEADER.size} bytes")
    magic, kind, size, checksum = _HEADER.unpack_from(view, position)
    if magic != MAGIC:
        raise _damaged(where, f"starts with {magic!r} instead of {MAGIC!r}")
    end = start + size
    if len(view) < end:
        raise _damaged(where, f"ends early: {len(view) - start} of {size} bytes of content")
    body = view[start:end]
    found = crc32c(body, crc32c(view[position + 4 : position + 12]))
    if found != checksum:
        raise _damaged(where, f"has the checksum {found:08x} instead of {checksum:08x}")
    if kind not in (ZSET, DELTAS):
        raise _damaged(where, f"is of kind {kind}, which this version does not know")
    table = _read(body)
    if kind == ZSET:
        return table, end
    key = tuple(json.loads(table.schema.metadata[_KEY]))
    return Deltas(key, table.replace_schema_metadata(None)), end


def _written(table: pa.Table) -> bytes:
    """Return a table as an Arrow IPC stream: its schema, one record batch, and the mark of the end."""
    batches = table.combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], table.schema)]
    return b"".join((_schema_bytes(table.schema), batches[0].serialize(), _END))


def _read(body: memoryview) -> pa.Table:
    start = 8 + int.from_bytes(body[4:8], "little")
    schema = _schema(bytes(body[:start]))
    return pa.Table.from_batches([pa.ipc.read_record_batch(pa.py_buffer(body[start:]), schema)])


def _schema_bytes(schema: pa.Schema) -> bytes:
    return bytes(schema.serialize())


@lru_cache(maxsize=256)
def _schema(message: bytes) -> pa.Schema:
    """Return the schema of a message: frames of one view have the same, and to parse it takes longer than a batch."""
    return pa.ipc.read_schema(pa.py_buffer(message))


def _damaged(where: str, reason: str) -> FrameDamaged:
    return FrameDamaged(f"{where} {reason}", hint=_HINT)
