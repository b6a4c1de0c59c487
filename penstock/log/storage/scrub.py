"""The slow look at what was on disk before this start: a byte that has changed is found before a reader meets it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from penstock.log.storage.batches import HEADER_SIZE, header_at
from penstock.log.storage.handles import Handles
from penstock.log.storage.partition import Partition
from penstock.log.storage.recovery import Law, Source, examined
from penstock.log.storage.segment import Damage, Segment

log = logging.getLogger("penstock.log")


@dataclass(frozen=True)
class Unchecked:
    """The front of a segment that nobody has read since the start."""

    segment: Segment
    source: Source
    law: Law


def next_unchecked(partition: Partition) -> Unchecked | None:
    """Return what is to be looked at next."""
    segment = next((segment for segment in partition.segments if segment.unchecked), None)
    if segment is None:
        return None
    source = Source(segment.path, segment.base, _offset_at(segment, segment.unchecked), segment.unchecked)
    return Unchecked(segment, source, partition.law)


def _offset_at(segment: Segment, position: int) -> int:
    head = segment.handle.read(position, HEADER_SIZE)
    return header_at(head).base_offset if position < segment.size else segment.end


def look(unchecked: Unchecked, breathe: Callable[[], None] = lambda: None) -> list[Damage]:
    """Read every batch; may run in a thread. Calls `breathe` between batches, which may raise to stop it."""
    return examined(unchecked.source.opened(Handles(2, create=False)), unchecked.law, breathe).damages


def note_damages(segment: Segment, damages: list[Damage]) -> None:
    """Tell of damage, and let the segment serve everything else."""
    new = [damage for damage in damages if damage not in segment.damaged]
    for damage in new:
        log.error("%s: these records cannot be read, those behind them can", damage)
    if new:
        segment.damaged = tuple(sorted({*segment.damaged, *new}, key=lambda damage: damage.position))
        segment.reindex()  # anew, now that it is known what to leave out
