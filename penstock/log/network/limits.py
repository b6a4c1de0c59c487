"""Limits of clients: connections, request sizes, and the memory of requests that are arriving."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, fields

from penstock.errors import SettingsError
from penstock.log.errors import ErrorCode, LogError

_MIB = 1024 * 1024


@dataclass(frozen=True)
class Limits:
    """The limits of one server; each is positive."""

    request_bytes: int = 100 * _MIB
    login_bytes: int = 512 * 1024  # of a request before authentication
    connections: int = 20_000
    connections_per_host: int = 12_000
    in_flight_bytes: int = 256 * _MIB
    idle_seconds: float = 600

    def __post_init__(self) -> None:
        for each in fields(self):
            if getattr(self, each.name) <= 0:
                message = f"the limit {each.name} is {getattr(self, each.name)}"
                raise SettingsError(message, hint="give a number above 0")


class ConnectionCounter:
    """Counts open connections, in total and per host."""

    def __init__(self, limits: Limits, dynamic: Callable[[str], int] | None = None) -> None:
        """Enforce `limits`, and the dynamic configs of the broker if those are lower."""
        self._limits = limits
        self._dynamic = dynamic
        self._by_host: Counter[str] = Counter()
        self.open = 0

    def opened(self, host: str) -> None:
        """Count a new connection, or raise LogError: then close it, it was not counted."""
        if self.open >= self._lower(self._limits.connections, "max.connections"):
            self._refuse(f"{self.open} connections are open, which is the limit")
        if self._by_host[host] >= self._lower(self._limits.connections_per_host, "max.connections.per.ip"):
            self._refuse(f"{host} has {self._by_host[host]} connections, which is the limit for one host")
        self._by_host[host] += 1
        self.open += 1

    def closed(self, host: str) -> None:
        """Count a connection that was closed."""
        self.open -= 1
        self._by_host[host] -= 1
        if not self._by_host[host]:
            del self._by_host[host]

    def _lower(self, limit: int, setting: str) -> int:
        return limit if self._dynamic is None else min(limit, self._dynamic(setting))

    def _refuse(self, message: str) -> None:
        raise LogError(ErrorCode.policy_violation, message)


class RequestMemory:
    """Bytes used by incomplete requests of all connections; above the bound, connections have to wait.

    The request that started first never waits: otherwise all would wait for one another once they use the whole bound.
    """

    def __init__(self, bound: int) -> None:
        self._bound = bound
        self._holders: dict[Callable[[], None], int] = {}
        self._waiting: dict[Callable[[], None], None] = {}
        self.reserved = 0

    def reserve(self, resume: Callable[[], None], size: int) -> bool:
        """Set what a request uses now; return whether it has to wait until `resume` is called."""
        self.reserved += size - self._holders.get(resume, 0)
        if size:
            self._holders[resume] = size
        else:
            self._holders.pop(resume, None)
            self._waiting.pop(resume, None)
            self._admit()
        if not size or self._has_room(resume):
            return False
        self._waiting[resume] = None
        return True

    def _has_room(self, resume: Callable[[], None]) -> bool:
        return self.reserved <= self._bound or next(iter(self._holders)) == resume

    def _admit(self) -> None:
        for resume in list(self._waiting):
            if self._has_room(resume):
                self._waiting.pop(resume, None)
                resume()
