"""Progress of event time: the newest times of an epoch, and what they do to watermarks, by source partition.

The watermark follows the smallest of the newest times of all partitions. A partition that gave a time counts until it
is deleted, or idle (`idle.py`). One that gave none is left out, unless it has rows and none was read yet: then the
watermark stays where it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from penstock.plan.graph import event_times_in
from penstock.plan.operators.stateless import EventTime, Read
from penstock.plan.physical.queries import partition_sources, time_key
from penstock.spark.lowering.context import STATE, Context, time_column
from penstock.spark.tasks.offset_files import PlannedPartitions, planned_partitions
from penstock.spark.tasks.source_partitions import Times, partition_name
from penstock.spark.tasks.totals import Totals
from penstock.storage.folders import Folder

# Names may contain commas, spaces and other characters: one ends where its values start.
_METRIC = re.compile(r"(?:^\w*\(|, )(.*?) -> \[(-?\d+)(?:,(-?\d+|null))?\]")
_NEWEST = "newest:"
_STATE, _STATE_BYTES = f"{STATE}:", f"{STATE}_bytes:"


def read_metrics(text: str) -> dict[str, int]:
    """Return what Spark observed: rows by node, the newest time of each event time, and how the state of nodes grew.

    >>> read_metrics("Map(out:event_time -> [3,7], out:filter -> [2])")
    {'out:event_time': 3, 'newest:event_time': 7, 'out:filter': 2}
    >>> read_metrics("HashMap(out:filter-a, b,c -> [3], again1:x y -> [2,null], out:z -> [1])")
    {'out:filter-a, b,c': 3, 'again1:x y': 2, 'out:z': 1}
    >>> read_metrics("Map(state:process -> [-2,640])")
    {'state:process': -2, 'state_bytes:process': 640}
    """
    found: dict[str, int] = {}
    for name, rows, newest in _METRIC.findall(text):
        found[name] = int(rows)
        if newest not in ("", "null") and name.startswith("out:"):
            found[_NEWEST + name.removeprefix("out:")] = int(newest)
        if name.startswith(_STATE):
            found[_STATE_BYTES + name.removeprefix(_STATE)] = int(newest)
    return found


def grown_state(context: Context, observed: Mapping[str, int]) -> dict[str, dict[str, int]]:
    """Return by how many rows and bytes the state of nodes in buckets has grown in an epoch, by their ids."""
    names = {context.graph.id(node): context.name(node) for node in context.nodes if node.bucketed}
    return {
        id: {"rows": observed[_STATE + name], "bytes": observed[_STATE_BYTES + name]}
        for id, name in names.items()
        if _STATE + name in observed
    }


def newest_times(context: Context, observed: Mapping[str, int]) -> dict[str, int]:
    """Return the newest time that entered each event time in an epoch, by the event time's key."""
    found: dict[str, int] = {}
    for time in event_times(context):
        newest = observed.get(_NEWEST + context.name(time))
        if newest is not None:
            found[time_key(time)] = max(newest, found.get(time_key(time), newest))
    return found


def spark_times(context: Context, newest: Mapping[str, int]) -> dict[str, int | None]:
    """Return the newest times of event times that follow partitions, by the column that Spark follows; milliseconds."""
    times = [time for time in event_times(context) if time in context.partitioned]
    known = {time: newest.get(time_key(time)) for time in times}
    return {
        time_column(time, context): None if at is None else (at - context.first_us) // 1000
        for time, at in known.items()
    }


def event_times(context: Context) -> list[EventTime]:
    """Return the event times of a query."""
    return list(event_times_in(context.nodes))


@dataclass
class Advance:
    """What an epoch does to the partitions of one event time: the newest time of each, and whether one is missing."""

    newest: dict[str, int] = field(default_factory=dict)
    waits: bool = False

    @property
    def reached(self) -> int | None:
        """The newest time that all partitions have reached; None if it is not known yet."""
        return None if self.waits else min(self.newest.values(), default=None)

    def add(self, seen: dict[str, int], planned: dict[Read, PlannedPartitions | None], names: dict[Read, str]) -> None:
        """Add the times of one epoch, and remove deleted partitions."""
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
    """The partitions of one query; `messages` is the folder to which the planner of a source writes its plan."""

    query: str
    context: Context
    messages: Callable[[str], Folder]

    def advances(self, before: Totals, epoch: int, seen: Times) -> dict[str, Advance]:
        """Return what an epoch does to each event time that follows partitions, by its key."""
        return {time_key(time): self._advance(time, before, epoch, seen) for time in self.context.partitioned}

    def _advance(self, time: EventTime, before: Totals, epoch: int, seen: Times) -> Advance:
        key = time_key(time)
        names = {read: self.context.name(read) for read in partition_sources(time)}
        advance = Advance(dict(before.partitions.get(key, {})))
        planned = {read: planned_partitions(self.messages(name), self.query, epoch) for read, name in names.items()}
        advance.add(seen.get(key, {}), planned, names)
        return advance
