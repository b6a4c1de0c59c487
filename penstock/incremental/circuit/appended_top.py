"""The first n rows of each group of rows that are never taken out: the others can never be among them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.incremental.circuit.changes import joined, keys, taken, weighted, weights
from penstock.incremental.circuit.ranking import First, ranked
from penstock.incremental.circuit.row_identity import Numbers, grouped
from penstock.incremental.circuit.state import Arrangement, State


@dataclass(frozen=True)
class AppendedTopRows:
    """The first n rows of each group; columns of `rows` that the result does not have are only for the order."""

    schema: pa.Schema
    rows: Arrangement
    first: First
    rank: str | None
    runs_without_changes: bool = False

    @property
    def arrangements(self) -> tuple[Arrangement, ...]:
        """The first n rows of each group."""
        return (self.rows,)

    def step(self, changes: Sequence[pa.Table], state: State) -> pa.Table:
        """Choose among the rows that were the first ones and those that came."""
        (came,) = changes
        hashes = self.rows.hashes(came)
        found = self.rows.read(state, hashes)
        both = joined([found.rows, came]) if found.rows.num_rows else came
        both_hashes = np.concatenate([found.hashes, hashes])
        groups = grouped(keys(both, self.first.keys), both_hashes).ids
        positions, counts, ranks = self.first.of(both, groups)
        size = found.rows.num_rows
        if size and bool((positions < size).all()):
            return self.schema.empty_table()
        chosen = weighted(taken(both, positions), counts)
        self.rows.replace(state, found, chosen, both_hashes[positions])
        if self.rank is not None:
            new = ranked(chosen, ranks, self.first, self.rank, self.schema)
            return joined([*self._retracted(found.rows, groups[:size], self.rank), new])
        change = np.zeros(both.num_rows, np.int64)
        change[:size] = -weights(found.rows)
        change[positions] += counts
        changed = np.flatnonzero(change)
        names = [name for name in self.schema.names if name in both.column_names]
        return weighted(taken(both.select(names), changed), change[changed])

    def _retracted(self, before: pa.Table, groups: Numbers, rank: str) -> list[pa.Table]:
        """Return what takes out rows with their ranks: that of a row changes if another comes ahead of it."""
        if not before.num_rows:
            return []
        positions, counts, ranks = self.first.of(before, groups)
        old = ranked(weighted(taken(before, positions), counts), ranks, self.first, rank, self.schema)
        return [weighted(old, -weights(old))]
