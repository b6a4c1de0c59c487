"""The clock: a source of declared times, which moves the watermark when no row does.

At the end of bounded input it closes every window; in tests it is `AdvanceTime`. Each time is a line in the
checkpoint, so a replayed epoch sees the same ones. A time may be for one event time only: while a source is idle, the
times of the others are declared for it. A scan that knows the event time hands them on itself; where Spark
declares the event time, they come from a source of their own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

import pyarrow as pa

from penstock.contracts import Offsets, Rejected, Source
from penstock.folders import Folder
from penstock.folders.journal import journal
from penstock.schema import Field, Schema

NAME = "clock"
# Every run declares it where it needs the clock to tick at least once; it moves no watermark.
BEGIN_OF_TIME = datetime(1970, 1, 1, tzinfo=UTC)
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
        return {"0": len(self.ticks.all())}

    def read(self, partition: str, start: int | str | None, end: int | str) -> Iterator[pa.RecordBatch | Rejected]:
        """Yield the declared times."""
        ticks = self.ticks.all()[int(start or 0) : int(end)]
        times, only = [tick.at for tick in ticks], [tick.only for tick in ticks]
        columns = [pa.array(times, pa.timestamp("us", "UTC")), pa.array(only, pa.string())]
        yield pa.RecordBatch.from_arrays(columns, names=["at", "only"])


class Tick(NamedTuple):
    """A declared time in microseconds, and the key of the event time that it is for; None: for all."""

    at: int
    only: str | None = None


class Ticks:
    """The declared times of a checkpoint; of what was read before, nothing is read again."""

    def __init__(self, folder: Folder) -> None:
        self._journal = journal(folder, "ticks")
        self._known: list[Tick] = []

    def all(self) -> list[Tick]:
        """Return all that was declared so far."""
        for line in self._journal.fresh():
            found = json.loads(line)
            self._known.append(Tick(*found) if isinstance(found, list) else Tick(found))
        return self._known


def declare(folder: Folder, time: datetime, only: str | None = None) -> None:
    """Declare durably that no row before this time will come."""
    ticks = journal(folder, "ticks")
    line = json.dumps(_micros(time) if only is None else [_micros(time), only]).encode()
    ticks.fresh()
    while not ticks.append([line]):
        ticks.fresh()


def is_over(ticks: Sequence[Tick]) -> bool:
    """Say whether the end of time was declared."""
    return bool(ticks) and ticks[-1].at >= _micros(END_OF_TIME)


def _micros(time: datetime) -> int:
    return round(time.timestamp() * 1_000_000)


def read_ticks(folder: Folder) -> list[Tick]:
    """Return the declared times."""
    return Ticks(folder).all()
