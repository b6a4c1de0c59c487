"""The last row of each key, and bags of rows with deletions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.errors import BadValue
from penstock.incremental.circuit.changes import (
    consolidated,
    joined,
    keys,
    taken,
    weighted,
    weights,
)
from penstock.incremental.circuit.expressions import evaluated
from penstock.incremental.circuit.row_identity import Flags, Numbers, grouped
from penstock.incremental.circuit.state import Arrangement, State
from penstock.native.steps import Step

REMOVED = "__penstock_removed"
COUNT = "__penstock_count"


@dataclass(frozen=True)
class _WithDeletions:
    """The base: `remove` is a step that adds the column `REMOVED`, or None.

    Invariant: all that comes is rows of a stream, each of weight 1. Changes of a view are such rows too, with a column
    that says what they are.
    """

    schema: pa.Schema
    rows: Arrangement
    given: pa.Schema
    remove: Step | None
    runs_without_changes: bool = False

    @property
    def arrangements(self) -> tuple[Arrangement, ...]:
        """The rows that are there."""
        return (self.rows,)

    def _given(self, changes: pa.Table) -> tuple[pa.Table, Flags]:
        """Return the rows in their order, and which of them are deletions."""
        if (weights(changes) != 1).any():
            message = "a row of a stream has a weight other than 1"
            raise BadValue(message, hint="pass rows without weights: `remove` says which of them delete")
        if self.remove is None:
            return changes, np.zeros(changes.num_rows, bool)
        made = evaluated((self.remove,), changes, self.given.append(pa.field(REMOVED, pa.bool_())))
        return made, made.column(REMOVED).to_numpy()


@dataclass(frozen=True)
class LatestRows(_WithDeletions):
    """The last row of each key."""

    def step(self, changes: Sequence[pa.Table], state: State) -> pa.Table:
        """Replace the rows of the keys that came."""
        given, removed = self._given(changes[0])
        by_key = keys(given, self.rows.keys)
        hashes = by_key.hashes()
        lasts = grouped(by_key, hashes).lasts()
        mine, removed, hashes = taken(given.select(self.rows.schema.names), lasts), removed[lasts], hashes[lasts]
        found = self.rows.read(state, hashes)
        size = found.rows.num_rows
        both, both_hashes = joined([found.rows, mine]) if size else mine, np.concatenate([found.hashes, hashes])
        groups = grouped(keys(both, self.rows.keys), both_hashes)
        # Of each key there is one row at most of those before, and one of those that came.
        came = np.zeros(len(groups), bool)
        came[groups.ids[size:]] = True
        replaced = np.flatnonzero(came[groups.ids[:size]])
        kept = np.flatnonzero(~came[groups.ids[:size]])
        new = size + np.flatnonzero(~removed)
        after = np.concatenate([kept, new])
        self.rows.replace(state, found, taken(both, after), both_hashes[after])
        changed = taken(both, np.concatenate([replaced, new]))
        signs = np.concatenate([np.full(len(replaced), -1), np.ones(len(new), np.int64)])
        return consolidated(weighted(changed, signs))


@dataclass(frozen=True)
class Bag(_WithDeletions):
    """All rows; a deletion takes out one that is equal, if there is one at that time."""

    def step(self, changes: Sequence[pa.Table], state: State) -> pa.Table:
        """Count the rows that came."""
        given, removed = self._given(changes[0])
        names = [name for name in self.rows.schema.names if name != COUNT]
        mine = given.select(names)
        hashes = self.rows.hashes(mine)
        found = self.rows.read(state, hashes)
        size = found.rows.num_rows
        both = joined([found.rows.select(names), mine]) if size else mine
        both_hashes = np.concatenate([found.hashes, hashes])
        groups = grouped(keys(both, names), both_hashes)
        before = np.zeros(len(groups), np.int64)
        before[groups.ids[:size]] = found.rows.column(COUNT).to_numpy()
        after = _counted(before, groups.ids[size:], np.where(removed, -1, 1))
        left = np.flatnonzero(after)
        rows = taken(both, groups.firsts[left]).append_column(COUNT, pa.array(after[left]))
        self.rows.replace(state, found, rows, both_hashes[groups.firsts[left]])
        changed = np.flatnonzero(after != before)
        return weighted(taken(both, groups.firsts[changed]), (after - before)[changed])


def _counted(before: Numbers, ids: Numbers, signs: Numbers) -> Numbers:
    """Return how many rows each group has after additions and deletions in their order, never less than none."""
    order = np.argsort(ids, kind="stable")
    ids, sums = ids[order], np.cumsum(signs[order])
    after = before.copy()
    if not len(ids):
        return after
    starts = np.flatnonzero(np.r_[True, ids[1:] != ids[:-1]])
    base = np.r_[0, sums[starts[1:] - 1]]
    last = np.r_[sums[starts[1:] - 1], sums[-1]] - base
    least = np.minimum.reduceat(sums, starts) - base
    there = ids[starts]
    after[there] = last + np.maximum(before[there], -least)
    return after
