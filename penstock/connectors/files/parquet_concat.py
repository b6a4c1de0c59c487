"""Concatenates Parquet files: column data is copied unchanged, only the footer is rewritten.

The footer is Thrift's compact encoding. It is read into plain values, {field: (type, value)} for a struct, and written
back, so that what this module does not know stays as it is.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, BinaryIO

Struct = dict[int, tuple[int, Any]]

_MAGIC = b"PAR1"
_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = 1, 2, 3, 7, 8, 9, 10, 11, 12
# Fields of FileMetaData, RowGroup, ColumnChunk and ColumnMetaData in parquet.thrift.
_SCHEMA, _ROWS, _GROUPS = 2, 3, 4
_COLUMNS, _GROUP_OFFSET, _ORDINAL = 1, 5, 7
_CHUNK_OFFSET, _CHUNK_META, _PAGE_INDEX = 2, 3, (4, 5, 6, 7)
_META_OFFSETS = (9, 10, 11, 14)


class SchemaMismatch(Exception):
    """The files do not have the same schema."""


def concatenate(paths: Sequence[str], target: str) -> None:
    """Write the row groups of all files into one; SchemaMismatch if their schemas differ."""
    merged: Struct = {}
    with open(target, "wb") as out:
        out.write(_MAGIC)
        for path in paths:
            with open(path, "rb") as file:
                footer, end = _footer(file)
                _shift(footer, out.tell() - len(_MAGIC))
                merged = _joined(merged, footer)
                splice(file, out, len(_MAGIC), end)
        encoded = bytearray()
        _write(encoded, _STRUCT, merged)
        out.write(encoded + len(encoded).to_bytes(4, "little") + _MAGIC)


def splice(file: BinaryIO, out: BinaryIO, start: int, end: int) -> None:
    """Add a range of one file to another, inside the kernel."""
    out.flush()
    while start < end:
        copied = os.sendfile(out.fileno(), file.fileno(), start, end - start)
        if not copied:
            raise EOFError(file.name)
        start += copied
    out.seek(0, os.SEEK_END)


def _footer(file: BinaryIO) -> tuple[Struct, int]:
    """Return the footer and where it begins."""
    size = os.fstat(file.fileno()).st_size
    file.seek(size - 8)
    tail = file.read(8)
    if tail[4:] != _MAGIC:
        message = f"{file.name} is truncated"
        raise ValueError(message)
    start = size - 8 - int.from_bytes(tail[:4], "little")
    file.seek(start)
    return _Reader(file.read(size - 8 - start)).value(_STRUCT), start


def _joined(first: Struct, second: Struct) -> Struct:
    if not first:
        return second
    if first[_SCHEMA] != second[_SCHEMA]:
        raise SchemaMismatch
    kind, groups = first[_GROUPS][1]
    groups = groups + second[_GROUPS][1][1]
    for number, group in enumerate(groups):
        if _ORDINAL in group:
            group[_ORDINAL] = (group[_ORDINAL][0], number)
    rows = first[_ROWS][0], first[_ROWS][1] + second[_ROWS][1]
    return first | {_ROWS: rows, _GROUPS: (_LIST, (kind, groups))}


def _shift(footer: Struct, by: int) -> None:
    """Move all offsets, which count from the start of the file."""
    for group in footer[_GROUPS][1][1]:
        _move(group, _GROUP_OFFSET, by)
        for chunk in group[_COLUMNS][1][1]:
            _move(chunk, _CHUNK_OFFSET, by)
            for field in _META_OFFSETS:
                _move(chunk[_CHUNK_META][1], field, by)
            # The page index contains offsets itself; it is optional, and we do not write it.
            for field in _PAGE_INDEX:
                chunk.pop(field, None)


def _move(struct: Struct, field: int, by: int) -> None:
    # Zero means "unknown".
    if field in struct and struct[field][1]:
        struct[field] = struct[field][0], struct[field][1] + by


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def value(self, kind: int) -> Any:
        if kind == _STRUCT:
            return self._struct()
        if kind in (_LIST, _SET):
            return self._list()
        if kind == _MAP:
            message = "a map in a Parquet footer"
            raise ValueError(message)
        if kind == _BINARY:
            return self._bytes(self._varint())
        if kind == _DOUBLE:
            return self._bytes(8)
        if kind in (_TRUE, _FALSE, _BYTE):
            return self._bytes(1)
        number = self._varint()
        return (number >> 1) ^ -(number & 1)

    def _struct(self) -> Struct:
        struct: Struct = {}
        field = 0
        while head := self._bytes(1)[0]:
            field = field + (head >> 4) if head >> 4 else self.value(4)
            kind = head & 15
            struct[field] = (kind, None if kind in (_TRUE, _FALSE) else self.value(kind))
        return struct

    def _list(self) -> tuple[int, list[Any]]:
        head = self._bytes(1)[0]
        size = head >> 4 if head >> 4 < 15 else self._varint()
        return head & 15, [self.value(head & 15) for _ in range(size)]

    def _bytes(self, size: int) -> bytes:
        self._at += size
        return self._data[self._at - size : self._at]

    def _varint(self) -> int:
        number = shift = 0
        while True:
            byte = self._data[self._at]
            self._at += 1
            number |= (byte & 127) << shift
            if byte < 128:
                return number
            shift += 7


def _write(out: bytearray, kind: int, value: Any) -> None:
    if kind == _STRUCT:
        _write_struct(out, value)
    elif kind in (_LIST, _SET):
        item, items = value
        _write_head(out, len(items), item)
        for one in items:
            _write(out, item, one)
    elif kind == _BINARY:
        _write_varint(out, len(value))
        out += value
    elif isinstance(value, bytes):
        out += value
    else:
        _write_varint(out, (value << 1) ^ (value >> 63))


def _write_struct(out: bytearray, struct: Struct) -> None:
    before = 0
    for field, (kind, value) in sorted(struct.items()):
        if 0 < field - before < 16:
            out.append((field - before) << 4 | kind)
        else:
            out.append(kind)
            _write(out, 4, field)
        before = field
        if value is not None:
            _write(out, kind, value)
    out.append(0)


def _write_head(out: bytearray, size: int, kind: int) -> None:
    if size < 15:
        out.append(size << 4 | kind)
    else:
        out.append(15 << 4 | kind)
        _write_varint(out, size)


def _write_varint(out: bytearray, number: int) -> None:
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
