"""Waiting in tests: for a condition, with a deadline. Nothing else in the tests polls or sleeps."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

SECONDS = 60.0
POLL_SECONDS = 0.05


def wait_for(
    condition: Callable[[], object],
    otherwise: str = "the condition did not become true",
    *,
    seconds: float = SECONDS,
    poll: float = POLL_SECONDS,
    while_: Callable[[], object] | None = None,
) -> None:
    """Return as soon as the condition is true; fail with a message at the deadline, or once `while_` is false."""
    deadline = time.monotonic() + seconds
    pause = threading.Event()
    while not condition():
        assert while_ is None or while_() or condition(), f"{otherwise}: it ended before"
        assert time.monotonic() < deadline, f"{otherwise} within {seconds:.0f} s"
        pause.wait(poll)


def becomes(condition: Callable[[], object], *, seconds: float, poll: float = POLL_SECONDS) -> bool:
    """Say whether the condition becomes true before the deadline."""
    deadline = time.monotonic() + seconds
    pause = threading.Event()
    while not condition():
        if time.monotonic() >= deadline:
            return False
        pause.wait(poll)
    return True
