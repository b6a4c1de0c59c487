"""A connection to one broker, and the few requests that readers make. Errors are KafkaExceptions, as librdkafka's."""

from __future__ import annotations

import os
import socket
import ssl
import struct
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from confluent_kafka import KafkaError, KafkaException

from penstock.connectors.connection import Connection
from penstock.connectors.kafka import SECONDS
from penstock.connectors.records.frames import Reader, blob, text
from penstock.connectors.records.login import NotProven, log_in

FETCH, LIST_OFFSETS, METADATA, API_VERSIONS = 1, 2, 3, 18
_HANDSHAKE, _AUTHENTICATE = 17, 36
_CLIENT = text("penstock")
_MOST_ANSWERED = 1 << 30
Address = tuple[str, int]
# Connections that nobody uses at the moment: Spark's workers live longer than their tasks.
_idle: dict[tuple[str, Address], list[Broker]] = {}


class Broker:
    """A connection: answers come in the order of the requests, so several may be under way."""

    def __init__(self, connection: Connection, address: Address) -> None:
        self._waiting = self._number = 0
        with _told(address):
            self._socket = _connected(connection, address)
        try:
            if connection.user is not None:
                self._log_in(connection)
            self.versions = self._versions()
        except BaseException:
            self.close()
            raise

    def send(self, api: int, version: int, body: bytes, compact: bool = False) -> None:
        """Send a request."""
        self._number += 1
        frame = struct.pack(">hhi", api, version, self._number) + _CLIENT + (b"\0" if compact else b"") + body
        with _told(None):
            self._socket.sendall(blob(frame))
        self._waiting += 1

    def receive(self, compact: bool = False) -> Reader:
        """Return the next answer, without its header."""
        with _told(None):
            (size,) = struct.unpack(">i", self._exactly(4))
            if not 4 <= size <= _MOST_ANSWERED:
                raise KafkaException(KafkaError(KafkaError._BAD_MSG, f"an answer of {size} bytes"))
            reader = Reader(self._exactly(size), compact)
        self._waiting -= 1
        reader.int32()
        reader.tags()
        return reader

    def ask(self, api: int, version: int, body: bytes, compact: bool = False) -> Reader:
        """Send a request and return its answer."""
        self.send(api, version, body, compact)
        return self.receive(compact)

    @property
    def is_quiet(self) -> bool:
        """Whether no answer is under way."""
        return self._waiting == 0

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def _exactly(self, size: int) -> memoryview:
        # Not a bytearray, which would be filled with zeros first.
        data = np.empty(size, np.uint8).data
        at = 0
        while at < size:
            got = self._socket.recv_into(data[at:])
            if not got:
                message = "the connection was closed"
                raise ConnectionError(message)
            at += got
        return data

    def _versions(self) -> dict[int, range]:
        answer = self.ask(API_VERSIONS, 0, b"")
        refuse(answer.int16())
        found = answer.each(lambda one: (one.int16(), one.int16(), one.int16()))
        return {api: range(oldest, newest + 1) for api, oldest, newest in found}

    def _log_in(self, connection: Connection) -> None:
        refuse(self.ask(_HANDSHAKE, 1, text(connection.mechanism)).int16())
        try:
            log_in(connection, self._authenticate)
        except NotProven:
            reason = "the server does not know the password"
            raise KafkaException(KafkaError(KafkaError._AUTHENTICATION, reason)) from None

    def _authenticate(self, message: bytes) -> bytes:
        answer = self.ask(_AUTHENTICATE, 0, blob(message))
        refuse(answer.int16(), answer.text())
        return bytes(answer.blob())


def identity(connection: Connection) -> str:
    """Return what tells connections of one user to one cluster from others; it holds the password."""
    return repr(sorted(connection.config().items()))


@contextmanager
def lent(connection: Connection, address: Address) -> Iterator[Broker]:
    """Lend a connection; it is kept for the next one, unless something went wrong or is still under way."""
    kept = _idle.setdefault((identity(connection), address), [])
    broker = kept.pop() if kept else Broker(connection, address)
    try:
        yield broker
    except BaseException:
        broker.close()
        raise
    if broker.is_quiet:
        kept.append(broker)
    else:
        broker.close()


def refuse(code: int, text: str | None = None) -> None:
    """Raise what a broker says went wrong."""
    if code:
        raise KafkaException(KafkaError(code, text) if text else KafkaError(code))


def _connected(connection: Connection, address: Address) -> socket.socket:
    made = socket.create_connection(address, timeout=SECONDS)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if not connection.config()["security.protocol"].endswith("SSL"):
        return made
    try:
        return _tls(connection).wrap_socket(made, server_hostname=address[0])
    except BaseException:
        made.close()
        raise


def _tls(connection: Connection) -> ssl.SSLContext:
    ca = connection.options.get("ca")
    folder = ca is not None and os.path.isdir(ca)
    context = ssl.create_default_context(cafile=None if folder else ca, capath=ca if folder else None)
    if "cert" in connection.options:
        context.load_cert_chain(connection.options["cert"], connection.options.get("key"))
    return context


@contextmanager
def _told(address: Address | None) -> Iterator[None]:
    """Tell errors of the network as librdkafka would."""
    try:
        yield
    except ssl.SSLError as error:
        raise KafkaException(KafkaError(KafkaError._SSL, str(error))) from error
    except TimeoutError as error:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "no answer in time")) from error
    except OSError as error:
        where = f"{address[0]}:{address[1]}: " if address else ""
        raise KafkaException(KafkaError(KafkaError._TRANSPORT, f"{where}{error}")) from error
