"""Counters of temporary memory that threads use, for the metrics."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class UsageCounter:
    """A number that several threads add to and subtract from."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.value = 0

    @contextmanager
    def counted(self, amount: int) -> Iterator[None]:
        """Count an amount while the block runs."""
        self.add(amount)
        try:
            yield
        finally:
            self.add(-amount)

    def add(self, amount: int) -> None:
        """Add an amount, which may be negative."""
        with self._lock:
            self.value += amount


DECOMPRESSED_BYTES = UsageCounter()  # of clients' batches that are being validated
COMPACTION_KEYS = UsageCounter()  # keys in the map of a compaction
