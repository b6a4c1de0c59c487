"""The memory that requests take while they arrive: who would exceed the bound waits until others are done."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable


class Memory:
    """Bytes held by unfinished requests of all connections."""

    def __init__(self, bound: int) -> None:
        self._bound = bound
        self._waiting: deque[Callable[[], None]] = deque()
        self.held = 0

    def change(self, difference: int) -> None:
        """Count what a connection holds more or less; those who wait go on when there is room."""
        self.held += difference
        while self._waiting and self.held <= self._bound:
            self._waiting.popleft()()

    def must_wait(self, own: int) -> bool:
        """Say whether one who holds so much has to wait; the only one never has."""
        return self.held > self._bound and self.held > own

    def wait(self, go_on: Callable[[], None]) -> None:
        """Call back when there is room."""
        self._waiting.append(go_on)
