"""When records reach the disk: always, now and then, or when the system likes; many appends share one fsync."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Literal

from penstock.log.storage.handles import Handle

Policy = Literal["always", "interval", "none"]


class Syncer:
    """A thread that syncs what was written since it last looked, then tells the loop.

    While one fsync runs, further appends gather for the next: that is the group commit.
    """

    def __init__(self, observe: Callable[[float], None], interval: float = 1.0) -> None:
        self._observe = observe
        self._interval = interval
        self._work = threading.Condition()
        self._dirty: dict[Handle, None] = {}
        self._waiting: list[Callable[[OSError | None], None]] = []
        self._stopping = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="penstock-log-sync", daemon=True)

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin; `then` callbacks run on this loop."""
        self._loop = loop
        self._thread.start()

    def sync(self, handle: Handle, then: Callable[[OSError | None], None]) -> None:
        """Sync a file soon and call `then` on the loop, with the error if the disk refused."""
        with self._work:
            self._dirty[handle] = None
            self._waiting.append(then)
            self._work.notify()

    def later(self, handle: Handle) -> None:
        """Sync a file at the next interval."""
        with self._work:
            self._dirty[handle] = None

    def stop(self) -> None:
        """Sync what is left and end."""
        with self._work:
            self._stopping = True
            self._work.notify()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._stopping or self._dirty:
            with self._work:
                if not self._waiting and not self._stopping:
                    self._work.wait(self._interval)
                dirty, self._dirty = self._dirty, {}
                waiting, self._waiting = self._waiting, []
            error = self._sync(dirty)
            if waiting and self._loop is not None:
                self._loop.call_soon_threadsafe(_tell, waiting, error)

    def _sync(self, dirty: dict[Handle, None]) -> OSError | None:
        failed = None
        for handle in dirty:
            began = time.perf_counter()
            try:
                handle.sync()
            except OSError as error:
                failed = error
            self._observe(time.perf_counter() - began)
        return failed


def _tell(waiting: list[Callable[[OSError | None], None]], error: OSError | None) -> None:
    for then in waiting:
        then(error)
