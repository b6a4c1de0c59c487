"""Numbers and texts as Kafka's protocol writes them, in its old form and in the compact one of newer versions."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, TypeVar

_T = TypeVar("_T")
_SHORT, _INT, _LONG = struct.Struct(">h"), struct.Struct(">i"), struct.Struct(">q")


class Reader:
    """Reads an answer from its beginning; one that is cut off raises IndexError or struct.error."""

    def __init__(self, data: memoryview, compact: bool = False) -> None:
        self.data, self.compact, self.at = data, compact, 0

    def int16(self) -> int:
        """Read two bytes."""
        return int(self._number(_SHORT))

    def int32(self) -> int:
        """Read four bytes."""
        return int(self._number(_INT))

    def int64(self) -> int:
        """Read eight bytes."""
        return int(self._number(_LONG))

    def take(self, size: int) -> memoryview:
        """Read so many bytes."""
        self.at += size
        return self.data[self.at - size : self.at]

    def text(self) -> str | None:
        """Read a text, which may be null."""
        size = self._varint() - 1 if self.compact else self.int16()
        return str(self.take(size), "utf-8") if size >= 0 else None

    def blob(self) -> memoryview:
        """Read bytes; null is none."""
        size = self._varint() - 1 if self.compact else self.int32()
        return self.take(max(size, 0))

    def each(self, read: Callable[[Reader], _T]) -> list[_T]:
        """Read an array; null is empty."""
        count = self._varint() - 1 if self.compact else self.int32()
        return [read(self) for _ in range(count)]

    def tags(self) -> None:
        """Skip what newer versions may add."""
        if self.compact:
            for _ in range(self._varint()):
                self._varint()
                self.take(self._varint())

    def _number(self, form: struct.Struct) -> Any:
        (found,) = form.unpack_from(self.data, self.at)
        self.at += form.size
        return found

    def _varint(self) -> int:
        found = shift = 0
        while True:
            octet = self.data[self.at]
            self.at += 1
            found |= (octet & 127) << shift
            shift += 7
            if octet < 128:
                return found


def text(value: str, compact: bool = False) -> bytes:
    """Write a text."""
    data = value.encode()
    return (_varint(len(data) + 1) if compact else _SHORT.pack(len(data))) + data


def blob(value: bytes) -> bytes:
    """Write bytes."""
    return _INT.pack(len(value)) + value


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])
