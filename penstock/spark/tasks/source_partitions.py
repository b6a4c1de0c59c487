"""Source partitions: rows carry the id of theirs up to their event time, for a watermark per partition.

The id is a digest of the partition's name, so that every task can compute it. Beside their counts tasks stage the names
of the ids, and the newest event time of each partition.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.native.program import Run
from penstock.spark.tasks.internal_columns import ORIGIN

if TYPE_CHECKING:
    from penstock.spark.tasks.scan import Scan

# By event time and partition, the newest time in microseconds.
Times = dict[str, dict[str, int]]


def partition_name(source: str, partition: str) -> str:
    """Return the name of a partition as users see it; a source without partitions has its own name."""
    return f"{source}/{partition}" if partition else source


@lru_cache(maxsize=100_000)
def partition_id(name: str) -> int:
    """Return the id of a partition."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big", signed=True)


@dataclass
class NewestByPartition:
    """The newest time of each partition among the rows of a task."""

    found: dict[int, int] = field(default_factory=dict)

    def add(self, origins: pa.Array, times: pa.Array, left_out: pa.Array) -> None:
        """Add a batch: partition ids, and times in microseconds; `left_out` says which rows do not count."""
        edges = pc.min_max(origins).as_py()
        times = pc.if_else(left_out, pa.scalar(None, times.type), times)
        if edges["min"] is None:
            return
        if edges["min"] == edges["max"]:
            self._raise([(edges["min"], pc.max(times).as_py())])
            return
        table = pa.Table.from_arrays([origins, times], names=["origin", "at"])
        grouped = table.group_by("origin").aggregate([("at", "max")])
        self._raise(zip(grouped["origin"].to_pylist(), grouped["at_max"].to_pylist(), strict=True))

    def _raise(self, newest: Iterable[tuple[int, int | None]]) -> None:
        for number, at in newest:
            if at is not None:
                self.found[number] = max(at, self.found.get(number, at))


def merge_times(staged: Iterable[tuple[Times, dict[str, str]]]) -> Times:
    """Merge what tasks staged: times by partition id, and the names of the ids.

    >>> merge_times([({}, {"7": "t/0"}), ({"ts": {"7": 5}}, {}), ({"ts": {"7": 3}}, {})])
    {'ts': {'t/0': 5}}
    """
    found = list(staged)
    names = {number: name for _, more in found for number, name in more.items()}
    newest: Times = {}
    for times, _ in found:
        for key, by_origin in times.items():
            mine = newest.setdefault(key, {})
            for number, at in by_origin.items():
                mine[names[number]] = max(at, mine.get(names[number], at))
    return newest


Rows = Iterable[pa.RecordBatch]


@dataclass
class SplitReader:
    """Reads the split of one task by partition; `read` yields the rows of a part of it."""

    scan: Scan
    read: Callable[[Any], Rows]
    names: dict[int, str] = field(default_factory=dict)
    newest: dict[int, int] = field(default_factory=dict)

    def rows(self, split: Any) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield the rows, each batch with its partition id."""
        for number, part in self._parts(split):
            yield from ((number, batch) for batch in self.read(part))

    def through(self, run: Run, split: Any) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield what a native program makes of the rows, with partition ids, and find the newest time of each.

        It runs over all partitions at once where it can distinguish them, otherwise over each separately.
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

    def stage(self, epoch: int, part: str) -> None:
        """Stage the names and times for the driver."""
        if self.names:
            times = {self.scan.time_key: self.newest} if self.scan.time_key else {}
            self.scan.staging.put_times(epoch, part, times, self.names)

    def _parts(self, split: Any) -> Iterator[tuple[int, Any]]:
        """Yield the parts of a split by partition id; all in one where partitions do not matter."""
        if not self.scan.by_partition and not self.scan.carries_origin:
            yield 0, split
            return
        for partition, part in self.scan.source.splits_by_partition(split):
            name = partition_name(self.scan.name, partition)
            self.names[partition_id(name)] = name
            yield partition_id(name), part

    def _with_origin(self, part: Any, number: int) -> Iterator[pa.RecordBatch]:
        for batch in self.read(part):
            yield batch.append_column(ORIGIN, pa.repeat(pa.scalar(number, pa.int64()), batch.num_rows))
