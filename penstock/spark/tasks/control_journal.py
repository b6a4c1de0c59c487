"""Control journals: entries that the driver appends and the scans of a query read. Times that it declares are one.

A declared time advances the watermark when no row does. At the end of bounded input it closes every window; in tests
it is `AdvanceTime`. Each is an entry of a journal in the checkpoint, so a replayed epoch sees the same ones. A time may
be for one event time only: while a source is idle, the times of the others are declared for it. A scan that knows the
event time emits them itself; where Spark declares the event time, they come from the clock source.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pyarrow as pa

from penstock.contracts import Offsets, Rejected, Source
from penstock.errors import CheckpointDamaged
from penstock.schema import Field, Schema
from penstock.spark.tasks.internal_columns import EVENT_TIME, ORDER, TICK, WATERMARK
from penstock.storage.folders import Folder
from penstock.storage.journals import BATCH, LOST, journal

# The journal of timers that fired, and the source that reads it.
TIMERS = "wakeups"


class ControlJournal:
    """The entries of one journal, as this process knows them; nothing is read twice.

    Invariant: `_lines` are the entries from number `first` on, and the newest entry is always among them.
    """

    def __init__(self, folder: Folder, name: str, batch: int = BATCH) -> None:
        self._folder, self.name, self._batch = folder, name, batch
        self._journal = journal(folder, name, batch)
        self.where = self._journal.where
        self._lines: list[bytes] = []
        self.first = 0
        self._tried = 0
        self._lock = threading.RLock()

    def __reduce__(self) -> tuple[type[ControlJournal], tuple[Folder, str, int]]:
        return type(self), (self._folder, self.name, self._batch)

    def end(self) -> int:
        """Return how many entries were appended so far, dropped ones included."""
        with self._lock:
            fresh = self._journal.fresh()
            if not self._lines:
                self.first = self._journal.first
            self._lines += fresh
            return self.first + len(self._lines)

    def newest(self) -> bytes | None:
        """Return the newest entry."""
        with self._lock:
            self.end()
            return self._lines[-1] if self._lines else None

    def between(self, start: int, end: int) -> list[bytes]:
        """Return the entries of a range of numbers; a reader that starts with 0 gets all that are left."""
        with self._lock:
            known = self.end()
            if 0 < start < self.first or end > known:
                message = f"{self.where} holds the entries {self.first} to {known}, not {start} to {end}"
                raise CheckpointDamaged(message, hint=LOST)
            return self._lines[max(start - self.first, 0) : max(end - self.first, 0)]

    def declare(self, line: bytes) -> None:
        """Add an entry durably, after those of others."""
        with self._lock:
            self.end()
            while not self._journal.append([line]):
                self.end()
            self._lines.append(line)

    def forget(self, passed: int) -> None:
        """Free the memory of entries that this process has read; they stay in the checkpoint."""
        with self._lock:
            self._drop(passed)
            self._journal.forget(self.first)

    @property
    def is_long(self) -> bool:
        """Whether enough entries came since the last compaction to try another."""
        return self._journal.loose - self._tried >= self._batch

    def compact(self, first: int, passed: int) -> None:
        """Drop the entries before `first`, which no retained epoch needs; live readers have read up to `passed`."""
        with self._lock:
            known = self.end()
            first = min(max(first, self.first), known - 1)
            if first < 0:
                return
            self._journal.compact(first, min(passed, known), self._lines[first - self.first :])
            self._drop(first)
            self.end()
            self._tried = self._journal.loose

    def _drop(self, first: int) -> None:
        gone = min(first - self.first, len(self._lines) - 1)
        if gone > 0:
            del self._lines[:gone]
            self.first += gone


CLOCK = "clock"
TIMES_JOURNAL = "ticks"
# The driver declares it where the clock source must give at least one row in a run; it advances no watermark.
MIN_WATERMARK = datetime(1, 1, 1, tzinfo=UTC)
# Far enough to close every window, near enough that Spark can still add a window's length to it.
MAX_WATERMARK = datetime(9999, 1, 1, tzinfo=UTC)


class ClockSource(Source):
    """Reads the times that the driver declared."""

    name = CLOCK
    schema = Schema((Field("at", "timestamp"), Field("only", "string")))

    def __init__(self, folder: Folder) -> None:
        self.ticks = DeclaredTimes(folder)

    def latest(self, start: Offsets, max_rows: int | None) -> Offsets:
        """All that was declared."""
        return {"0": self.ticks.end()}

    def splits(self, start: Offsets, end: Offsets, parallelism: int) -> Sequence[Any]:
        """Ship the times themselves: a task would have to read the journal from its start."""
        ticks = self.ticks.times(int(start.get("0") or 0), int(end["0"]))
        return [ticks] if ticks else []

    def read_split(self, split: Any) -> Iterator[pa.RecordBatch | Rejected]:
        """Yield the declared times."""
        times, only = [tick.at for tick in split], [tick.only for tick in split]
        columns = [pa.array(times, pa.timestamp("us", "UTC")), pa.array(only, pa.string())]
        yield pa.RecordBatch.from_arrays(columns, names=["at", "only"])

    def commit(self, offsets: Offsets) -> None:
        """Free the memory of times that were read."""
        self.ticks.forget(int(offsets.get("0") or 0))


class DeclaredTime(NamedTuple):
    """A declared time in microseconds, and the key of the event time that it is for; None: for all."""

    at: int
    only: str | None = None


class DeclaredTimes(ControlJournal):
    """The declared times of a checkpoint."""

    def __init__(self, folder: Folder, name: str = TIMES_JOURNAL, batch: int = BATCH) -> None:
        super().__init__(folder, name, batch)

    def times(self, start: int, end: int) -> list[DeclaredTime]:
        """Return the declared times of a range of numbers."""
        return [self._tick(line) for line in self.between(start, end)]

    def tick(self, time: datetime, only: str | None = None) -> None:
        """Declare durably that no row before this time will come, for one event time or for all."""
        self.declare(json.dumps(_micros(time) if only is None else [_micros(time), only]).encode())

    def is_over(self) -> bool:
        """Return whether the maximum watermark was declared: the end of input."""
        newest = self.newest()
        return newest is not None and self._tick(newest).at >= _micros(MAX_WATERMARK)

    def _tick(self, line: bytes) -> DeclaredTime:
        try:
            found = json.loads(line)
            at, only = found if isinstance(found, list) else (found, None)
            return DeclaredTime(int(at), only)
        except (ValueError, TypeError) as error:
            message = f"{self.where} cannot be read: {line[:80]!r} is not a declared time"
            raise CheckpointDamaged(message, hint=LOST) from error


def tick_rows(times: tuple[int, ...], output: Schema) -> pa.RecordBatch:
    """Return rows that carry declared times and nothing else."""
    special = {
        EVENT_TIME: pa.array(times, pa.timestamp("us", "UTC")),
        TICK: pa.array([True] * len(times)),
        ORDER: pa.array([0] * len(times), pa.int64()),
    }
    wanted = output.nullable().arrow
    special |= {name: pa.array([0] * len(times), pa.int64()) for name in wanted.names if name.startswith(WATERMARK)}
    columns = [special.get(field.name, pa.nulls(len(times), field.type)) for field in wanted]
    return pa.RecordBatch.from_arrays(columns, schema=wanted)


def _micros(time: datetime) -> int:
    # Not by its timestamp(): a float has no microseconds after the year 2255.
    return (time - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
