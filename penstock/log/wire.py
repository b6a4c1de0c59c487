"""How bytes leave: straight from the files where the connection is plain, through OpenSSL where it is not."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections import deque
from typing import Protocol

from penstock.log.protocol.fetch import Piece
from penstock.log.storage.segment import Slice

_SMALL = 1 << 15  # below this one read and one send beat a call of sendfile
_LINGER_SECONDS = 10.0  # in which a client that is sent away can still read its last answers
_MORE = getattr(socket, "MSG_MORE", 0)  # Linux has it
_READS = 4  # of one connection before the others get their turn


class Receiver(Protocol):
    """Who gets the bytes that arrive."""

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return where the next bytes go."""

    def buffer_updated(self, count: int) -> None:
        """So many bytes went there."""

    def connection_lost(self, error: Exception | None) -> None:
        """The other side is gone."""


class Wire(Protocol):
    """One connection, as the broker sees it."""

    def send(self, pieces: list[Piece]) -> None:
        """Queue pieces of a reply."""

    def pause(self) -> None:
        """Read no more for now."""

    def resume(self) -> None:
        """Read again."""

    def close(self) -> None:
        """End the connection once what is queued is sent."""

    @property
    def queued(self) -> int:
        """Bytes that are not sent yet."""


class PlainWire:
    """A socket on the loop, sending files with sendfile."""

    def __init__(self, loop: asyncio.AbstractEventLoop, sock: socket.socket, receiver: Receiver) -> None:
        self._loop = loop
        self._sock = sock
        self._receiver = receiver
        self._queue: deque[memoryview | Slice] = deque()
        self._writing = self._closing = self._closed = self._paused = False
        self.queued = 0
        loop.add_reader(sock.fileno(), self._readable)

    def _readable(self) -> None:
        for _ in range(_READS):
            if self._closed or self._paused:
                return
            buffer = self._receiver.get_buffer(-1)
            try:
                count = self._sock.recv_into(buffer)
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                self._lose(error)
                return
            if not count:
                self._lose(None)
                return
            size = len(buffer)
            del buffer
            self._receiver.buffer_updated(count)
            if count < size:
                return

    def send(self, pieces: list[Piece]) -> None:
        """Queue pieces and send what the socket takes at once."""
        if self._closed:
            return
        try:
            few = _few(pieces)
        except OSError as error:
            self._lose(error)
            return
        for piece in few:
            self._queue.append(piece if isinstance(piece, Slice) else memoryview(piece))
            self.queued += _size(piece)
        if not self._writing:
            self._flush()

    def _flush(self) -> None:
        try:
            while self._queue:
                self._send_some()
        except (BlockingIOError, InterruptedError):
            if not self._writing:
                self._writing = True
                self._loop.add_writer(self._sock.fileno(), self._flush)
            return
        except OSError as error:
            self._lose(error)
            return
        if self._writing:
            self._writing = False
            self._loop.remove_writer(self._sock.fileno())
        if self._closing:
            self._lose(None)

    def _send_some(self) -> None:
        head = self._queue[0]
        if isinstance(head, Slice):
            sent = os.sendfile(self._sock.fileno(), head.handle.fd, head.position, head.size)
            if not sent:
                raise _too_short(head)
            rest: memoryview | Slice = head._replace(position=head.position + sent, size=head.size - sent)
        else:
            # Bytes before a file wait for it in the kernel: the reader wakes once, not twice.
            sent = self._sock.send(head, _MORE if len(self._queue) > 1 else 0)
            rest = head[sent:]
        self.queued -= sent
        if _size(rest):
            self._queue[0] = rest
        else:
            self._queue.popleft()

    def pause(self) -> None:
        """Read no more for now."""
        if not self._paused and not self._closed:
            self._paused = True
            self._loop.remove_reader(self._sock.fileno())

    def resume(self) -> None:
        """Read again."""
        if self._paused and not self._closed:
            self._paused = False
            self._loop.add_reader(self._sock.fileno(), self._readable)

    def close(self) -> None:
        """End the connection once what is queued is sent."""
        if self._closed or self._closing:
            return
        self._closing = True
        self.pause()
        if self._queue:
            self._loop.call_later(_LINGER_SECONDS, self._lose, None)
        else:
            self._lose(None)

    def _lose(self, error: Exception | None) -> None:
        if self._closed:
            return
        self._closed = True
        self._loop.remove_reader(self._sock.fileno())
        self._loop.remove_writer(self._sock.fileno())
        self._sock.close()
        self._queue.clear()
        self._receiver.connection_lost(error)


class TlsWire:
    """A transport of asyncio; what it sends has to pass through memory to be encrypted."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport

    @property
    def queued(self) -> int:
        """Bytes that are not sent yet."""
        return self._transport.get_write_buffer_size()

    def send(self, pieces: list[Piece]) -> None:
        """Queue pieces."""
        try:
            for piece in pieces:
                self._transport.write(_read(piece) if isinstance(piece, Slice) else piece)
        except OSError:
            self._transport.abort()

    def pause(self) -> None:
        """Read no more for now."""
        if not self._transport.is_closing():
            self._transport.pause_reading()

    def resume(self) -> None:
        """Read again."""
        if not self._transport.is_closing():
            self._transport.resume_reading()

    def close(self) -> None:
        """End the connection once what is queued is sent."""
        if not self._transport.is_closing():
            self._transport.close()
            asyncio.get_running_loop().call_later(_LINGER_SECONDS, self._transport.abort)


def _read(piece: Slice) -> bytes:
    data = piece.handle.read(piece.position, piece.size)
    if len(data) < piece.size:
        raise _too_short(piece)
    return data


def _too_short(piece: Slice) -> OSError:
    return OSError(errno.EIO, "a segment is shorter than its size", str(piece.handle.path))


def _size(piece: bytes | memoryview | Slice) -> int:
    return piece.size if isinstance(piece, Slice) else len(piece)


def _few(pieces: list[Piece]) -> list[Piece]:
    """Join what is small, so that a short reply is one send."""
    few: list[Piece] = []
    together: list[bytes] = []
    for piece in pieces:
        if isinstance(piece, Slice) and piece.size >= _SMALL:
            few += [b"".join(together), piece]
            together = []
        else:
            together.append(_read(piece) if isinstance(piece, Slice) else piece)
    return [*few, b"".join(together)] if together else few
