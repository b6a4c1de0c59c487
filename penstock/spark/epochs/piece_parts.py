"""The partitions of the piece that a task reads, and the newest event time that it met in each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.native.program import Run
from penstock.spark.epochs.origins import origin, partition_name
from penstock.spark.hidden import ORIGIN

if TYPE_CHECKING:
    from penstock.spark.epochs.scan import Scan

Rows = Iterable[pa.RecordBatch]


@dataclass
class PieceParts:
    """One piece of a scan; `read` yields the rows of a split."""

    scan: Scan
    read: Callable[[Any], Rows]
    names: dict[int, str] = field(default_factory=dict)
    newest: dict[int, int] = field(default_factory=dict)

    def rows(self, split: Any) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield the rows by origin."""
        for number, part in self._parts(split):
            yield from ((number, batch) for batch in self.read(part))

    def through(self, run: Run, split: Any) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield what a native program makes of the rows, by origin, and find the newest time of each partition.

        It runs over all partitions at once where it can tell them apart, else over each for itself.
        """
        if self.scan.by_partition and run.program.keeps_origin:
            parts = (self._with_origin(part, number) for number, part in self._parts(split))
            yield from ((0, batch) for batch in run.batches(chain.from_iterable(parts)))
            self.newest = run.newest_by_origin
            return
        for number, part in self._parts(split):
            run.newest_us = None
            yield from ((number, batch) for batch in run.batches(iter(self.read(part))))
            if run.newest_us is not None:
                self.newest[number] = run.newest_us

    def leave(self, epoch: int, part: str) -> None:
        """Leave the names and times for the driver."""
        if self.names:
            times = {self.scan.time_key: self.newest} if self.scan.time_key else {}
            self.scan.staging.put_times(epoch, part, times, self.names)

    def _parts(self, split: Any) -> Iterator[tuple[int, Any]]:
        """Yield the parts of a split, by origin; all in one where partitions do not matter."""
        if not self.scan.by_partition and not self.scan.carries_origin:
            yield 0, split
            return
        for partition, part in self.scan.source.parts(split):
            name = partition_name(self.scan.name, partition)
            self.names[origin(name)] = name
            yield origin(name), part

    def _with_origin(self, part: Any, number: int) -> Iterator[pa.RecordBatch]:
        for batch in self.read(part):
            yield batch.append_column(ORIGIN, pa.repeat(pa.scalar(number, pa.int64()), batch.num_rows))
