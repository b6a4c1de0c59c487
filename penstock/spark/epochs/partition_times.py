"""The newest event time of each source partition after every epoch; the watermark follows the smallest of them.

A partition that gave a time counts until it is gone, or idle (`idle.py`). One that gave none is left out, unless it has
rows and none was read yet: then the watermark stays where it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from penstock.folders import Folder
from penstock.plan.nodes import EventTime, Read
from penstock.plan.queries import partition_sources, time_key
from penstock.spark.epochs.notes import PlannedPartitions, planned_partitions
from penstock.spark.epochs.origins import Times, partition_name
from penstock.spark.epochs.records import Totals
from penstock.spark.lowering.context import Context


@dataclass
class Advance:
    """What epochs do to the partitions of one event time: the newest time of each, and whether another is missing."""

    newest: dict[str, int] = field(default_factory=dict)
    waits: bool = False

    @property
    def reached(self) -> int | None:
        """The newest time that all partitions have reached; None if that cannot be said yet."""
        return None if self.waits else min(self.newest.values(), default=None)

    def add(self, seen: dict[str, int], planned: dict[Read, PlannedPartitions | None], names: dict[Read, str]) -> None:
        """Take in the times of one epoch, and forget partitions that are gone."""
        self.newest |= {name: max(at, self.newest.get(name, at)) for name, at in seen.items()}
        there = {name for read, one in planned.items() if one for name in _named(names[read], read, one.all)}
        if all(planned.values()):
            self.newest = {name: at for name, at in self.newest.items() if name in there}
        waiting = {partition_name(names[read], part) for read, one in planned.items() if one for part in one.waiting}
        self.waits = bool(waiting - set(self.newest))


def _named(source: str, read: Read, partitions: Iterable[str]) -> list[str]:
    return [partition_name(source, part) for part in (partitions if read.source.partitioned else [""])]


@dataclass(frozen=True)
class PartitionTimes:
    """Those of one query; `notes` are where the planner of a source, given by its name, leaves what it planned."""

    query: str
    context: Context
    notes: Callable[[str], Folder]

    def advances(self, before: Totals, epoch: int, seen: Times) -> dict[str, Advance]:
        """Return what an epoch does to each event time that follows partitions, by its key."""
        return {time_key(time): self._advance(time, before, epoch, seen) for time in self.context.partitioned}

    def _advance(self, time: EventTime, before: Totals, epoch: int, seen: Times) -> Advance:
        key = time_key(time)
        names = {read: self.context.name(read) for read in partition_sources(time)}
        advance = Advance(dict(before.partitions.get(key, {})))
        planned = {read: planned_partitions(self.notes(name), self.query, epoch) for read, name in names.items()}
        advance.add(seen.get(key, {}), planned, names)
        return advance
