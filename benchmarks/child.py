"""A job of a bench, in a process of its own."""

from __future__ import annotations

import os
import threading
import time


def end_with_parent() -> None:
    """End this process when the one that started it is gone: a bench that is killed leaves none behind."""
    threading.Thread(target=_watch, args=[os.getppid()], daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)
