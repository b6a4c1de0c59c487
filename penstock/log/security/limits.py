"""How much a client may ask of the server, and what counts it."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from dataclasses import dataclass, fields

from penstock.errors import SettingsError
from penstock.log.errors import ErrorCode, LogError

_MIB = 1024 * 1024


@dataclass(frozen=True)
class Limits:
    """The bounds of one server; each is positive."""

    request_bytes: int = 100 * _MIB
    login_bytes: int = 512 * 1024  # a request before it is known who speaks
    connections: int = 20_000
    connections_per_host: int = 12_000
    in_flight_bytes: int = 256 * _MIB
    idle_seconds: float = 600

    def __post_init__(self) -> None:
        for each in fields(self):
            if getattr(self, each.name) <= 0:
                message = f"the limit {each.name} is {getattr(self, each.name)}"
                raise SettingsError(message, hint="give a number above 0")

    def check_request(self, size: int, *, ready: bool = True) -> None:
        """Refuse a request by the size that its sender announced, before a byte of it is kept."""
        bound = self.request_bytes if ready else self.login_bytes
        if not 0 < size <= bound:
            raise LogError(ErrorCode.invalid_request, f"a request of {size} bytes; the limit is {bound}")


class Connections:
    """Counts open connections, in all and per host."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._by_host: Counter[str] = Counter()
        self.open = 0

    def opened(self, host: str) -> None:
        """Count a new connection, or raise LogError: then it is to be closed, and was not counted."""
        if self.open >= self._limits.connections:
            self._refuse(f"{self.open} connections are open, which is the limit")
        if self._by_host[host] >= self._limits.connections_per_host:
            self._refuse(f"{host} holds {self._by_host[host]} connections, which is the limit for one host")
        self._by_host[host] += 1
        self.open += 1

    def closed(self, host: str) -> None:
        """Count one that ended."""
        self.open -= 1
        self._by_host[host] -= 1
        if not self._by_host[host]:
            del self._by_host[host]

    def _refuse(self, message: str) -> None:
        raise LogError(ErrorCode.policy_violation, message)


class InFlight:
    """The bytes of requests that are held at once: who would exceed them waits, in order of arrival."""

    def __init__(self, limits: Limits) -> None:
        # A single request may always pass, or one of the largest size would wait for ever.
        self._bound = max(limits.in_flight_bytes, limits.request_bytes)
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self.held = 0

    async def take(self, size: int) -> None:
        """Wait until there is room for a request, and hold it."""
        if not self._waiting and self.held + size <= self._bound:
            self.held += size
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append((size, turn))
        try:
            await turn
        except asyncio.CancelledError:
            self._give_up(size, turn)
            raise

    def give(self, size: int) -> None:
        """Give back what a request held."""
        self.held -= size
        self._admit()

    def _give_up(self, size: int, turn: asyncio.Future[None]) -> None:
        if turn.done() and not turn.cancelled():
            self.give(size)
        else:
            self._waiting = deque(each for each in self._waiting if each[1] is not turn)
            self._admit()

    def _admit(self) -> None:
        while self._waiting and self.held + self._waiting[0][0] <= self._bound:
            size, turn = self._waiting.popleft()
            if not turn.done():
                self.held += size
                turn.set_result(None)
