"""Reading requests straight from the bytes, which may be anything."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from penstock.log.errors import ErrorCode, LogError
from penstock.log.storage.records import varint

_I8, _I16, _I32, _I64 = struct.Struct(">b"), struct.Struct(">h"), struct.Struct(">i"), struct.Struct(">q")
_F64 = struct.Struct(">d")
_MOST_ITEMS = 250_000  # array elements and tagged fields of a request: each takes time, and most take memory
_FLOOR = 1 << 21  # bytes of Python objects that any request may become
_PER_BYTE = 24  # and for each of its bytes; what clients really send takes less than 15
OBJECT_SIZE = 200  # bytes, of an array element whose size nobody has estimated


class _Allowance:
    """How many elements a request may still have, and how much memory they may take."""

    __slots__ = ("items", "memory")

    def __init__(self, size: int) -> None:
        self.items = _MOST_ITEMS
        self.memory = _FLOOR + _PER_BYTE * size

    def take(self, count: int, size: int) -> None:
        self.items -= count
        self.memory -= count * size
        if self.items < 0 or self.memory < 0:
            message = f"more elements than a request may have: at most {_MOST_ITEMS}, and fewer in a short request"
            raise LogError(ErrorCode.invalid_request, message)


class Cursor:
    """A place in a request; `flexible` requests have compact lengths and tagged fields.

    A few bytes can become an object of hundreds: all elements of a request count against its allowance.
    """

    __slots__ = ("_allowance", "at", "data", "flexible")

    def __init__(self, data: memoryview, flexible: bool, at: int = 0, allowance: _Allowance | None = None) -> None:
        self.data = data
        self.at = at
        self.flexible = flexible
        self._allowance = allowance or _Allowance(len(data))

    def inside(self, data: memoryview) -> Cursor:
        """Return a cursor over a part of the request, which shares its allowance."""
        return Cursor(data, self.flexible, 0, self._allowance)

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

    def length(self, size: int = OBJECT_SIZE) -> int | None:
        """Read the length of an array or null; an element becomes an object of about `size` bytes."""
        count = self.unsigned() - 1 if self.flexible else self.int32()
        if count < 0:
            return None
        self._expect(count, size)
        return count

    def _expect(self, count: int, size: int) -> None:
        if count > len(self.data) - self.at:
            raise LogError(ErrorCode.invalid_request, f"an array of {count} items in {len(self.data)} bytes")
        self._allowance.take(count, size)

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

    def tags(self) -> Iterator[tuple[int, memoryview]]:
        """Read tagged fields, one after the other: their numbers and bytes."""
        count = self.unsigned() if self.flexible else 0
        self._expect(count, 0)
        for _ in range(count):
            yield self.unsigned(), self.raw(self.unsigned())

    def skip_tags(self) -> None:
        """Pass over tagged fields that nobody needs."""
        for _ in self.tags():
            pass


def text(value: str | None, flexible: bool) -> bytes:
    """Encode a string or null."""
    if value is None:
        return b"\0" if flexible else b"\xff\xff"
    raw = value.encode()
    return (varint(len(raw) + 1) if flexible else _I16.pack(len(raw))) + raw


def count(number: int, flexible: bool) -> bytes:
    """Encode the length of an array."""
    return varint(number + 1) if flexible else _I32.pack(number)
