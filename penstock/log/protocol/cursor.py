"""Reads requests straight from untrusted bytes, with limits on elements and memory."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.kafka.wire import WireReader
from penstock.log.errors import ErrorCode, LogError

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


class Cursor(WireReader):
    """A position in a request.

    A few bytes can become an object of hundreds: all elements of a request count against its allowance.
    """

    __slots__ = ("_allowance",)

    def __init__(self, data: memoryview, flexible: bool, at: int = 0, allowance: _Allowance | None = None) -> None:
        self.data = data
        self.at = at
        self.flexible = flexible
        self._allowance = allowance or _Allowance(len(data))

    def inside(self, data: memoryview) -> Cursor:
        """Return a cursor over a part of the request, which shares its allowance."""
        return Cursor(data, self.flexible, 0, self._allowance)

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

    def tags(self) -> Iterator[tuple[int, memoryview]]:
        """Read tagged fields one by one: their numbers and bytes."""
        count = self.unsigned() if self.flexible else 0
        self._expect(count, 0)
        for _ in range(count):
            yield self.unsigned(), self.raw(self.unsigned())
