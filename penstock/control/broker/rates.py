"""How fast topics grow: measured between the requests of those who look at them."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping

# A rate is that of the last seconds, and of no less than one.
NEWEST_SECONDS = 15.0
SHORTEST_SECONDS = 1.0
FORGOTTEN_SECONDS = 300.0


class Rates:
    """Records per second of each topic, between its end of now and that of some seconds ago."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._samples: dict[str, deque[tuple[float, int]]] = {}
        self._lock = threading.Lock()

    def measure(self, ends: Mapping[str, int]) -> dict[str, float]:
        """Add a sample of some topics, the sum of end offsets of each; return the rates that are known.

        >>> times = iter([0.0, 2.0])
        >>> rates = Rates(lambda: next(times))
        >>> rates.measure({"orders": 10}), rates.measure({"orders": 30, "new": 5})
        ({}, {'orders': 10.0})
        """
        now = self._clock()
        with self._lock:
            self._forget(now)
            found = {name: self._rate(name, end, now) for name, end in ends.items()}
        return {name: rate for name, rate in found.items() if rate is not None}

    def _rate(self, name: str, end: int, now: float) -> float | None:
        samples = self._samples.setdefault(name, deque())
        while len(samples) > 1 and samples[0][0] < now - NEWEST_SECONDS:
            samples.popleft()
        since, before = samples[0] if samples else (now, end)
        if not samples or now - samples[-1][0] >= SHORTEST_SECONDS:
            samples.append((now, end))
        if now - since < SHORTEST_SECONDS:
            return None
        # A topic that was recreated has smaller offsets.
        return max(0, end - before) / (now - since)

    def _forget(self, now: float) -> None:
        """Drop topics that nobody has looked at for long, such as deleted ones."""
        old = [name for name, samples in self._samples.items() if samples[-1][0] < now - FORGOTTEN_SECONDS]
        for name in old:
            del self._samples[name]
