"""A connection to one broker, with SASL login (PLAIN, RFC 4616; SCRAM, RFC 5802). Raises librdkafka's errors."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import socket
import ssl
import struct
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
from confluent_kafka import KafkaError, KafkaException

from penstock.connectors.topics.client_errors import SECONDS
from penstock.connectors.topics.connection import Connection
from penstock.kafka.wire import WireReader, blob, text

FETCH, LIST_OFFSETS, METADATA, API_VERSIONS = 1, 2, 3, 18
_HANDSHAKE, _AUTHENTICATE = 17, 36
_CLIENT = text("penstock")
_MOST_ANSWERED = 1 << 30
Address = tuple[str, int]
# Idle connections: Spark's workers live longer than their tasks.
_idle: dict[tuple[str, Address], list[Broker]] = {}
Exchange = Callable[[bytes], bytes]
_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
# A server that asks for more iterations is an attack on this process.
_MOST_ROUNDS = 1_000_000


class Broker:
    """A connection: responses come in the order of the requests, so several may be in flight."""

    def __init__(self, connection: Connection, address: Address) -> None:
        self._waiting = self._number = 0
        with _translated_errors(address):
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
        with _translated_errors(None):
            self._socket.sendall(blob(frame))
        self._waiting += 1

    def receive(self, compact: bool = False) -> WireReader:
        """Return the next response, without its header."""
        with _translated_errors(None):
            (size,) = struct.unpack(">i", self._exactly(4))
            if not 4 <= size <= _MOST_ANSWERED:
                raise KafkaException(KafkaError(KafkaError._BAD_MSG, f"an answer of {size} bytes"))
            reader = WireReader(self._exactly(size), compact)
        self._waiting -= 1
        reader.int32()
        reader.skip_tags()
        return reader

    def ask(self, api: int, version: int, body: bytes, compact: bool = False) -> WireReader:
        """Send a request and return its response."""
        self.send(api, version, body, compact)
        return self.receive(compact)

    @property
    def is_quiet(self) -> bool:
        """Whether no request is in flight."""
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
        raise_for_code(answer.int16())
        found = answer.each(lambda one: (one.int16(), one.int16(), one.int16()))
        return {api: range(oldest, newest + 1) for api, oldest, newest in found}

    def _log_in(self, connection: Connection) -> None:
        raise_for_code(self.ask(_HANDSHAKE, 1, text(connection.mechanism)).int16())
        try:
            log_in(connection, self._authenticate)
        except ServerNotAuthenticated:
            reason = "the server did not prove that it knows the password"
            raise KafkaException(KafkaError(KafkaError._AUTHENTICATION, reason)) from None

    def _authenticate(self, message: bytes) -> bytes:
        answer = self.ask(_AUTHENTICATE, 0, blob(message))
        raise_for_code(answer.int16(), answer.text())
        return bytes(answer.blob() or b"")


def identity(connection: Connection) -> str:
    """Return a key that identifies the user and cluster of a connection; it contains the password."""
    return repr(sorted(connection.config().items()))


@contextmanager
def borrowed(connection: Connection, address: Address) -> Iterator[Broker]:
    """Lend a connection; it is reused unless an error occurred or a request is in flight."""
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


def raise_for_code(code: int, text: str | None = None) -> None:
    """Raise the error of a response, if it has one."""
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
def _translated_errors(address: Address | None) -> Iterator[None]:
    """Translate network errors to librdkafka's."""
    try:
        yield
    except ssl.SSLError as error:
        raise KafkaException(KafkaError(KafkaError._SSL, str(error))) from error
    except TimeoutError as error:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "no answer in time")) from error
    except OSError as error:
        where = f"{address[0]}:{address[1]}: " if address else ""
        raise KafkaException(KafkaError(KafkaError._TRANSPORT, f"{where}{error}")) from error


class ServerNotAuthenticated(Exception):
    """The server did not prove that it knows the password."""


def log_in(connection: Connection, exchange: Exchange) -> None:
    """Authenticate; `exchange` sends a message and returns the response, or raises its error."""
    user, password = connection.user or "", connection.password or ""
    if connection.mechanism == "PLAIN":
        exchange(f"\0{user}\0{password}".encode())
    else:
        _scram(_HASHES[connection.mechanism], user, password, exchange)


def _scram(kind: str, user: str, password: str, exchange: Exchange) -> None:
    nonce = secrets.token_urlsafe(24)
    bare = f"n={user.replace('=', '=3D').replace(',', '=2C')},r={nonce}"
    answer = exchange(f"n,,{bare}".encode()).decode()
    said = _fields(answer)
    rounds = int(said.get("i", "0"))
    if not said.get("r", "").startswith(nonce) or not 0 < rounds <= _MOST_ROUNDS:
        raise ServerNotAuthenticated
    salted = hashlib.pbkdf2_hmac(kind, password.encode(), b64decode(said["s"]), rounds)
    unproven = f"c=biws,r={said['r']}"
    signed = f"{bare},{answer},{unproven}".encode()
    key = hmac.digest(salted, b"Client Key", kind)
    signature = hmac.digest(hashlib.new(kind, key).digest(), signed, kind)
    proof = bytes(a ^ b for a, b in zip(key, signature, strict=True))
    last = exchange(f"{unproven},p={b64encode(proof).decode()}".encode()).decode()
    expected = hmac.digest(hmac.digest(salted, b"Server Key", kind), signed, kind)
    if not hmac.compare_digest(b64decode(_fields(last).get("v", "")), expected):
        raise ServerNotAuthenticated


def _fields(text: str) -> dict[str, str]:
    return {name: value for name, _, value in (part.partition("=") for part in text.split(","))}
