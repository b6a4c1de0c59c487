"""Reading requests straight from the bytes, which may be anything."""

from __future__ import annotations

import struct

from penstock.log.errors import ErrorCode, LogError
from penstock.log.storage.records import varint

_I8, _I16, _I32, _I64 = struct.Struct(">b"), struct.Struct(">h"), struct.Struct(">i"), struct.Struct(">q")
_F64 = struct.Struct(">d")
_MOST_ITEMS = 250_000  # in all arrays of a request: a byte of it can become an object of a hundred


class Cursor:
    """A place in a request; `flexible` requests have compact lengths and tagged fields."""

    __slots__ = ("at", "data", "flexible", "items")

    def __init__(self, data: memoryview, flexible: bool, at: int = 0) -> None:
        self.data = data
        self.at = at
        self.flexible = flexible
        self.items = 0

    def int16(self) -> int:
        """Read two bytes."""
        self.at += 2
        return int(_I16.unpack_from(self.data, self.at - 2)[0])

    def int32(self) -> int:
        """Read four bytes."""
        self.at += 4
        return int(_I32.unpack_from(self.data, self.at - 4)[0])

    def int64(self) -> int:
        """Read eight bytes."""
        self.at += 8
        return int(_I64.unpack_from(self.data, self.at - 8)[0])

    def int8(self) -> int:
        """Read one byte."""
        self.at += 1
        return int(_I8.unpack_from(self.data, self.at - 1)[0])

    def float64(self) -> float:
        """Read eight bytes."""
        self.at += 8
        return float(_F64.unpack_from(self.data, self.at - 8)[0])

    def unsigned(self) -> int:
        """Read a varint."""
        number = shift = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
            shift += 7
            if shift > 28:
                raise LogError(ErrorCode.invalid_request, "a length of more than 32 bits")

    def count(self) -> int:
        """Read the length of an array; a null one is empty."""
        return self.length() or 0

    def length(self) -> int | None:
        """Read the length of an array or null."""
        count = self.unsigned() - 1 if self.flexible else self.int32()
        if count < 0:
            return None
        self.items += count
        if count > len(self.data) - self.at or self.items > _MOST_ITEMS:
            raise LogError(ErrorCode.invalid_request, f"an array of {count} items in {len(self.data)} bytes")
        return count

    def text(self) -> str | None:
        """Read a string or null."""
        size = self.unsigned() - 1 if self.flexible else self.int16()
        return None if size < 0 else str(self.raw(size), "utf-8")

    def blob(self) -> memoryview | None:
        """Read bytes or null, without a copy."""
        size = self.unsigned() - 1 if self.flexible else self.int32()
        return None if size < 0 else self.raw(size)

    def raw(self, size: int) -> memoryview:
        """Read so many bytes."""
        start, self.at = self.at, self.at + size
        if self.at > len(self.data):
            raise LogError(ErrorCode.invalid_request, "the request ends early")
        return self.data[start : self.at]

    def tags(self) -> list[tuple[int, memoryview]]:
        """Read tagged fields: their numbers and bytes."""
        if not self.flexible:
            return []
        return [(self.unsigned(), self.raw(self.unsigned())) for _ in range(self.unsigned())]


def text(value: str | None, flexible: bool) -> bytes:
    """Encode a string or null."""
    if value is None:
        return b"\0" if flexible else b"\xff\xff"
    raw = value.encode()
    return (varint(len(raw) + 1) if flexible else _I16.pack(len(raw))) + raw


def count(number: int, flexible: bool) -> bytes:
    """Encode the length of an array."""
    return varint(number + 1) if flexible else _I32.pack(number)
