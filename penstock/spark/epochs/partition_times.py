"""The newest event time of each source partition after every epoch; the watermark follows the smallest of them.

A partition that gave a time counts until it is gone, or idle (`idle.py`). One that gave none is left out, unless it has
rows that were not read yet: then the watermark stays where it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from penstock.folders import Folder
from penstock.plan.nodes import EventTime
from penstock.plan.queries import time_key
from penstock.spark.epochs.notes import PlannedPartitions, planned_partitions
from penstock.spark.epochs.records import Totals
from penstock.spark.lowering.context import Context
from penstock.spark.lowering.slots import Slots

# Of a source that another planner reads, new partitions are one to us.
_LATER = "later"


@dataclass
class Advance:
    """What one epoch does to the partitions of one event time; names are those of `Slots.name`."""

    newest: dict[str, int] = field(default_factory=dict)
    waits: bool = False

    @property
    def reached(self) -> int | None:
        """The newest time that all partitions have reached; None if that cannot be said yet."""
        return None if self.waits else min(self.newest.values(), default=None)

    def add(self, slots: Slots, seen: Mapping[int, int], planned: PlannedPartitions | None) -> None:
        """Take in what was observed of one source, by slot."""
        for part in slots.partitions:
            self._raise(slots.name(part), seen.get(slots.of(part)))
        later = [_LATER] if planned is None else [part for part in planned.read if slots.of(part) == slots.shared]
        for part in later:
            self._raise(slots.name(part), seen.get(slots.shared))
        waiting = planned.waiting if planned is not None else ()
        self.waits = self.waits or any(slots.name(part) not in self.newest for part in waiting)

    def forget_gone(self, there: set[str]) -> None:
        """Forget partitions that are no longer there."""
        self.newest = {name: at for name, at in self.newest.items() if name in there}

    def _raise(self, name: str, at: int | None) -> None:
        if at is not None:
            self.newest[name] = max(at, self.newest.get(name, at))


@dataclass(frozen=True)
class PartitionTimes:
    """Those of one query; `notes` are where the planner of a source, given by its name, leaves what it planned."""

    query: str
    context: Context
    notes: Callable[[str], Folder]

    def advances(self, before: Totals, epoch: int, observed: Mapping[str, int]) -> dict[str, Advance]:
        """Return what an epoch does to each event time that follows partitions, by its key."""
        found: dict[str, Advance] = {}
        for node in self.context.nodes:
            if isinstance(node, EventTime) and (all_slots := self.context.partitioned(node)):
                key = time_key(node)
                advance = found.setdefault(key, Advance(dict(before.partitions.get(key, {}))))
                seen = self._seen(node, all_slots, observed)
                planned = [planned_partitions(self.notes(slots.source), self.query, epoch) for slots in all_slots]
                for slots, one in zip(all_slots, planned, strict=True):
                    advance.add(slots, seen, one)
                if (there := _there(all_slots, planned)) is not None:
                    advance.forget_gone(there)
        return found

    def _seen(self, node: EventTime, all_slots: tuple[Slots, ...], observed: Mapping[str, int]) -> dict[int, int]:
        """Return the times that were observed, by slot."""
        numbers = (number for slots in all_slots for number in range(slots.first, slots.shared + 1))
        name = self.context.name(node)
        found = {number: observed.get(f"slot{place}:{name}") for place, number in enumerate(numbers)}
        return {number: at for number, at in found.items() if at is not None}


def _there(all_slots: Sequence[Slots], planned: Sequence[PlannedPartitions | None]) -> set[str] | None:
    """Return the partitions of all sources, if their planners noted them."""
    found: set[str] = set()
    for slots, one in zip(all_slots, planned, strict=True):
        if one is None:
            return None
        found |= {slots.name(part) for part in ([""] if slots.partitions == ("",) else one.all)}
    return found
