"""Group commit: when records are synced (always, at an interval, or by the OS); many appends share one fsync."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from typing import Literal

from penstock.log.storage.segments.files import Handle

log = logging.getLogger("penstock.log")
Then = Callable[[OSError | None], None]
Policy = Literal["always", "interval", "none"]


class Syncer:
    """A thread that syncs what was written since its last round, then calls back on the event loop.

    While one fsync runs, further appends queue for the next: that is the group commit.
    """

    def __init__(self, observe: Callable[[float], None], interval: float = 1.0) -> None:
        self._observe = observe
        self._interval = interval
        self._work = threading.Condition()
        self._dirty: dict[Handle, None] = {}
        self._waiting: list[tuple[Handle, Then]] = []
        self._pending_saves: list[tuple[Handle, Callable[[], None]]] = []
        self._stopping = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="penstock-log-sync", daemon=True)

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start the thread; `then` callbacks run on this loop."""
        self._loop = loop
        self._thread.start()

    def sync(self, handle: Handle, then: Then) -> None:
        """Sync a file soon and call `then` on the loop, with the error if that failed."""
        with self._work:
            self._dirty[handle] = None
            self._waiting.append((handle, then))
            self._work.notify()

    @property
    def waiting(self) -> int:
        """How many callbacks wait for an fsync."""
        return len(self._waiting) + len(self._pending_saves)

    def sync_then_save(self, handle: Handle, save: Callable[[], None]) -> None:
        """Sync a file and then, in the thread, save what depends on it."""
        with self._work:
            self._dirty[handle] = None
            self._pending_saves.append((handle, save))

    def later(self, handle: Handle) -> None:
        """Sync a file at the next interval."""
        with self._work:
            self._dirty[handle] = None

    def stop(self) -> None:
        """Sync what is left and stop."""
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
                pending_saves, self._pending_saves = self._pending_saves, []
            errors = self._sync(dirty)
            if waiting and self._loop is not None:
                self._loop.call_soon_threadsafe(_call_back, [(then, errors.get(handle)) for handle, then in waiting])
            for handle, save in pending_saves:
                if handle not in errors:
                    _save(save)

    def _sync(self, dirty: dict[Handle, None]) -> dict[Handle, OSError]:
        errors: dict[Handle, OSError] = {}
        for handle in dirty:
            began = time.perf_counter()
            try:
                handle.sync()
            except OSError as error:
                log.error("cannot sync %s: %s", handle.path, error.strerror)
                errors[handle] = error
            self._observe(time.perf_counter() - began)
        return errors


def _call_back(outcomes: list[tuple[Then, OSError | None]]) -> None:
    for then, error in outcomes:
        try:
            then(error)
        except Exception:  # any bug in one callback must not keep the others from their replies
            log.exception("a callback failed after an fsync")


def _save(save: Callable[[], None]) -> None:
    try:
        save()
    except OSError as error:
        log.warning("cannot save a snapshot, so the next start reads more: %s", error)
