"""How fast topics grow: measured between the requests of those who look at them."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping

# A rate is that of the last seconds, and of no less than one.
NEWEST_SECONDS = 15.0
SHORTEST_SECONDS = 1.0


class Rates:
    """Records per second of each topic, between the ends of now and those of some seconds ago."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._samples: deque[tuple[float, dict[str, int]]] = deque()
        self._lock = threading.Lock()

    def measure(self, ends: Mapping[str, int]) -> dict[str, float]:
        """Add a sample, the sum of end offsets of all topics; return the rates that are known.

        >>> times = iter([0.0, 2.0])
        >>> rates = Rates(lambda: next(times))
        >>> rates.measure({"orders": 10}), rates.measure({"orders": 30, "new": 5})
        ({}, {'orders': 10.0})
        """
        with self._lock:
            now = self._clock()
            while len(self._samples) > 1 and self._samples[0][0] < now - NEWEST_SECONDS:
                self._samples.popleft()
            since, before = self._samples[0] if self._samples else (now, {})
            if not self._samples or now - self._samples[-1][0] >= SHORTEST_SECONDS:
                self._samples.append((now, dict(ends)))
        seconds = now - since
        if seconds < SHORTEST_SECONDS:
            return {}
        # A topic that was recreated has smaller offsets.
        return {name: max(0, end - before[name]) / seconds for name, end in ends.items() if name in before}
