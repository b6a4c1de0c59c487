"""Numbers, strings and arrays of Kafka's protocol, in its old form and in the flexible one of newer versions."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import TypeVar

from penstock.kafka.errors import INVALID_REQUEST, ProtocolError

_T = TypeVar("_T")
_I8, _I16, _I32, _I64 = struct.Struct(">b"), struct.Struct(">h"), struct.Struct(">i"), struct.Struct(">q")
_F64 = struct.Struct(">d")


class WireReader:
    """Reads a message field by field. Flexible messages have compact lengths and tagged fields.

    A message that is cut off raises ProtocolError, IndexError or struct.error.
    """

    __slots__ = ("at", "data", "flexible")

    def __init__(self, data: memoryview, flexible: bool = False, at: int = 0) -> None:
        self.data = data
        self.at = at
        self.flexible = flexible

    def int8(self) -> int:
        """Read one byte."""
        self.at += 1
        return int(_I8.unpack_from(self.data, self.at - 1)[0])

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

    def float64(self) -> float:
        """Read eight bytes."""
        self.at += 8
        return float(_F64.unpack_from(self.data, self.at - 8)[0])

    def unsigned(self) -> int:
        """Read an unsigned varint."""
        number = shift = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
            shift += 7
            if shift > 28:
                raise ProtocolError(INVALID_REQUEST, "a length of more than 32 bits")

    def text(self) -> str | None:
        """Read a string or null."""
        size = self.unsigned() - 1 if self.flexible else self.int16()
        return None if size < 0 else str(self.raw(size), "utf-8")

    def blob(self) -> memoryview | None:
        """Read bytes or null, without a copy."""
        size = self.unsigned() - 1 if self.flexible else self.int32()
        return None if size < 0 else self.raw(size)

    def raw(self, size: int) -> memoryview:
        """Read so many bytes, without a copy."""
        start, self.at = self.at, self.at + size
        if self.at > len(self.data):
            raise ProtocolError(INVALID_REQUEST, "the message ends early")
        return self.data[start : self.at]

    def each(self, read: Callable[[WireReader], _T]) -> list[_T]:
        """Read an array; null is empty."""
        size = self.unsigned() - 1 if self.flexible else self.int32()
        return [read(self) for _ in range(size)]

    def tags(self) -> Iterator[tuple[int, memoryview]]:
        """Read tagged fields one by one: their numbers and bytes."""
        for _ in range(self.unsigned() if self.flexible else 0):
            yield self.unsigned(), self.raw(self.unsigned())

    def skip_tags(self) -> None:
        """Skip tagged fields that the caller does not need."""
        for _ in self.tags():
            pass


def varint(number: int) -> bytes:
    """Encode a number that is not negative, seven bits a byte."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def zigzag(number: int) -> bytes:
    """Encode a signed number as records do."""
    return varint((number << 1) ^ (number >> 63))


def text(value: str | None, flexible: bool = False) -> bytes:
    """Encode a string or null."""
    if value is None:
        return b"\0" if flexible else b"\xff\xff"
    raw = value.encode()
    return (varint(len(raw) + 1) if flexible else _I16.pack(len(raw))) + raw


def blob(value: bytes) -> bytes:
    """Encode bytes."""
    return _I32.pack(len(value)) + value


def count(number: int, flexible: bool) -> bytes:
    """Encode the length of an array."""
    return varint(number + 1) if flexible else _I32.pack(number)
