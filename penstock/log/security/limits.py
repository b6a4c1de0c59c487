"""How much a client may ask of the server, and what counts it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
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


class Connections:
    """Counts open connections, in all and per host."""

    def __init__(self, limits: Limits, dynamic: Callable[[str], int] | None = None) -> None:
        """Hold to `limits`, and to settings of the broker that can be changed, if those are lower."""
        self._limits = limits
        self._dynamic = dynamic
        self._by_host: Counter[str] = Counter()
        self.open = 0

    def opened(self, host: str) -> None:
        """Count a new connection, or raise LogError: then it is to be closed, and was not counted."""
        if self.open >= self._lower(self._limits.connections, "max.connections"):
            self._refuse(f"{self.open} connections are open, which is the limit")
        if self._by_host[host] >= self._lower(self._limits.connections_per_host, "max.connections.per.ip"):
            self._refuse(f"{host} holds {self._by_host[host]} connections, which is the limit for one host")
        self._by_host[host] += 1
        self.open += 1

    def closed(self, host: str) -> None:
        """Count one that ended."""
        self.open -= 1
        self._by_host[host] -= 1
        if not self._by_host[host]:
            del self._by_host[host]

    def _lower(self, limit: int, setting: str) -> int:
        return limit if self._dynamic is None else min(limit, self._dynamic(setting))

    def _refuse(self, message: str) -> None:
        raise LogError(ErrorCode.policy_violation, message)
