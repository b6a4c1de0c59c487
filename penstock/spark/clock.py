"""The clock: a source of declared times, which moves the watermark when no row does.

At the end of bounded input it closes every window; in tests it is `AdvanceTime`. Each time is a line in the
checkpoint, so a replayed epoch sees the same ones. A scan that knows the event time hands them on itself; where Spark
declares the event time, they come from a source of their own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

import pyarrow as pa

from penstock.contracts import Offsets, Rejected, Source
from penstock.folders import Folder
from penstock.folders.journal import journal
from penstock.schema import Field, Schema

NAME = "clock"
# Far enough to close every window, near enough that Spark can still add a window's length to it.
END_OF_TIME = datetime(9999, 1, 1, tzinfo=UTC)


class Clock(Source):
    """Reads the times that the driver declared."""

    name = NAME
    schema = Schema((Field("at", "timestamp"),))

    def __init__(self, folder: Folder) -> None:
        self.folder = folder

    def latest(self, start: Offsets, max_rows: int | None) -> Offsets:
        """All that was declared."""
        return {"0": len(read_ticks(self.folder))}

    def read(self, partition: str, start: int | str | None, end: int | str) -> Iterator[pa.RecordBatch | Rejected]:
        """Yield the declared times."""
        times = read_ticks(self.folder)[int(start or 0) : int(end)]
        yield pa.RecordBatch.from_arrays([pa.array(times, pa.timestamp("us", "UTC"))], names=["at"])


def declare(folder: Folder, time: datetime) -> None:
    """Declare durably that no row before this time will come."""
    ticks = journal(folder, "ticks")
    ticks.fresh()
    while not ticks.append([json.dumps(_micros(time)).encode()]):
        ticks.fresh()


def is_over(ticks: Sequence[int]) -> bool:
    """Say whether the end of time was declared."""
    return bool(ticks) and ticks[-1] >= _micros(END_OF_TIME)


def _micros(time: datetime) -> int:
    return round(time.timestamp() * 1_000_000)


def read_ticks(folder: Folder) -> list[int]:
    """Return the declared times in microseconds."""
    return [json.loads(line) for line in journal(folder, "ticks").fresh()]
