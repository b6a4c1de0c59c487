"""One client: its requests in order, each answered in order."""

from __future__ import annotations

import asyncio
import logging
import struct
from collections import deque
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.log.calls import Call
from penstock.log.errors import ErrorCode, LogError
from penstock.log.frames import Frames
from penstock.log.handlers import COROUTINES, HOT
from penstock.log.handlers.logins import login_step
from penstock.log.protocol.apis import APIS, BY_NAME, Api
from penstock.log.protocol.cursor import Cursor
from penstock.log.protocol.fetch import Piece
from penstock.log.protocol.messages import error_reply, read_request, write_reply
from penstock.log.security.acls import ANONYMOUS
from penstock.log.security.authentication import Authentication
from penstock.log.storage.segment import Slice
from penstock.log.wire import Wire

if TYPE_CHECKING:
    from penstock.log.broker import Broker

log = logging.getLogger("penstock.log")
_HEAD = struct.Struct(">hhi")
_API_VERSIONS = BY_NAME["api_versions"]
_OPEN_TO_ALL = {"api_versions", "sasl_handshake", "sasl_authenticate"}
_MOST_QUEUED = 1 << 24  # bytes of answers that a client may leave unread before it is read no further
_MOST_BUFFERED = 1 << 20  # and of those that take memory


class Answer:
    """A place in the queue of answers, filled when the handler is done."""

    __slots__ = ("pieces",)

    def __init__(self) -> None:
        self.pieces: list[Piece] | None = None


class Held(NamedTuple):
    """What one connection holds: bytes of requests and of answers, requests that are not answered, and a throttle."""

    arriving: int
    reserved: int
    waiting: int
    unanswered: int
    unsent: int
    unsent_in_files: int
    throttled: bool


class Connection:
    """Reads requests, hands each to its handler, sends the answers in the order of the requests.

    Produce requests overlap, so that several share one fsync; any other waits until those before it are answered.
    """

    def __init__(self, broker: Broker, host: str, authentication: Authentication | None) -> None:
        self.broker = broker
        self.host = host
        self.authentication = authentication
        self.active_at = broker.clock()
        self.began_at = self.active_at  # when the request began that is arriving
        self._frames = Frames(broker.limits.login_bytes)
        self._allow_size()
        self._answers: deque[Answer] = deque()
        self._later: deque[bytes] = deque()
        self._serial = False
        self._draining = False
        self._muted_until = 0
        self._wire: Wire | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._held = 0
        self.abandoned: Callable[[], None] | None = None  # ends what waits for records, if something does
        self.on_closed: Callable[[], None] = _nothing

    @property
    def principal(self) -> str:
        """Who speaks."""
        return (self.authentication.principal if self.authentication else None) or ANONYMOUS

    @property
    def waiting(self) -> bool:
        """Whether a request is being served."""
        return bool(self._answers)

    @property
    def busy(self) -> bool:
        """Whether an answer is owed that something was done for."""
        return bool(self._answers) and self.abandoned is None

    @property
    def unfinished(self) -> bool:
        """Whether a request has begun to arrive."""
        return self._frames.unfinished

    @property
    def held(self) -> Held:
        """What it holds now, for those who measure."""
        wire = self._wire
        unsent, in_memory = (wire.queued, wire.buffered) if wire else (0, 0)
        later = sum(map(len, self._later))
        reserved = wire.reserved if wire else 0
        arriving, unanswered = self._frames.held, len(self._answers)
        return Held(arriving, reserved, later, unanswered, in_memory, unsent - in_memory, self._is_muted)

    @property
    def _is_muted(self) -> bool:
        return self._muted_until > self.broker.clock()

    def proved(self, certificate: str | None) -> None:
        """The client showed a certificate of this name."""
        if certificate is not None and self.authentication is not None:
            self.authentication.principal = certificate
            self._allow_size()

    def _allow_size(self) -> None:
        """Let requests be large once it is known who sends them."""
        if self.authentication is None or self.authentication.ready:
            self._frames.max_bytes = self.broker.limits.request_bytes

    def opened(self, wire: Wire) -> None:
        """The connection stands."""
        self._wire = wire

    def get_buffer(self, _sizehint: int) -> memoryview:
        """Return where the next bytes go."""
        return self._frames.buffer()

    def buffer_updated(self, count: int) -> None:
        """Serve the requests that are whole now."""
        self.active_at = self.broker.clock()
        began = not self._frames.unfinished
        try:
            frames = self._frames.received(count)
            if began or frames:
                self.began_at = self.active_at
            for frame in frames:
                self._take(frame)
                self._frames.done(frame)
        except LogError as error:
            self._refuse(error)
        except Exception:
            log.exception("a request of %s failed; the connection is closed", self.host)
            self.close()
        if self._wire is not None and self._frames.held != self._held:
            self._hold(self._frames.held)

    def _hold(self, size: int) -> None:
        self._held = size
        if self.broker.memory.hold(self._go_on, size):
            self._pause()

    def _take(self, frame: memoryview) -> None:
        if self._serial or self._later:
            self._later.append(bytes(frame))
            self._pause()
        else:
            self._serve(frame)

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
            raise LogError(ErrorCode.illegal_sasl_state, f"{api.name} before the login")

    def _dispatch(self, api: Api, version: int, correlation: int, client_id: str, frame: memoryview, at: int) -> None:
        answer = Answer()
        self._answers.append(answer)
        tagged = api.is_flexible(version) and api is not _API_VERSIONS
        head = struct.pack(">i", correlation) + (b"\0" if tagged else b"")

        def reply(pieces: list[Piece]) -> None:
            answer.pieces = _framed(head, pieces) if pieces else []
            self._send_answers()

        if not api.serves(version):
            reply([_unsupported(api)])
            return
        call = Call(self, api, version, client_id, reply)
        hot = HOT.get(api.name)
        if hot is None:
            self._serial = True
            self._start_task(self._run(call, read_request(api, version, frame[at:])))
        else:
            self._serial = api.name != "produce"
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
        except Exception:
            log.exception("%s of version %d failed; the connection is closed", call.api.name, call.version)
            self.close()
        self._allow_size()
        if self.authentication is not None and self.authentication.failed:
            self.close()

    def _raw_login(self, message: bytes) -> None:
        answer = Answer()
        self._answers.append(answer)
        self._serial = True

        def reply(pieces: list[Piece]) -> None:
            answer.pieces = _framed(b"", pieces)
            self._send_answers()

        self._start_task(self._run_raw(Call(self, BY_NAME["sasl_authenticate"], 0, "", reply), message))

    async def _run_raw(self, call: Call, message: bytes) -> None:
        try:
            call.reply([await login_step(call, message)])
            self._allow_size()
        except LogError as error:
            self._refuse(error)

    def _send_answers(self) -> None:
        while self._answers and self._answers[0].pieces is not None:
            pieces = self._answers.popleft().pieces
            if pieces:
                self._put(pieces)
        if not self._answers and self._serial:
            self._serial = False
            self._go_on()

    def _put(self, pieces: list[Piece]) -> None:
        wire = self._wire
        if wire is not None:
            wire.send(pieces)
            if _is_full(wire):
                self._pause()
                self.broker.call_later(0.01, self._go_on)

    def _go_on(self) -> None:
        """Serve what came meanwhile, then read on."""
        try:
            while self._later and not self._serial:
                self._serve(memoryview(bytearray(self._later.popleft())))
        except LogError as error:
            self._refuse(error)
            return
        self._read_on()

    def _read_on(self) -> None:
        wire = self._wire
        if wire is None or self._later or self._serial or self._draining:
            return
        wait = self._muted_until - self.broker.clock()
        if _is_full(wire) or wait > 0:
            self.broker.call_later(max(wait / 1000, 0.01), self._go_on)
        else:
            self.began_at = self.broker.clock()
            wire.resume()

    def mute(self, milliseconds: int) -> None:
        """Read nothing for a while: the client exceeded its quota."""
        if milliseconds > 0:
            self._muted_until = self.broker.clock() + milliseconds
            self._pause()
            self.broker.call_later(milliseconds / 1000, self._go_on)

    def serve_alone(self) -> None:
        """Serve nothing else before the request that is being served is answered."""
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
        """End the connection."""
        if self._wire is not None:
            self._wire.close()

    def connection_lost(self, _error: Exception | None) -> None:
        """The other side is gone; nobody waits for the answers."""
        self._wire = None
        self._frames.clear()  # whoever still has this connection must not keep its buffers
        self._hold(0)
        self._answers.clear()
        self._later.clear()
        for task in list(self._tasks):
            task.cancel()
        if self.abandoned is not None:
            self.abandoned()
        on_closed, self.on_closed = self.on_closed, _nothing  # it knows this connection: a cycle that ends here
        on_closed()


def _nothing() -> None:
    """Do nothing."""


def _is_full(wire: Wire) -> bool:
    return wire.queued > _MOST_QUEUED or wire.buffered > _MOST_BUFFERED


def _framed(head: bytes, pieces: list[Piece]) -> list[Piece]:
    size = len(head) + sum(piece.size if isinstance(piece, Slice) else len(piece) for piece in pieces)
    return [struct.pack(">i", size) + head, *pieces]


def _unsupported(api: Api) -> bytes:
    # A client that asks for a newer ApiVersions gets version 0 of the answer, with the error and what is served.
    if api is _API_VERSIONS:
        served = b"".join(struct.pack(">hhh", each.key, *each.offered) for each in APIS.values())
        return struct.pack(">hi", ErrorCode.unsupported_version, len(APIS)) + served
    raise LogError(ErrorCode.unsupported_version, f"{api.name} is served in versions {api.oldest} to {api.newest}")
