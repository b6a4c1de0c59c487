"""Wake-ups: turns for buckets of keys whose timers go by the processing time, when no row comes.

A bucket that waits for a processing time notes it with its epoch (`ring`). The epoch writer keeps these notes in the
checkpoint, and the driver, which looks at the clock, declares a wake-up when one is due: a line in a journal that Spark
reads as a source, so that a replayed epoch wakes the same buckets. The epoch that reads it starts after that time.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import pyarrow as pa

from penstock.contracts import Offsets, Rejected, Source
from penstock.errors import CheckpointDamaged
from penstock.folders import Folder
from penstock.folders.file_names import file_name
from penstock.folders.journal import LOST
from penstock.schema import Schema
from penstock.spark.epochs.declared import WAKEUPS, Declared
from penstock.spark.epochs.staging import Staging

NAME = WAKEUPS
_SHIFT = "clock-shift"
_RING = "ring="
Rings = dict[str, dict[str, int]]


class Wakeups(Source):
    """Reads the wake-ups that the driver declared: a node and a bucket each, and whether it is the last one."""

    name = NAME
    schema = Schema("node string, bucket int, ended boolean")

    def __init__(self, folder: Folder) -> None:
        self._declared = Declared(folder, NAME)

    def latest(self, start: Offsets, max_rows: int | None) -> Offsets:
        """All that was declared."""
        return {"0": self._declared.end()}

    def splits(self, start: Offsets, end: Offsets, parallelism: int) -> Sequence[Any]:
        """Ship the wake-ups themselves, each bucket once: a task would have to read the journal from its start."""
        lines = self._declared.between(int(start.get("0") or 0), int(end["0"]))
        buckets = {one for line in lines for one in woken(line, self._declared.where)}
        return [sorted(buckets)] if buckets else []

    def read_split(self, split: Any) -> Iterator[pa.RecordBatch | Rejected]:
        """Yield each bucket once."""
        rows = [dict(zip(self.schema.names, one, strict=True)) for one in split]
        yield pa.RecordBatch.from_pylist(rows, schema=self.schema.arrow)

    def commit(self, offsets: Offsets) -> None:
        """Free the memory of wake-ups that were read."""
        self._declared.forget(int(offsets.get("0") or 0))


def woken(line: bytes, where: str) -> list[tuple[str, int, bool]]:
    """Return the wake-ups of a journal entry: node, bucket, and whether it is the last one."""
    try:
        return [(node, int(bucket), bool(ended)) for node, bucket, *ended in json.loads(line)]
    except (ValueError, TypeError) as error:
        message = f"{where} cannot be read: {line[:80]!r} is not a list of wake-ups"
        raise CheckpointDamaged(message, hint=LOST) from error


def ring(staging: Staging, epoch: int, node: str, bucket: int, at_us: int | None) -> None:
    """Note, in a task, when a bucket of a node wants a turn; None if it no longer does."""
    staging.put(epoch, f"{_RING}{file_name(node)}={bucket}.json", json.dumps([node, bucket, at_us]).encode())


def shift_us(folder: Folder | None) -> int:
    """Return how far a test has moved the clock."""
    return int((folder and folder.read(_SHIFT)) or 0)


def moved_clock(folder: Folder) -> Folder | None:
    """Return the folder whose clock a test moves, if one does."""
    return folder if folder.read(_SHIFT) is not None else None


class RingsOf:
    """The notes of one query, as its checkpoint keeps them."""

    def __init__(self, folder: Folder, query: str) -> None:
        self._folder, self._file = folder, f"rings-{query}.json"
        self._all: Rings = self._read()

    def _read(self) -> Rings:
        found = self._folder.read(self._file)
        try:
            return json.loads(found) if found is not None else {}
        except ValueError as error:
            message = f"{self._folder}/{self._file} cannot be read: {error}"
            raise CheckpointDamaged(message, hint=LOST) from error

    def create(self) -> None:
        """Write the file even if nobody waits yet: from now on it is damage if it is gone."""
        if self._folder.read(self._file) is None:
            self._folder.write(self._file, b"{}")

    def keep(self, staging: Staging, epoch: int) -> None:
        """Keep what the tasks of an epoch noted, before Spark takes the epoch for done."""
        noted = [json.loads(data) for _, data in staging.left(epoch, _RING)]
        if not noted:
            return
        rings = {node: dict(buckets) for node, buckets in self._all.items()}
        for node, bucket, at_us in noted:
            mine = rings.setdefault(node, {})
            mine.pop(str(bucket), None)
            if at_us is not None:
                mine[str(bucket)] = at_us
        self._folder.write(self._file, json.dumps(rings).encode())
        self._all = rings

    def waiting(self, nodes: Collection[str]) -> list[tuple[str, int]]:
        """Return the buckets of these nodes that wait for any time."""
        return [(node, int(bucket)) for node, buckets in self._all.items() if node in nodes for bucket in buckets]

    def due(self, now_us: int) -> list[tuple[str, int, int]]:
        """Return what is due: node, bucket and time."""
        every = ((node, int(bucket), at) for node, buckets in self._all.items() for bucket, at in buckets.items())
        return [one for one in every if one[2] <= now_us]


class Alarm:
    """Declares wake-ups when they are due; the driver's half."""

    def __init__(self, folder: Folder, wakeups: Declared, now: Callable[[], float] = time.time) -> None:
        self._wakeups, self._now = wakeups, now
        self._shifts = moved_clock(folder)
        self._declared: set[Any] = set()
        self._lock = threading.Lock()

    def watch(self, rings: Sequence[RingsOf]) -> None:
        """Look at the clock once."""
        with self._lock:
            now_us = round(self._now() * 1e6) + shift_us(self._shifts)
            due = {one for each in rings for one in each.due(now_us)}
            fresh = due - self._declared
            if fresh:
                self._declare(sorted({(node, bucket) for node, bucket, _ in fresh}))
            self._declared = due

    def close(self, rings: Sequence[RingsOf], nodes: Collection[str]) -> bool:
        """Wake the buckets of these nodes for the last time, whenever they wanted; say whether there are any."""
        with self._lock:
            waiting = sorted({one for each in rings for one in each.waiting(nodes)})
            if waiting:
                self._declare([(*one, True) for one in waiting])
            return bool(waiting)

    def _declare(self, buckets: Sequence[tuple[Any, ...]]) -> None:
        self._wakeups.declare(json.dumps(buckets).encode())
