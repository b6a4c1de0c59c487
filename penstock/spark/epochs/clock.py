"""The clock: a source of declared times, which moves the watermark when no row does.

At the end of bounded input it closes every window; in tests it is `AdvanceTime`. Each time is an entry of a
journal in the checkpoint, so a replayed epoch sees the same ones. A time may be for one event time only: while a source
is idle, the times of the others are declared for it. A scan that knows the event time hands them on itself; where Spark
declares the event time, they come from a source of their own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pyarrow as pa

from penstock.contracts import Offsets, Rejected, Source
from penstock.errors import CheckpointDamaged
from penstock.folders import Folder
from penstock.folders.journal import BATCH, LOST
from penstock.schema import Field, Schema
from penstock.spark.epochs.declared import Declared
from penstock.spark.hidden import EVENT_TIME, ORDER, TICK, WATERMARK

NAME = "clock"
JOURNAL = "ticks"
# Every run declares it where it needs the clock to tick at least once; it moves no watermark.
BEGIN_OF_TIME = datetime(1, 1, 1, tzinfo=UTC)
# Far enough to close every window, near enough that Spark can still add a window's length to it.
END_OF_TIME = datetime(9999, 1, 1, tzinfo=UTC)


class Clock(Source):
    """Reads the times that the driver declared."""

    name = NAME
    schema = Schema((Field("at", "timestamp"), Field("only", "string")))

    def __init__(self, folder: Folder) -> None:
        self.ticks = Ticks(folder)

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


class Tick(NamedTuple):
    """A declared time in microseconds, and the key of the event time that it is for; None: for all."""

    at: int
    only: str | None = None


class Ticks(Declared):
    """The declared times of a checkpoint."""

    def __init__(self, folder: Folder, name: str = JOURNAL, batch: int = BATCH) -> None:
        super().__init__(folder, name, batch)

    def times(self, start: int, end: int) -> list[Tick]:
        """Return the declared times of a range of numbers."""
        return [self._tick(line) for line in self.between(start, end)]

    def tick(self, time: datetime, only: str | None = None) -> None:
        """Declare durably that no row before this time will come, for one event time or for all."""
        self.declare(json.dumps(_micros(time) if only is None else [_micros(time), only]).encode())

    def is_over(self) -> bool:
        """Say whether the end of time was declared."""
        newest = self.newest()
        return newest is not None and self._tick(newest).at >= _micros(END_OF_TIME)

    def _tick(self, line: bytes) -> Tick:
        try:
            found = json.loads(line)
            at, only = found if isinstance(found, list) else (found, None)
            return Tick(int(at), only)
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
