"""Alignment: a backlog is read by event time, so that a partition far ahead waits for the others.

Without it partitions are read at different speeds, and state holds all that lies between the slowest and the fastest.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from penstock.contracts import Offsets, Source
from penstock.folders import Folder
from penstock.spark.epochs.notes import newest_epoch
from penstock.spark.epochs.origins import partition_name
from penstock.spark.epochs.records import Totals, totals_before

# A partition may be so far ahead in any case: with no delay at all partitions would only take turns.
LEAST_DRIFT_US = 1_000_000


@dataclass(frozen=True)
class Alignment:
    """Plans the source of a name; `delays` are the keys of the event times that its rows come to, and their delays."""

    name: str
    delays: tuple[tuple[str, int], ...]
    planned: Folder
    records: Folder

    def aligned(self, source: Source, start: Offsets, end: Offsets, rows: int) -> Offsets:
        """Return how far to read instead of to `end`, where more waits than may be read; something is always read.

        Partitions wait whose newest time is further ahead of the slowest one with a backlog than the drift allows. One
        without a known time does not wait, and nobody waits for it. What the others leave of the rows goes to
        those that wait: one that is always behind, and gives few rows, starves nobody.
        """
        behind = source.behind(start)
        if behind is not None and behind <= rows:
            return end
        everything = source.latest(start, None)
        waiting = {part for part in source.partitions_of(everything) if everything[part] != start.get(part)}
        near = self._near(waiting)
        if near == waiting:
            return end
        aligned = source.latest_of(start, rows, near)
        if dict(aligned) == dict(start):
            return end
        if any(aligned.get(part) != everything[part] for part in near):
            return aligned
        left = rows - sum(_rows(start.get(part), aligned[part]) for part in near)
        return source.latest_of(aligned, left, waiting - near) if left > 0 else aligned

    def waiting(self, source: Source, end: Offsets, totals: Totals) -> list[str]:
        """Return the partitions that have rows, none of which was read up to the end of an epoch."""
        known = {name for key, _ in self.delays for name in self._known(totals, key)}
        timeless = [part for part in source.partitions_of(end) if self._name(part) not in known]
        begin = source.initial() if timeless else {}
        unread = [part for part in timeless if (end[part] or 0) == (begin.get(part) or 0)]
        if not unread:
            return []
        everything = source.latest(end, None)
        return [part for part in unread if everything.get(part) != end[part]]

    def _near(self, waiting: set[str]) -> set[str]:
        """Return the partitions with a backlog that are not far ahead."""
        newest = self._newest(waiting)
        if len(newest) < 2:
            return waiting
        last = min(newest.values()) + max(LEAST_DRIFT_US, *(delay for _, delay in self.delays))
        return {part for part in waiting if newest.get(part, last) <= last}

    def _newest(self, partitions: Iterable[str]) -> dict[str, int]:
        """Return the newest times of partitions; where several event times follow, the oldest of these."""
        totals = totals_before(self.records, newest_epoch(self.planned) + 1)
        known = [self._known(totals, key) for key, _ in self.delays]
        found = {part: [at[self._name(part)] for at in known if self._name(part) in at] for part in partitions}
        return {part: min(times) for part, times in found.items() if times}

    def _known(self, totals: Totals, key: str) -> dict[str, int]:
        return totals.partitions.get(key, {})

    def _name(self, partition: str) -> str:
        return partition_name(self.name, partition)


def _rows(first: int | str | None, last: int | str) -> int:
    """Return how many rows lie between two offsets; those that are no numbers are taken to be one row apart."""
    numbers = isinstance(last, int) and (first is None or isinstance(first, int))
    return int(last) - int(first or 0) if numbers else 1
