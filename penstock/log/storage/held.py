"""What threads hold for a while: counted when they take it, so that the metrics can show it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Held:
    """A number that several threads add to and take from."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.now = 0

    @contextmanager
    def hold(self, amount: int) -> Iterator[None]:
        """Count an amount as long as the block runs."""
        self.add(amount)
        try:
            yield
        finally:
            self.add(-amount)

    def add(self, amount: int) -> None:
        """Count more, or less."""
        with self._lock:
            self.now += amount


OPENED_BYTES = Held()  # records of clients' batches, decompressed
COMPACTED_KEYS = Held()  # keys in the map of a compaction
