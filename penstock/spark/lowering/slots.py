"""Slots: numbers of source partitions, which rows carry from the scan to their event time.

The watermark of a source is the smallest over its partitions, so the newest time is observed partition by partition.
The partitions that are there when a job starts have a slot each. Those that come later share one until the job is
started again: of that slot the smallest time of an epoch is observed, which no partition that was read is behind of.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from pyspark.sql import Column
from pyspark.sql import functions as F

from penstock.plan.node import Node
from penstock.plan.nodes import EventTime, Read
from penstock.plan.queries import partition_sources
from penstock.spark.hidden import EVENT_TIME, SLOT

# The slot of declared times.
DECLARED = 0


@dataclass(frozen=True)
class Slots:
    """The slots of one source: from `first` on one for each partition, then the shared one."""

    source: str
    first: int
    partitions: tuple[str, ...]

    def of(self, partition: str) -> int:
        """Return the slot of a partition."""
        return self._numbers.get(partition, self.shared)

    @property
    def shared(self) -> int:
        """The slot of partitions that came after the start."""
        return self.first + len(self.partitions)

    def name(self, partition: str) -> str:
        """Return how a user knows a partition; a source that has none goes by its own name."""
        return f"{self.source}/{partition}" if partition else self.source

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {partition: self.first + number for number, partition in enumerate(self.partitions)}


def slotted(nodes: Iterable[Node]) -> list[Read]:
    """Return the sources that need slots: where partitions, or several sources, come to one event time."""
    found: dict[Read, None] = {}
    for time in (node for node in nodes if isinstance(node, EventTime)):
        found |= dict.fromkeys(partition_sources(time))
    return list(found)


def newest_by_slot(all_slots: Iterable[Slots]) -> Iterator[Column]:
    """Yield what is observed at an event time: the newest declared time, then that of each slot in its order."""
    at = F.unix_micros(F.col(EVENT_TIME))
    yield F.max(F.when(F.col(SLOT) == F.lit(DECLARED), at)).alias("newest")
    for slots in all_slots:
        for number in range(slots.first, slots.shared):
            yield F.max(F.when(F.col(SLOT) == F.lit(number), at)).alias(f"slot_{number}")
        yield F.min(F.when(F.col(SLOT) == F.lit(slots.shared), at)).alias(f"slot_{slots.shared}")
