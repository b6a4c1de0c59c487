"""SIGINT and SIGTERM while a job runs: the first stops it gracefully, a second SIGINT at once."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from rich.console import Console


@contextmanager
def stop_requested(console: Console) -> Iterator[threading.Event]:
    """Set an event at the first signal; exit at once at the second SIGINT.

    The handler itself does not stop the run: it may interrupt a call that holds the run's lock.
    """
    asked = threading.Event()

    def ask(number: int, _frame: FrameType | None) -> None:
        if asked.is_set() and number == signal.SIGINT:
            console.show_cursor(True)
            os._exit(130)
        asked.set()

    if threading.current_thread() is not threading.main_thread():
        yield asked
        return
    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
