"""How much an epoch may read: a backlog in big epochs, a live stream in small ones."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

FIRST = 250_000
LARGEST = 50_000_000
GROWTH = 4
TARGET_SECONDS = 5.0


@dataclass
class Pacer:
    """Adapts the number of rows to how long epochs take; pure but for the clock that it is given.

    While epochs are full and end in less than half the target, the next one may be larger: Spark's cost per epoch is
    fixed, so fewer epochs drain a backlog sooner. An epoch that took twice the target makes the next one smaller.
    """

    fixed: int | None = None
    now: Callable[[], float] = field(default=time.monotonic)
    limit: int = FIRST
    _asked: float | None = None

    def rows(self) -> int:
        """Return how many rows the next epoch may read."""
        if self.fixed is not None:
            return self.fixed
        return self.limit

    def offered(self, *, full: bool) -> None:
        """Note that an epoch begins now, and whether it reads all that it may."""
        now = self.now()
        took = None if self._asked is None else now - self._asked
        self._asked = now if full else None
        if took is None:
            return
        if took < TARGET_SECONDS / 2:
            self.limit = min(self.limit * GROWTH, LARGEST)
        elif took > TARGET_SECONDS * 2:
            self.limit = max(self.limit // 2, FIRST)
