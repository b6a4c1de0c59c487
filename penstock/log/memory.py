"""The memory that requests take while they arrive: who would exceed the bound waits until others are done."""

from __future__ import annotations

from collections.abc import Callable


class Memory:
    """Bytes held by unfinished requests of all connections.

    Whose request began first never waits: or all would wait for one another once they hold the bound together.
    """

    def __init__(self, bound: int) -> None:
        self._bound = bound
        self._holders: dict[Callable[[], None], int] = {}
        self._waiting: dict[Callable[[], None], None] = {}
        self.held = 0

    def hold(self, go_on: Callable[[], None], size: int) -> bool:
        """Count what one holds now; say whether it has to wait, until `go_on` is called."""
        self.held += size - self._holders.get(go_on, 0)
        if size:
            self._holders[go_on] = size
        else:
            self._holders.pop(go_on, None)
            self._waiting.pop(go_on, None)
            self._admit()
        if not size or self._has_room(go_on):
            return False
        self._waiting[go_on] = None
        return True

    def _has_room(self, go_on: Callable[[], None]) -> bool:
        return self.held <= self._bound or next(iter(self._holders)) == go_on

    def _admit(self) -> None:
        for go_on in list(self._waiting):
            if self._has_room(go_on):
                self._waiting.pop(go_on, None)
                go_on()
