"""Framing: splits received bytes into requests, each four bytes of length and a body."""

from __future__ import annotations

from penstock.log.errors import ErrorCode, LogError

_SCRATCH = bytearray(1 << 16)  # shared by all connections: idle ones use no memory
_LEAST, _STEP = 1 << 12, 1 << 16  # allocated before the bytes of a request arrive, whatever length it claims
_SPARE: list[bytearray] = []
_MOST_SPARE, _SMALLEST_SPARE, _LARGEST_SPARE = 4, 1 << 19, 1 << 21


class FrameReader:
    """Provides the receive buffer, and returns the complete requests."""

    __slots__ = ("_body", "_filled", "_length", "_partial", "max_bytes")

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._partial = b""
        self._body: bytearray | None = None
        self._filled = 0
        self._length = 0

    @property
    def memory_bytes(self) -> int:
        """Bytes of memory that an incomplete request uses."""
        return len(self._body) if self._body is not None else 0

    @property
    def unfinished(self) -> bool:
        """Whether a part of a request has arrived."""
        return bool(self._partial) or self._body is not None

    def buffer(self) -> memoryview:
        """Return the buffer for the next bytes."""
        if self._body is None:
            _SCRATCH[: len(self._partial)] = self._partial
            return memoryview(_SCRATCH)[len(self._partial) :]
        if self._filled == len(self._body):
            # Grow with the received bytes, not with the claimed length.
            self._body.extend(bytes(min(_rounded(self._length) - self._filled, self._filled)))
        return memoryview(self._body)[self._filled : self._length]

    def received(self, count: int) -> list[memoryview]:
        """Return the requests that are complete now; they are valid until the next call of `buffer`."""
        if self._body is not None:
            return self._more_body(count)
        end = len(self._partial) + count
        self._partial = b""
        whole: list[memoryview] = []
        view, at = memoryview(_SCRATCH), 0
        while end - at >= 4:
            length = self._checked(int.from_bytes(view[at : at + 4]))
            if at + 4 + length > end:
                self._begin_body(length, view[at + 4 : end])
                return whole
            whole.append(view[at + 4 : at + 4 + length])
            at += 4 + length
        self._partial = bytes(view[at:end])
        return whole

    def done(self, frame: memoryview) -> None:
        """Release a request that was handled; a large buffer is reused."""
        owner = frame.obj
        frame.release()
        if (
            isinstance(owner, bytearray)
            and _SMALLEST_SPARE <= len(owner) <= _LARGEST_SPARE
            and len(_SPARE) < _MOST_SPARE
        ):
            _SPARE.append(owner)

    def clear(self) -> None:
        """Drop an incomplete request."""
        self._partial, self._body = b"", None

    def _checked(self, length: int) -> int:
        if length > self.max_bytes:
            raise LogError(ErrorCode.invalid_request, f"a request of {length} bytes; at most {self.max_bytes}")
        return length

    def _begin_body(self, length: int, start: memoryview) -> None:
        body = _SPARE.pop() if _SPARE and length <= len(_SPARE[-1]) else bytearray(max(_LEAST, 2 * len(start)))
        body[: len(start)] = start
        self._body, self._filled, self._length = body, len(start), length

    def _more_body(self, count: int) -> list[memoryview]:
        self._filled += count
        if self._filled < self._length or self._body is None:
            return []
        body, self._body = self._body, None
        return [memoryview(body)[: self._length]]


def spare_bytes() -> int:
    """Return the size of the buffers kept for the next large requests."""
    return len(_SCRATCH) + sum(map(len, _SPARE))


def _rounded(length: int) -> int:
    # So that requests of similar size fit the same spare buffer.
    return -(-length // _STEP) * _STEP
