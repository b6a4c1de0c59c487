"""Sending replies: with sendfile from the segments on plain connections, through OpenSSL on TLS connections."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from asyncio.sslproto import SSLProtocol
from collections import deque
from collections.abc import Iterable
from typing import Protocol

from penstock.log.protocol.fetch import Piece
from penstock.log.storage.segments.segment import Slice

LARGE = 1 << 15  # below this, one read and one send are faster than sendfile
_CHUNK = 1 << 17  # bytes read from a file at a time
_ENCRYPTED = 1 << 18  # bytes of encrypted data queued for a slow client
_LINGER_SECONDS = 10.0  # for a client to read its last replies before the connection is closed
_MORE = getattr(socket, "MSG_MORE", 0)  # Linux has it
_READS = 4  # of one connection before others are served


class SendQueue:
    """Queued pieces of replies. `size` is the total in bytes, `memory` the part that is in memory.

    Records stay in their files until the socket takes them.
    """

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
        """Return the next piece if it is a file slice large enough for sendfile."""
        head = self._pieces[0] if self._pieces else None
        return head if isinstance(head, Slice) and head.size >= LARGE else None

    def skip(self, count: int) -> None:
        """Remove bytes of the next file slice that were sent."""
        head = self._pieces.popleft()
        self._put_first(head, count)
        self.size -= count

    def take(self, most: int) -> memoryview:
        """Remove and return the next bytes: part of a large piece, or small pieces joined for one send."""
        taken: list[bytes | memoryview] = []
        left = most
        while self._pieces and left and not (taken and self.file()):
            piece = self._pieces.popleft()
            size = min(_size(piece), left)
            taken.append(_read_slice(piece, size) if isinstance(piece, Slice) else piece[:size])
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
        """Drop everything, and release the files."""
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
    """Return the error for a segment that ends before the bytes to be sent."""
    return OSError(errno.EIO, "a segment is shorter than its size", str(piece.handle.path))


def _read_slice(piece: Slice, size: int) -> bytes:
    data = piece.handle.read(piece.position, size)
    if len(data) < size:
        raise too_short(piece)
    return data


def _size(piece: memoryview | Slice) -> int:
    return piece.size if isinstance(piece, Slice) else len(piece)


class Receiver(Protocol):
    """Receives bytes."""

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer for the next bytes."""

    def buffer_updated(self, count: int) -> None:
        """Process bytes that were written to the buffer."""

    def eof_received(self) -> bool:
        """The client sends nothing more: return whether to keep the connection, for replies to be sent."""

    def connection_lost(self, error: Exception | None) -> None:
        """Clean up after the client has disconnected."""


class Wire(Protocol):
    """The transport of one connection."""

    def send(self, pieces: list[Piece]) -> None:
        """Queue pieces of a reply."""

    def pause(self) -> None:
        """Pause reading."""

    def resume(self) -> None:
        """Resume reading."""

    def close(self) -> None:
        """Close the connection once the queue is sent."""

    @property
    def queued(self) -> int:
        """Unsent bytes, in files and in memory."""

    @property
    def buffered(self) -> int:
        """Unsent bytes in memory."""

    @property
    def reserved(self) -> int:
        """Bytes of memory that it uses even when idle."""


class PlainWire:
    """A socket on the event loop that sends files with sendfile."""

    def __init__(self, loop: asyncio.AbstractEventLoop, sock: socket.socket, receiver: Receiver) -> None:
        self._loop = loop
        self._sock = sock
        self._receiver = receiver
        self._queue = SendQueue()
        self._writing = self._closing = self._closed = self._paused = False
        loop.add_reader(sock.fileno(), self._readable)

    @property
    def queued(self) -> int:
        """Unsent bytes, in files and in memory."""
        return self._queue.size

    @property
    def buffered(self) -> int:
        """Unsent bytes in memory."""
        return self._queue.memory

    @property
    def reserved(self) -> int:
        """Bytes of memory that it uses even when idle: none worth counting."""
        return 0

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
                if not self._receiver.eof_received():
                    self._lose(None)
                return
            size = len(buffer)
            del buffer
            self._receiver.buffer_updated(count)
            if count < size:
                return

    def send(self, pieces: list[Piece]) -> None:
        """Queue pieces and send what the socket accepts."""
        if self._closed:
            return
        self._queue.add(pieces)
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
        file = self._queue.file()
        if file is not None:
            sent = os.sendfile(self._sock.fileno(), file.handle.fd, file.position, file.size)
            if not sent:
                raise too_short(file)
            self._queue.skip(sent)
            return
        data = self._queue.take(_CHUNK)
        sent = 0
        try:
            # The kernel holds bytes that precede a file until it follows: the client wakes up once, not twice.
            sent = self._sock.send(data, _MORE if self._queue else 0)
        finally:
            self._queue.put_back(data[sent:])

    def pause(self) -> None:
        """Pause reading."""
        if not self._paused and not self._closed:
            self._paused = True
            self._loop.remove_reader(self._sock.fileno())

    def resume(self) -> None:
        """Resume reading."""
        if self._paused and not self._closed and not self._closing:
            self._paused = False
            self._loop.add_reader(self._sock.fileno(), self._readable)

    def close(self) -> None:
        """Close the connection once the queue is sent."""
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
    """An asyncio TLS transport. Files pass through memory to be encrypted, a chunk at a time."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._queue = SendQueue()
        self._full = self._closing = False
        transport.set_write_buffer_limits(high=_ENCRYPTED)

    @property
    def queued(self) -> int:
        """Unsent bytes, in files and in memory."""
        return self._queue.size + self._transport.get_write_buffer_size()

    @property
    def buffered(self) -> int:
        """Unsent bytes in memory."""
        return self._queue.memory + self._transport.get_write_buffer_size()

    @property
    def reserved(self) -> int:
        """Bytes of memory that it uses even when idle: asyncio's decryption buffer."""
        return SSLProtocol.max_size

    def send(self, pieces: list[Piece]) -> None:
        """Queue pieces and send what the transport accepts."""
        if not self._transport.is_closing():
            self._queue.add(pieces)
            self._flush()

    def pause_writing(self) -> None:
        """Stop writing: the transport's buffer is full."""
        self._full = True

    def resume_writing(self) -> None:
        """Continue writing: the client has read."""
        self._full = False
        self._flush()

    def _flush(self) -> None:
        try:
            while self._queue and not self._full:
                self._transport.write(self._queue.take(_CHUNK))
        except OSError:
            self._transport.abort()
        if self._closing and not self._queue:
            self._transport.close()

    def pause(self) -> None:
        """Pause reading."""
        if not self._transport.is_closing():
            self._transport.pause_reading()

    def resume(self) -> None:
        """Resume reading."""
        if not self._transport.is_closing() and not self._closing:
            self._transport.resume_reading()

    def close(self) -> None:
        """Close the connection once the queue is sent."""
        if not self._transport.is_closing() and not self._closing:
            self._closing = True
            self.pause()
            self._flush()
            asyncio.get_running_loop().call_later(_LINGER_SECONDS, self._transport.abort)

    def lost(self) -> None:
        """Drop the queue after the client has disconnected."""
        self._queue.clear()
