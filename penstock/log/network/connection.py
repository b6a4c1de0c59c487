"""One client connection: requests are served and answered in order."""

from __future__ import annotations

import asyncio
import logging
import struct
from collections import deque
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.log.errors import ErrorCode, LogError
from penstock.log.handlers import COROUTINES, HOT
from penstock.log.handlers.authentication import login_step
from penstock.log.network.frames import FrameReader
from penstock.log.network.transport import Wire
from penstock.log.protocol.apis import APIS, BY_NAME, Api
from penstock.log.protocol.cursor import Cursor
from penstock.log.protocol.fetch import Piece
from penstock.log.protocol.messages import error_reply, read_request, write_reply
from penstock.log.request_context import Call
from penstock.log.security.acls import ANONYMOUS
from penstock.log.security.authentication import Authentication
from penstock.log.storage.segments.segment import Slice

if TYPE_CHECKING:
    from penstock.log.broker import Broker

log = logging.getLogger("penstock.log")
_HEAD = struct.Struct(">hhi")
_API_VERSIONS = BY_NAME["api_versions"]
_OPEN_TO_ALL = {"api_versions", "sasl_handshake", "sasl_authenticate"}
_MOST_QUEUED = 1 << 24  # bytes of unread replies, above which no more requests of the client are read or served
_MOST_BUFFERED = 1 << 20  # the same for replies that are in memory
_RETRY_SECONDS = 0.01  # until a client that has to wait is looked at again
_MOST_UNANSWERED = 256  # produce requests that overlap; the following ones wait for the replies to all of them


class PendingReply:
    """An entry in the queue of replies, filled when the handler is done."""

    __slots__ = ("pieces",)

    def __init__(self) -> None:
        self.pieces: list[Piece] | None = None


class ConnectionUsage(NamedTuple):
    """What one connection uses: bytes of requests and replies, unanswered requests, and whether it is throttled."""

    arriving: int
    reserved: int
    waiting: int
    unanswered: int
    unsent: int
    unsent_in_files: int
    throttled: bool


class Connection:
    """Reads requests, dispatches each to its handler, sends the replies in the order of the requests.

    Produce requests overlap, so that several share one fsync; any other waits for the replies to those before it.
    """

    def __init__(self, broker: Broker, host: str, authentication: Authentication | None) -> None:
        self.broker = broker
        self.host = host
        self.authentication = authentication
        self.active_at = broker.clock()
        self.request_started_at = self.active_at  # when the request that is arriving started
        self._frames = FrameReader(broker.limits.login_bytes)
        self._allow_size()
        self._replies: deque[PendingReply] = deque()
        self._waiting_frames: deque[bytes] = deque()
        self._serial = False
        self._draining = self._resuming = self._retrying = False
        self._producing = self._half_closed = self._closed = False
        self._muted_until = 0
        self._wire: Wire | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._reserved = 0
        self.cancel_long_poll: Callable[[], None] | None = None  # set while a fetch waits for records
        self.on_closed: Callable[[], None] = _nothing

    @property
    def principal(self) -> str:
        """The authenticated principal."""
        return (self.authentication.principal if self.authentication else None) or ANONYMOUS

    @property
    def waiting(self) -> bool:
        """Whether a request is being served."""
        return bool(self._replies)

    @property
    def busy(self) -> bool:
        """Whether a request is being served, other than a fetch that waits for records."""
        return bool(self._replies) and self.cancel_long_poll is None

    @property
    def unfinished(self) -> bool:
        """Whether a part of a request has arrived."""
        return self._frames.unfinished

    @property
    def usage(self) -> ConnectionUsage:
        """What it uses now, for the metrics."""
        wire = self._wire
        unsent, in_memory = (wire.queued, wire.buffered) if wire else (0, 0)
        later = sum(map(len, self._waiting_frames))
        reserved = wire.reserved if wire else 0
        arriving, unanswered = self._frames.memory_bytes, len(self._replies)
        return ConnectionUsage(arriving, reserved, later, unanswered, in_memory, unsent - in_memory, self._is_muted)

    @property
    def _is_muted(self) -> bool:
        return self._muted_until > self.broker.clock()

    def set_certificate(self, certificate: str | None) -> None:
        """Authenticate the client by the principal of its TLS certificate."""
        if certificate is not None and self.authentication is not None:
            self.authentication.principal = certificate
            self._allow_size()

    def _allow_size(self) -> None:
        """Allow large requests once the client is authenticated."""
        if self.authentication is None or self.authentication.ready:
            self._frames.max_bytes = self.broker.limits.request_bytes

    def opened(self, wire: Wire) -> None:
        """Set the wire once the connection is established."""
        self._wire = wire

    def get_buffer(self, _sizehint: int) -> memoryview:
        """Return the buffer for the next bytes."""
        return self._frames.buffer()

    def buffer_updated(self, count: int) -> None:
        """Serve the requests that are complete now."""
        self.active_at = self.broker.clock()
        began = not self._frames.unfinished
        try:
            frames = self._frames.received(count)
            if began or frames:
                self.request_started_at = self.active_at
            for frame in frames:
                self._take(frame)
                self._frames.done(frame)
        except LogError as error:
            self._refuse(error)
        except Exception:  # any bug in a handler ends this connection only, not the broker
            log.exception("a request of %s failed; the connection is closed", self.host)
            self.close()
        if self._wire is not None and self._frames.memory_bytes != self._reserved:
            self._reserve(self._frames.memory_bytes)

    def _reserve(self, size: int) -> None:
        self._reserved = size
        if self.broker.memory.reserve(self._resume, size):
            self._pause()

    def _take(self, frame: memoryview) -> None:
        if self._closed:
            return
        if self._must_wait or self._waiting_frames:
            self._waiting_frames.append(bytes(frame))
            self._pause()
        else:
            self._serve(frame)

    @property
    def _must_wait(self) -> bool:
        return self._serial or (self._wire is not None and _is_full(self._wire))

    def _serve(self, frame: memoryview) -> None:
        if self.authentication is not None and self.authentication.raw:
            self._raw_login(bytes(frame))
            return
        try:
            key, version, correlation = _HEAD.unpack_from(frame)
            api = APIS.get(key)
            if api is None:
                raise LogError(ErrorCode.invalid_request, f"there is no request number {key}")
            self._check_ready(api)
            cursor = Cursor(frame, False, _HEAD.size)
            client_id = cursor.text() or ""
            if api.is_flexible(version):
                cursor.flexible = True
                cursor.skip_tags()
            self._dispatch(api, version, correlation, client_id, frame, cursor.at)
        except (struct.error, IndexError, UnicodeDecodeError) as error:
            raise LogError(ErrorCode.invalid_request, f"not a request: {error}") from error

    def _check_ready(self, api: Api) -> None:
        if self.authentication is not None and not self.authentication.ready and api.name not in _OPEN_TO_ALL:
            raise LogError(ErrorCode.illegal_sasl_state, f"{api.name} before authentication")

    def _dispatch(self, api: Api, version: int, correlation: int, client_id: str, frame: memoryview, at: int) -> None:
        answer = PendingReply()
        self._replies.append(answer)
        tagged = api.is_flexible(version) and api is not _API_VERSIONS
        head = struct.pack(">i", correlation) + (b"\0" if tagged else b"")

        def reply(pieces: list[Piece]) -> None:
            answer.pieces = _framed(head, pieces) if pieces else []
            self._send_replies()

        if not api.serves(version):
            reply([_unsupported(api)])
            return
        call = Call(self, api, version, client_id, reply)
        hot = HOT.get(api.name)
        self._producing = api.name == "produce"
        if hot is None:
            self._serial = True
            self._start_task(self._run(call, read_request(api, version, frame[at:])))
        else:
            self._serial = not self._producing or len(self._replies) >= _MOST_UNANSWERED
            hot(call, frame, at)

    def _start_task(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, call: Call, request: object) -> None:
        try:
            fields = await COROUTINES[call.api.name](call, request)
            call.reply([write_reply(call.api, call.version, fields)])
        except LogError as error:
            body = error_reply(call.api, call.version, error)
            if body is None:
                self._refuse(error)
            else:
                call.reply([body])
        except Exception:  # any bug in a handler ends this connection only, not the broker
            log.exception("%s of version %d failed; the connection is closed", call.api.name, call.version)
            self.close()
        self._allow_size()
        if self.authentication is not None and self.authentication.failed:
            self.close()

    def _raw_login(self, message: bytes) -> None:
        answer = PendingReply()
        self._replies.append(answer)
        self._serial = True

        def reply(pieces: list[Piece]) -> None:
            answer.pieces = _framed(b"", pieces)
            self._send_replies()

        self._start_task(self._run_raw(Call(self, BY_NAME["sasl_authenticate"], 0, "", reply), message))

    async def _run_raw(self, call: Call, message: bytes) -> None:
        try:
            call.reply([await login_step(call, message)])
            self._allow_size()
        except LogError as error:
            self._refuse(error)

    def _send_replies(self) -> None:
        while self._replies and self._replies[0].pieces is not None:
            pieces = self._replies.popleft().pieces
            if pieces:
                self._put(pieces)
        if not self._replies and self._half_closed and not self._waiting_frames:
            self.close()
        elif not self._replies and self._serial:
            self._serial = False
            self._resume()

    def _put(self, pieces: list[Piece]) -> None:
        wire = self._wire
        if wire is not None:
            wire.send(pieces)
            if _is_full(wire):
                self._pause()
                self._retry_in(_RETRY_SECONDS)

    def _resume(self) -> None:
        """Serve the waiting requests, then read on."""
        if self._resuming:  # a reply at once: the loop below takes the next request
            return
        self._resuming = True
        try:
            while self._waiting_frames and not self._must_wait:
                self._serve(memoryview(bytearray(self._waiting_frames.popleft())))
        except LogError as error:
            self._refuse(error)
            return
        except Exception:  # as where requests arrive: the client would wait forever for this reply
            log.exception("a request of %s failed; the connection is closed", self.host)
            self.close()
            return
        finally:
            self._resuming = False
        self._read_on()

    def _read_on(self) -> None:
        wire = self._wire
        if wire is None or self._serial or (self._draining and not self._waiting_frames):
            return
        self.request_started_at = self.broker.clock()  # a client that may not send is not late
        wait = self._muted_until - self.request_started_at
        if _is_full(wire) or wait > 0:
            self._retry_in(max(wait / 1000, _RETRY_SECONDS))
        elif not self._waiting_frames:
            wire.resume()

    def _retry_in(self, seconds: float) -> None:
        if not self._retrying:  # a single timer, however many replies wait
            self._retrying = True
            self.broker.call_later(seconds, self._retry)

    def _retry(self) -> None:
        self._retrying = False
        self._resume()

    def mute(self, milliseconds: int) -> None:
        """Read nothing for a while: the client exceeded its quota."""
        if milliseconds > 0:
            self._muted_until = self.broker.clock() + milliseconds
            self._pause()
            self.broker.call_later(milliseconds / 1000, self._resume)

    def serve_alone(self) -> None:
        """Serve no other request before the current one is answered."""
        self._serial = True

    def _pause(self) -> None:
        if self._wire is not None:
            self._wire.pause()

    def _refuse(self, error: LogError) -> None:
        log.warning("connection of %s closed: %s", self.host, error.message)
        self.close()

    def drain(self) -> None:
        """Take no more requests."""
        self._pause()
        self._draining = True

    def close(self) -> None:
        """End the connection once the replies are sent; requests that still wait or arrive are not served."""
        self._closed = True
        self._waiting_frames.clear()
        if self._wire is not None:
            self._wire.close()

    def eof_received(self) -> bool:
        """Keep a half-closed connection until its produce requests are answered, as Kafka does, and replies are sent.

        A client that only waits, in a long poll or for its group, has gone: its wait is cancelled.
        """
        self._half_closed = bool(self._replies) and self._producing
        if self._half_closed:
            self._pause()
        elif self._wire is not None and self._wire.queued:
            self.close()
            return True
        return self._half_closed

    def connection_lost(self, _error: Exception | None) -> None:
        """Clean up after the client has disconnected."""
        self._wire = None
        self._frames.clear()  # other references to this connection must not keep its buffers alive
        self._reserve(0)
        self._replies.clear()
        self._waiting_frames.clear()
        for task in list(self._tasks):
            task.cancel()
        if self.cancel_long_poll is not None:
            self.cancel_long_poll()
        on_closed, self.on_closed = self.on_closed, _nothing  # it refers to this connection: break the cycle
        on_closed()


def _nothing() -> None:
    """Do nothing."""


def _is_full(wire: Wire) -> bool:
    return wire.queued > _MOST_QUEUED or wire.buffered > _MOST_BUFFERED


def _framed(head: bytes, pieces: list[Piece]) -> list[Piece]:
    size = len(head) + sum(piece.size if isinstance(piece, Slice) else len(piece) for piece in pieces)
    return [struct.pack(">i", size) + head, *pieces]


def _unsupported(api: Api) -> bytes:
    # A client with a newer ApiVersions gets version 0 of the reply, with the error and the versions that are served.
    if api is _API_VERSIONS:
        served = b"".join(struct.pack(">hhh", each.key, *each.offered) for each in APIS.values())
        return struct.pack(">hi", ErrorCode.unsupported_version, len(APIS)) + served
    raise LogError(ErrorCode.unsupported_version, f"{api.name} is served in versions {api.oldest} to {api.newest}")
