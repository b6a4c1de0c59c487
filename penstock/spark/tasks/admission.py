"""Admission control: how much the next epoch of a source reads, in rows and by partition, and what it drops.

`RateEstimator` adapts the number of rows to the time that epochs take. `Alignment` reads a backlog by event time, so
that a partition far ahead waits for the others: without it state would hold all that lies between the slowest and the
fastest. An overloaded job drops its oldest rows; the offset from which an epoch reads is in the epoch's offsets, so
that a replay drops the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from penstock.contracts import Offsets, Source
from penstock.spark.tasks.offset_files import FROM, newest_epoch, rate_file, source_offsets
from penstock.spark.tasks.source_partitions import partition_name
from penstock.spark.tasks.totals import Totals, totals_before
from penstock.storage.folders import Folder

FIRST = 250_000
LARGEST = 50_000_000
# After a first epoch so small that it says little, the next one may still have so many rows.
LEAST = 100
GROWTH = 8
# How much slower a run's first epoch may be than the next ones: it starts workers and compiles.
COLD = 3
# Fractions of the target: what an epoch should take, and the bounds between which nothing changes.
UTILISATION, LOW, HIGH = 0.7, 0.5, 0.9


@dataclass(frozen=True)
class RateLimits:
    """What bounds the epochs of a source.

    `epoch_rows` fixes the rows; else epochs should end in less than `seconds`, and the first one has `first` rows at
    most. Of a source that lags more than `lag_rows`, the oldest rows are dropped.
    """

    epoch_rows: int | None = None
    seconds: float = 5.0
    first: int = FIRST
    lag_rows: int | None = None


DEFAULT_LIMITS = RateLimits()


@dataclass
class RateEstimator:
    """Adapts the number of rows to the duration of epochs; pure: rows and seconds in, rows out.

    An epoch costs a fixed time and then so much per row, so its rows per second only grow with its size: what `rows *
    wanted / seconds` gives is never too much. So the limit follows that rate, up to `GROWTH` times as many rows, until
    epochs take `UTILISATION` of the target; it stays while they are between LOW and HIGH, and one that takes longer
    makes the next smaller. An epoch that was small and quick says nothing against a limit that held before.
    """

    limits: RateLimits = DEFAULT_LIMITS
    _limit: int | None = None
    _long: tuple[int, float] = field(default=(0, 0.0))

    def rows(self) -> int:
        """Return how many rows the next epoch may read."""
        if self.limits.epoch_rows is not None:
            return self.limits.epoch_rows
        return self.limits.first if self._limit is None else self._limit

    def done(self, rows: int, seconds: float) -> None:
        """Record how long an epoch of this many rows took."""
        if rows < 1:
            return
        used = seconds / self.limits.seconds
        fits = int(rows * UTILISATION / max(used, 1e-6))
        if used > HIGH and self._limit is None:
            self._limit = max(1, min(rows, fits * COLD))
        elif used > HIGH:
            self._limit = self._smaller(rows, seconds, fits)
        elif used >= LOW:
            self._limit = rows
        else:
            self._limit = min(max(min(fits, rows * GROWTH), self._limit or LEAST), LARGEST)

    def _smaller(self, rows: int, seconds: float, fits: int) -> int:
        """Return fewer rows, unless that was tried just now and did not help: then the rows are not the cost."""
        before, took = self._long
        if rows < 0.8 * before and seconds > 0.9 * took:
            self._long = (0, 0.0)
            return before
        self._long = (rows, seconds)
        return max(1, fits)


# A partition may be so far ahead in any case: with no drift at all only one partition would be read at a time.
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
        without a known time does not wait, and no other waits for it. What the others leave of the rows goes to
        those that wait: one that is always behind, and gives few rows, does not starve the others.
        """
        behind = source.lag(start)
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


class Dropped(NamedTuple):
    """The oldest rows that an epoch leaves out: up to where, and how many."""

    upto: dict[str, Any]
    rows: int


class Admission:
    """Plans the epochs of one source in one query, in Spark's planner; it reads the driver's metrics from a file."""

    def __init__(
        self, source: Source, limits: RateLimits, messages: Folder, query: str, alignment: Alignment | None = None
    ) -> None:
        self.source, self.limits, self.messages, self.query = source, limits, messages, query
        self.alignment = alignment
        self.pacer = RateEstimator(limits)
        self.held: int | None = None
        self._learnt: bytes | None = None
        self._planned = False

    def end(self, offsets: dict[str, Any]) -> dict[str, Any]:
        """Return up to where the next epoch reads, with what it drops; the same offsets if there is nothing to read."""
        begin = source_offsets(offsets)
        self._learn()
        dropped = self._dropped(begin)
        start = dropped.upto if dropped else begin
        end = dict(self.source.latest(start, self.pacer.rows()))
        if end == begin:
            return end | ({FROM: offsets[FROM]} if FROM in offsets else {})
        self._planned = True
        self.held = self._left(end)
        if self.alignment is not None and self.held != 0:
            end = dict(self.alignment.aligned(self.source, start, end, self.pacer.rows()))
            self.held = self._left(end)
        return end | ({FROM: list(dropped)} if dropped else {})

    def _learn(self) -> None:
        """Record the duration of the epoch that was planned last."""
        if not self._planned or self.limits.epoch_rows is not None:
            return
        self._planned = False
        found = self.messages.read(rate_file(self.query))
        if found is not None and found != self._learnt:
            self._learnt = found
            _, rows, seconds = json.loads(found)
            self.pacer.done(rows, seconds)

    def _dropped(self, begin: Offsets) -> Dropped | None:
        """Return the oldest of more rows than may wait."""
        most = self.limits.lag_rows
        if most is None or (self.source.lag(begin) or 0) <= most:
            return None
        upto, rows = self.source.drop_oldest(begin, most)
        return Dropped(dict(upto), rows) if rows else None

    def _left(self, end: Offsets) -> int | None:
        """Return how many rows the limit holds back; None if there are some, and the source cannot say how many."""
        behind = self.source.lag(end)
        if behind is not None:
            return behind
        return 0 if dict(self.source.latest(end, 1)) == end else None


def dropped(begin: dict[str, Any], upto: dict[str, Any], offsets: dict[str, Any]) -> Dropped | None:
    """Return what an epoch drops, from its offsets; one without rows repeats those of the epoch before."""
    found = offsets.get(FROM)
    return Dropped(*found) if found and begin != upto else None
