"""Replies that wait for a client to read them: records stay in their files until the socket takes them."""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Iterable

from penstock.log.protocol.fetch import Piece
from penstock.log.storage.segment import Slice

LARGE = 1 << 15  # below this one read and one send beat a call of sendfile


class SendQueue:
    """Pieces of replies in order. `size` is all that waits, `memory` what of it is in memory."""

    __slots__ = ("_pieces", "memory", "size")

    def __init__(self) -> None:
        self._pieces: deque[memoryview | Slice] = deque()
        self.size = self.memory = 0

    def __bool__(self) -> bool:
        return bool(self._pieces)

    def add(self, pieces: Iterable[Piece]) -> None:
        """Append the pieces of a reply."""
        for piece in pieces:
            if isinstance(piece, Slice):
                self._pieces.append(piece)
                self.size += piece.size
            elif piece:
                self._pieces.append(memoryview(piece))
                self._count(len(piece))

    def file(self) -> Slice | None:
        """Return the next piece if it is a part of a file that is worth a sendfile."""
        head = self._pieces[0] if self._pieces else None
        return head if isinstance(head, Slice) and head.size >= LARGE else None

    def skip(self, count: int) -> None:
        """Remove bytes of the file that is next: they were sent."""
        head = self._pieces.popleft()
        self._put_first(head, count)
        self.size -= count

    def take(self, most: int) -> memoryview:
        """Remove and return the next bytes: a part of a large piece, or small pieces joined into one send."""
        taken: list[bytes | memoryview] = []
        left = most
        while self._pieces and left and not (taken and self.file()):
            piece = self._pieces.popleft()
            size = min(_size(piece), left)
            taken.append(_read(piece, size) if isinstance(piece, Slice) else piece[:size])
            self._put_first(piece, size)
            self.size -= size
            self.memory -= 0 if isinstance(piece, Slice) else size
            left -= size
        return memoryview(b"".join(taken) if len(taken) > 1 else taken[0])

    def put_back(self, rest: memoryview) -> None:
        """Return bytes that were taken and not sent."""
        if rest:
            self._pieces.appendleft(rest)
            self._count(len(rest))

    def clear(self) -> None:
        """Drop everything, and with it the open files."""
        self._pieces.clear()
        self.size = self.memory = 0

    def _put_first(self, piece: memoryview | Slice, sent: int) -> None:
        if isinstance(piece, Slice) and sent < piece.size:
            self._pieces.appendleft(piece._replace(position=piece.position + sent, size=piece.size - sent))
        elif not isinstance(piece, Slice) and sent < len(piece):
            self._pieces.appendleft(piece[sent:])

    def _count(self, size: int) -> None:
        self.size += size
        self.memory += size


def too_short(piece: Slice) -> OSError:
    """Return the error of a segment that ends before the bytes that are to be sent."""
    return OSError(errno.EIO, "a segment is shorter than its size", str(piece.handle.path))


def _read(piece: Slice, size: int) -> bytes:
    data = piece.handle.read(piece.position, size)
    if len(data) < size:
        raise too_short(piece)
    return data


def _size(piece: memoryview | Slice) -> int:
    return piece.size if isinstance(piece, Slice) else len(piece)
