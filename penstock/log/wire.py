"""How bytes leave: straight from the files where the connection is plain, through OpenSSL where it is not."""

from __future__ import annotations

import asyncio
import os
import socket
from asyncio.sslproto import SSLProtocol
from typing import Protocol

from penstock.log.protocol.fetch import Piece
from penstock.log.send_queue import SendQueue, too_short

_CHUNK = 1 << 17  # bytes that are read from a file into memory at a time
_ENCRYPTED = 1 << 18  # bytes that may wait in memory, encrypted, for a slow reader
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
        """Bytes that are not sent yet, in files and in memory."""

    @property
    def buffered(self) -> int:
        """Bytes that are not sent yet and take memory."""

    @property
    def reserved(self) -> int:
        """Bytes of memory that it takes however idle it is."""


class PlainWire:
    """A socket on the loop, sending files with sendfile."""

    def __init__(self, loop: asyncio.AbstractEventLoop, sock: socket.socket, receiver: Receiver) -> None:
        self._loop = loop
        self._sock = sock
        self._receiver = receiver
        self._queue = SendQueue()
        self._writing = self._closing = self._closed = self._paused = False
        loop.add_reader(sock.fileno(), self._readable)

    @property
    def queued(self) -> int:
        """Bytes that are not sent yet, in files and in memory."""
        return self._queue.size

    @property
    def buffered(self) -> int:
        """Bytes that are not sent yet and take memory."""
        return self._queue.memory

    @property
    def reserved(self) -> int:
        """Bytes of memory that it takes however idle it is: none worth counting."""
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
            # Bytes before a file wait for it in the kernel: the reader wakes once, not twice.
            sent = self._sock.send(data, _MORE if self._queue else 0)
        finally:
            self._queue.put_back(data[sent:])

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
    """A transport of asyncio. What it sends passes through memory to be encrypted, a chunk at a time."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._queue = SendQueue()
        self._full = self._closing = False
        transport.set_write_buffer_limits(high=_ENCRYPTED)

    @property
    def queued(self) -> int:
        """Bytes that are not sent yet, in files and in memory."""
        return self._queue.size + self._transport.get_write_buffer_size()

    @property
    def buffered(self) -> int:
        """Bytes that are not sent yet and take memory."""
        return self._queue.memory + self._transport.get_write_buffer_size()

    @property
    def reserved(self) -> int:
        """Bytes of memory that it takes however idle it is: asyncio decrypts into a buffer of its own."""
        return SSLProtocol.max_size

    def send(self, pieces: list[Piece]) -> None:
        """Queue pieces and send what the transport takes at once."""
        if not self._transport.is_closing():
            self._queue.add(pieces)
            self._flush()

    def pause_writing(self) -> None:
        """The transport holds as much as it may until the client reads."""
        self._full = True

    def resume_writing(self) -> None:
        """The client has read: send on."""
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
        """Read no more for now."""
        if not self._transport.is_closing():
            self._transport.pause_reading()

    def resume(self) -> None:
        """Read again."""
        if not self._transport.is_closing() and not self._closing:
            self._transport.resume_reading()

    def close(self) -> None:
        """End the connection once what is queued is sent."""
        if not self._transport.is_closing() and not self._closing:
            self._closing = True
            self.pause()
            self._flush()
            asyncio.get_running_loop().call_later(_LINGER_SECONDS, self._transport.abort)

    def lost(self) -> None:
        """The other side is gone: nobody reads what waits."""
        self._queue.clear()
