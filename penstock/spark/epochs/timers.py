"""Processing-time timers on the driver: what buckets of keys wait for, and the service that fires it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any

from penstock.errors import CheckpointDamaged
from penstock.spark.tasks.control_journal import ControlJournal
from penstock.spark.tasks.staging import Staging
from penstock.spark.tasks.timer_source import PENDING, clock_shift_us, shifted_clock
from penstock.storage.folders import Folder
from penstock.storage.journals import LOST

Timers = dict[str, dict[str, int]]


class PendingTimers:
    """The pending timers of one query, as its checkpoint stores them: by node and bucket, in microseconds."""

    def __init__(self, folder: Folder, query: str) -> None:
        self._folder, self._file = folder, f"rings-{query}.json"
        self._all: Timers = self._read()

    def _read(self) -> Timers:
        found = self._folder.read(self._file)
        try:
            return json.loads(found) if found is not None else {}
        except ValueError as error:
            message = f"{self._folder}/{self._file} cannot be read: {error}"
            raise CheckpointDamaged(message, hint=LOST) from error

    def create(self) -> None:
        """Write the file even if no timer is pending: from now on a missing file means damage."""
        if self._folder.read(self._file) is None:
            self._folder.write(self._file, b"{}")

    def save(self, staging: Staging, epoch: int) -> None:
        """Store what the tasks of an epoch registered, before Spark commits the epoch."""
        registered = [json.loads(data) for _, data in staging.files(epoch, PENDING)]
        if not registered:
            return
        timers = {node: dict(buckets) for node, buckets in self._all.items()}
        for node, bucket, at_us in registered:
            mine = timers.setdefault(node, {})
            mine.pop(str(bucket), None)
            if at_us is not None:
                mine[str(bucket)] = at_us
        self._folder.write(self._file, json.dumps(timers).encode())
        self._all = timers

    def waiting(self, nodes: Collection[str]) -> list[tuple[str, int]]:
        """Return the buckets of these nodes with a pending timer."""
        return [(node, int(bucket)) for node, buckets in self._all.items() if node in nodes for bucket in buckets]

    def due(self, now_us: int) -> list[tuple[str, int, int]]:
        """Return the timers that are due: node, bucket and time."""
        every = ((node, int(bucket), at) for node, buckets in self._all.items() for bucket, at in buckets.items())
        return [one for one in every if one[2] <= now_us]


class TimerService:
    """Fires timers when they are due, by appending them to the journal that `TimerSource` reads."""

    def __init__(self, folder: Folder, journal: ControlJournal, now: Callable[[], float] = time.time) -> None:
        self._journal, self._now = journal, now
        self._shifted_clock = shifted_clock(folder)
        self._fired: set[Any] = set()
        self._lock = threading.Lock()

    def fire_due(self, pending: Sequence[PendingTimers]) -> None:
        """Fire what is due now and was not fired yet."""
        with self._lock:
            now_us = round(self._now() * 1e6) + clock_shift_us(self._shifted_clock)
            due = {one for each in pending for one in each.due(now_us)}
            fresh = due - self._fired
            if fresh:
                self._fire(sorted({(node, bucket) for node, bucket, _ in fresh}))
            self._fired = due

    def fire_all(self, pending: Sequence[PendingTimers], nodes: Collection[str]) -> bool:
        """Fire all timers of these nodes for the last time, due or not; return whether there are any."""
        with self._lock:
            waiting = sorted({one for each in pending for one in each.waiting(nodes)})
            if waiting:
                self._fire([(*one, True) for one in waiting])
            return bool(waiting)

    def _fire(self, buckets: Sequence[tuple[Any, ...]]) -> None:
        self._journal.declare(json.dumps(buckets).encode())
