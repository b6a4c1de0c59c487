"""Groups of rows by the hash of their key, sorted by it: what a run, a tail and an update are made of.

A group is replaced as a whole; one without rows in any table is deleted. Each has the times at which it is due, by the
watermark and by processing time, and at which it expires.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Numbers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
NEVER = np.iinfo(np.int64).max
ALWAYS = np.iinfo(np.int64).min


@dataclass(frozen=True)
class TimeIndex:
    """The groups that are due at some time, by that time: their positions, and the times."""

    positions: Numbers
    times: Numbers


@dataclass(frozen=True)
class Groups:
    """Sorted groups; `starts` has for each table where the rows of each group begin.

    Invariants: `hashes` strictly increase; each of `starts` has as many entries as `hashes`, and does not decrease;
    the rows of a group are those up to the start of the next one.
    """

    hashes: Numbers
    event: Numbers
    processing: Numbers
    expires: Numbers
    tables: tuple[pa.Table, ...] = ()
    starts: tuple[Numbers, ...] = field(default=())

    def __len__(self) -> int:
        return len(self.hashes)

    def check(self) -> None:
        """Raise if an invariant does not hold."""
        assert bool((self.hashes[1:] > self.hashes[:-1]).all())
        for table, starts in zip(self.tables, self.starts, strict=True):
            assert len(starts) == len(self.hashes)
            assert bool((np.diff(np.r_[starts, table.num_rows]) >= 0).all())

    @property
    def nbytes(self) -> int:
        """About how large it is."""
        return int(sum(table.nbytes for table in self.tables)) + 16 * len(self)

    def counts(self, number: int) -> Numbers:
        """Return how many rows of a table each group has."""
        starts = self.starts[number]
        counts: Numbers = np.empty_like(starts)
        if len(starts):
            np.subtract(starts[1:], starts[:-1], out=counts[:-1])
            counts[-1] = self.tables[number].num_rows - starts[-1]
        return counts

    def _counts_at(self, number: int, positions: Numbers) -> Numbers:
        """Return how many rows of a table some groups have, without a look at the others."""
        starts = self.starts[number]
        following = positions + 1
        inside = following < len(starts)
        ends = np.full(len(positions), self.tables[number].num_rows, np.int64)
        ends[inside] = starts[following[inside]]
        counts: Numbers = ends - starts[positions]
        return counts

    @cached_property
    def has_rows(self) -> Flags:
        """Which groups are not deleted."""
        found: Flags = np.zeros(len(self), bool)
        for number in range(len(self.tables)):
            found |= self.counts(number) > 0
        return found

    @cached_property
    def event_index(self) -> TimeIndex:
        """The groups that wait for the watermark."""
        return _by_time(self.event)

    @cached_property
    def processing_index(self) -> TimeIndex:
        """The groups that wait for a processing time."""
        return _by_time(self.processing)

    @property
    def last_expiry(self) -> int:
        """The time at which all of it has expired; NEVER if some of it does not."""
        return int(self.expires[self.has_rows].max(initial=ALWAYS))

    def find(self, hashes: Numbers) -> tuple[Numbers, Flags]:
        """Return the positions of hashes, and which of them are here."""
        if not len(self.hashes):
            return np.zeros(len(hashes), np.int64), np.zeros(len(hashes), bool)
        positions = np.searchsorted(self.hashes, hashes)
        positions = np.minimum(positions, len(self.hashes) - 1)
        return positions, self.hashes[positions] == hashes

    def taken(self, positions: Numbers) -> Groups:
        """Return some of the groups, by positions that increase."""
        if len(positions) == len(self):
            return self
        rows = [_rows(self.starts[number][positions], self._counts_at(number, positions)) for number in self._numbers]
        return Groups(
            self.hashes[positions],
            self.event[positions],
            self.processing[positions],
            self.expires[positions],
            tuple(_take(table, found) for table, (found, _) in zip(self.tables, rows, strict=True)),
            tuple(starts for _, starts in rows),
        )

    @property
    def _numbers(self) -> range:
        return range(len(self.tables))


def empty_groups(tables: Sequence[pa.Table] = ()) -> Groups:
    """Return no groups, of tables like these."""
    nothing = np.zeros(0, np.int64)
    return Groups(nothing, nothing, nothing, nothing, tuple(t.slice(0, 0) for t in tables), (nothing,) * len(tables))


@dataclass(frozen=True)
class StateRows:
    """One table of new state: its rows, the hash of each row's key, and when each row is due and expires.

    Without times a row is never due, and without `expires` it never expires.
    """

    table: pa.Table
    hashes: Numbers
    event: Numbers | None = None
    processing: Numbers | None = None
    expires: Numbers | None = None


def grouped(parts: Sequence[StateRows], deleted: Numbers) -> Groups:
    """Return groups of new rows; those of `deleted` that have no rows are deleted groups."""
    orders = [np.argsort(part.hashes, kind="stable") for part in parts]
    sorted_hashes = [part.hashes[order] for part, order in zip(parts, orders, strict=True)]
    firsts_of = [_starts(one) for one in sorted_hashes]
    hashes = _united([one[firsts] for one, firsts in zip(sorted_hashes, firsts_of, strict=True)], deleted)
    event, processing = (np.full(len(hashes), NEVER) for _ in range(2))
    expires = np.full(len(hashes), ALWAYS)
    tables, starts = [], []
    for part, order, in_order, firsts in zip(parts, orders, sorted_hashes, firsts_of, strict=True):
        tables.append(_take(part.table, order))
        every = len(firsts) == len(hashes)
        starts.append(firsts if every else np.searchsorted(in_order, hashes))
        if len(order):
            at = slice(None) if every else np.searchsorted(hashes, in_order[firsts])
            if part.event is not None:
                event[at] = np.minimum(event[at], np.minimum.reduceat(part.event[order], firsts))
            if part.processing is not None:
                processing[at] = np.minimum(processing[at], np.minimum.reduceat(part.processing[order], firsts))
            if part.expires is None:
                expires[at] = NEVER
            else:
                expires[at] = np.maximum(expires[at], np.maximum.reduceat(part.expires[order], firsts))
    return Groups(hashes, event, processing, expires, tuple(tables), tuple(starts))


def distinct(numbers: Numbers) -> Numbers:
    """Return each number once, in order; sorting is faster than NumPy's `unique`, which has a hash table.

    >>> distinct(np.array([3, 1, 3])).tolist()
    [1, 3]
    """
    in_order = np.sort(numbers)
    return in_order[_starts(in_order)]


def _starts(in_order: Numbers) -> Numbers:
    """Return the positions of numbers in order that differ from the one before."""
    differs = np.ones(len(in_order), bool)
    np.not_equal(in_order[1:], in_order[:-1], out=differs[1:])
    return np.flatnonzero(differs)


def _united(parts: Sequence[Numbers], deleted: Numbers) -> Numbers:
    """Return the numbers of parts that are in order, and of `deleted`, each once."""
    if len(parts) == 1 and len(parts[0]):
        (own,) = parts
        places = np.minimum(np.searchsorted(own, deleted), len(own) - 1)
        missing = deleted[own[places] != deleted]
        return distinct(np.concatenate([own, missing])) if len(missing) else own
    return distinct(np.concatenate([*parts, deleted]))


def merged(parts: Sequence[Groups], *, oldest: bool, expired_us: int) -> Groups:
    """Merge groups, the newest part first: the newest version of each group stays.

    If the oldest part is the `oldest` of all, groups that are deleted or have expired are dropped.
    """
    parts = [part for part in parts if len(part)] or parts[:1]
    both = parts[0] if len(parts) == 1 else _joined(parts)
    if oldest:
        retained = both.has_rows & (both.expires > expired_us)
        both = both if retained.all() else both.taken(np.flatnonzero(retained))
    return both


def _joined(parts: Sequence[Groups]) -> Groups:
    hashes = np.concatenate([part.hashes for part in parts])
    # Of equal hashes the sort leaves the newest first, since the newest part is.
    order = np.argsort(hashes, kind="stable")
    in_order = hashes[order]
    chosen = order[np.r_[True, in_order[1:] != in_order[:-1]]]
    tables, starts = [], []
    for number, like in enumerate(parts[0].tables):
        shaped = [_shaped(part.tables[number], like.schema) for part in parts]
        bases = np.cumsum([0, *(table.num_rows for table in shaped[:-1])])
        first = np.concatenate([part.starts[number] + base for part, base in zip(parts, bases, strict=True)])
        counts = np.concatenate([part.counts(number) for part in parts])
        rows, start = _rows(first[chosen], counts[chosen])
        tables.append(_take(pa.concat_tables(shaped), rows))
        starts.append(start)
    event, processing, expires = (
        np.concatenate([getattr(part, name) for part in parts])[chosen] for name in ("event", "processing", "expires")
    )
    return Groups(hashes[chosen], event, processing, expires, tuple(tables), tuple(starts))


def concatenated(parts: Sequence[Groups]) -> tuple[pa.Table, ...]:
    """Return the rows of several parts that have no group in common, table by table."""
    like = parts[0].tables
    return tuple(
        whole(pa.concat_tables([_shaped(part.tables[number], table.schema) for part in parts]))
        for number, table in enumerate(like)
    )


def _by_time(times: Numbers) -> TimeIndex:
    waiting = np.flatnonzero(times != NEVER)
    order = waiting[np.argsort(times[waiting], kind="stable")]
    return TimeIndex(order, times[order])


def _rows(starts: Numbers, counts: Numbers) -> tuple[Numbers, Numbers]:
    """Return the rows of groups that start there, one group after the other, and where each starts among them."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    firsts = ends - counts
    if total == len(counts) and bool((counts == 1).all()):
        return starts, firsts
    return np.repeat(starts - firsts, counts) + np.arange(total), firsts


def _take(table: pa.Table, rows: Numbers) -> pa.Table:
    return whole(table).take(pa.array(rows))


def whole(table: pa.Table) -> pa.Table:
    """Return a table in one piece."""
    return table.combine_chunks() if any(column.num_chunks > 1 for column in table.columns) else table


def _shaped(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Give older rows the columns of newer ones."""
    return table if table.schema.equals(schema) else table.select(schema.names).cast(schema)
