"""The server socket: listening, accepting connections, and a graceful stop."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from dataclasses import dataclass
from functools import partial

from penstock.errors import PortTaken, SettingsError
from penstock.log.broker import Broker
from penstock.log.errors import LogError
from penstock.log.monitoring.process_memory import trim_heap
from penstock.log.network.connection import Connection
from penstock.log.network.limits import ConnectionCounter
from penstock.log.network.transport import PlainWire, TlsWire
from penstock.log.security.tls import principal_of

_BACKLOG = 4096
_SEND_BUFFER = 1 << 19  # measured: a local consumer is served fastest while its queued bytes fit the CPU cache
_SWEEP_SECONDS = 5.0
_ACCEPT_SECONDS = 0.2
_FRAME_SECONDS = 60.0  # for a request to arrive completely


@dataclass(frozen=True)
class Address:
    """A host and a port."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Address:
        """Read HOST:PORT."""
        host, colon, port = text.rpartition(":")
        if not colon or not port.isdigit() or int(port) > 65535:
            message = f"{text!r} is not an address"
            raise SettingsError(message, hint="write HOST:PORT, for example 127.0.0.1:9092; port 0 chooses a free one")
        return cls(host.strip("[]") or "0.0.0.0", int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Server:
    """Accepts connections for a broker."""

    def __init__(self, broker: Broker, address: Address, tls: ssl.SSLContext | None = None) -> None:
        self._broker = broker
        self._address = address
        self._tls = tls
        self._count = ConnectionCounter(broker.limits, broker.store.settings.value)
        self._connections = broker.connections
        self._sock: socket.socket | None = None
        self._sweeper: asyncio.TimerHandle | None = None
        self._handshakes: set[asyncio.Task[None]] = set()

    async def start(self) -> Address:
        """Listen; return the address with the port that was chosen."""
        self._sock = _listen(self._address)
        chosen = Address(self._address.host, self._sock.getsockname()[1])
        self._broker.port = self._broker.port or chosen.port
        self._accept_again()
        self._plan_sweep()
        return chosen

    def _accept_again(self) -> None:
        if self._sock is not None and self._sock.fileno() >= 0:
            asyncio.get_running_loop().add_reader(self._sock.fileno(), self._accept)

    def _accept_later(self) -> None:
        # Out of descriptors: connected clients are served, new ones wait in the backlog.
        if self._sock is not None:
            loop = asyncio.get_running_loop()
            loop.remove_reader(self._sock.fileno())
            loop.call_later(_ACCEPT_SECONDS, self._accept_again)

    def _accept(self) -> None:
        for _ in range(64):
            try:
                sock, peer = self._sock.accept() if self._sock else (None, None)
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE):
                    self._accept_later()
                    return
                raise
            if sock is not None and peer is not None:
                self._welcome(sock, str(peer[0]))

    def _welcome(self, sock: socket.socket, host: str) -> None:
        try:
            self._count.opened(host)
        except LogError:
            sock.close()
            return
        self._broker.metrics.connection_opened()
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
        if self._tls is None:
            connection = self._new(host)
            connection.opened(PlainWire(asyncio.get_running_loop(), sock, connection))
        else:
            task = asyncio.get_running_loop().create_task(self._welcome_tls(sock, host))
            self._handshakes.add(task)
            task.add_done_callback(self._handshakes.discard)

    async def _welcome_tls(self, sock: socket.socket, host: str) -> None:
        connection = self._new(host)
        protocol = _TlsProtocol(connection)
        try:
            await asyncio.get_running_loop().connect_accepted_socket(lambda: protocol, sock, ssl=self._tls)
        except (OSError, ssl.SSLError):
            connection.connection_lost(None)

    def _new(self, host: str) -> Connection:
        connection = Connection(self._broker, host, self._broker.security.authentication())
        connection.on_closed = partial(self._closed, connection)
        self._connections.add(connection)
        return connection

    def _closed(self, connection: Connection) -> None:
        if connection in self._connections:
            self._connections.discard(connection)
            self._count.closed(connection.host)
            self._broker.metrics.connection_closed()

    def _plan_sweep(self) -> None:
        self._sweeper = asyncio.get_running_loop().call_later(_SWEEP_SECONDS, self._sweep)

    def _sweep(self) -> None:
        """Close connections that are idle or too slow in sending a request; trim the heap."""
        now = self._broker.clock()
        for connection in list(self._connections):
            late = connection.unfinished and now - connection.request_started_at > _FRAME_SECONDS * 1000
            idle = now - connection.active_at > self._broker.limits.idle_seconds * 1000
            if not connection.waiting and (late or idle):
                connection.close()
        trim_heap()
        self._plan_sweep()

    async def stop(self) -> None:
        """Stop accepting, finish the requests that are being served, close the connections."""
        loop = asyncio.get_running_loop()
        if self._sweeper is not None:
            self._sweeper.cancel()
        if self._sock is not None:
            loop.remove_reader(self._sock.fileno())
            self._sock.close()
        for connection in list(self._connections):
            connection.drain()
        deadline = loop.time() + 5
        while any(connection.busy for connection in self._connections) and loop.time() < deadline:
            await asyncio.sleep(0.01)
        for connection in list(self._connections):
            connection.close()


class _TlsProtocol(asyncio.BufferedProtocol):
    """Passes decrypted bytes from asyncio to a connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._wire: TlsWire | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if isinstance(transport, asyncio.Transport):
            certificate = principal_of(transport.get_extra_info("peercert"))
            self._connection.set_certificate(certificate)
            self._wire = TlsWire(transport)
            self._connection.opened(self._wire)

    def pause_writing(self) -> None:
        if self._wire is not None:
            self._wire.pause_writing()

    def resume_writing(self) -> None:
        if self._wire is not None:
            self._wire.resume_writing()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._connection.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        self._connection.buffer_updated(nbytes)

    def connection_lost(self, exc: Exception | None) -> None:
        # asyncio's transport has a buffer of 256 KiB and refers to this protocol: without the wire it is freed now.
        wire, self._wire = self._wire, None
        if wire is not None:
            wire.lost()
        self._connection.connection_lost(exc)


def _listen(address: Address) -> socket.socket:
    try:
        family, _, _, _, where = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)[0]
        sock = socket.socket(family, socket.SOCK_STREAM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setblocking(False)
        sock.bind(where)
        sock.listen(_BACKLOG)
    except OSError as error:
        message = f"cannot listen on {address}: {error.strerror or error}"
        raise PortTaken(message, hint="choose another with --listen HOST:PORT; port 0 finds a free one") from None
    return sock
