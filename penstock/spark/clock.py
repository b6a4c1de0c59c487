"""The clock: a source of declared times, which moves the watermark when no row does.

At the end of bounded input it closes every window; in tests it is `AdvanceTime`. Each time is a line of a file of the
checkpoint, so a replayed epoch sees the same ones.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa

from penstock.contracts import Offsets, Rejected, Source
from penstock.schema import Schema

NAME = "clock"
# Far enough to close every window, near enough that Spark can still add a window's length to it.
END_OF_TIME = datetime(9999, 1, 1, tzinfo=UTC)


class Clock(Source):
    """Reads the times that the driver declared."""

    name = NAME
    schema = Schema("at timestamp")

    def __init__(self, path: Path) -> None:
        self.path = path

    def latest(self, start: Offsets, max_rows: int | None) -> Offsets:
        """All that was declared."""
        return {"0": len(self._times())} if self._times() else {}

    def read(
        self, partition: str, start: int | str | None, end: int | str
    ) -> Iterator[pa.RecordBatch | Rejected]:
        """Yield the declared times."""
        times = self._times()[int(start or 0) : int(end)]
        yield pa.RecordBatch.from_arrays([pa.array(times, pa.timestamp("us", "UTC"))], names=["at"])

    def _times(self) -> list[int]:
        if not self.path.exists():
            return []
        return [json.loads(line) for line in self.path.read_text().splitlines(keepends=True) if line.endswith("\n")]
