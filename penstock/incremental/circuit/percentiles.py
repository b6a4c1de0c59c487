"""Percentiles of groups: each group's values with their counts; a group that changed is computed again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.incremental.circuit.changes import (
    consolidated,
    joined,
    keys,
    taken,
    weighted,
    weights,
)
from penstock.incremental.circuit.ordering import OrderBy, sorted_positions
from penstock.incremental.circuit.row_identity import Numbers, grouped
from penstock.incremental.circuit.state import Arrangement, State


@dataclass(frozen=True)
class Percentiles:
    """The value at a fraction of the rows of each group, in an order; `exact` gives a value that is there."""

    schema: pa.Schema
    rows: Arrangement
    value: str
    by: OrderBy
    fraction: float
    exact: bool
    runs_without_changes: bool = False

    @property
    def arrangements(self) -> tuple[Arrangement, ...]:
        """The values of each group."""
        return (self.rows,)

    def step(self, changes: Sequence[pa.Table], state: State) -> pa.Table:
        """Compute the groups that changed again."""
        came = consolidated(changes[0])
        if not came.num_rows:
            return self.schema.empty_table()
        found, after, _ = self.rows.add(state, came, self.rows.hashes(came))
        old, new = self._values(found.rows), self._values(after)
        signs = np.concatenate([np.full(old.num_rows, -1), np.ones(new.num_rows, np.int64)])
        return consolidated(weighted(joined([old, new]) if old.num_rows else new, signs))

    def _values(self, rows: pa.Table) -> pa.Table:
        if not rows.num_rows:
            return self.schema.empty_table()
        by_key = keys(rows, self.rows.keys)
        groups = grouped(by_key, by_key.hashes())
        order = sorted_positions(groups.ids, self.by.codes(rows))
        ends = np.cumsum(weights(rows)[order])
        sizes = groups.total(weights(rows))
        starts = np.cumsum(sizes) - sizes
        at = np.ceil(self.fraction * sizes) - 1 if self.exact else (sizes - 1) * self.fraction
        low = np.maximum(np.floor(at), 0).astype(np.int64)
        below = self._at(rows, order, ends, starts + low)
        if self.exact:
            values = below
        else:
            above = self._at(rows, order, ends, starts + np.ceil(at).astype(np.int64))
            part = at - low
            below, above = (one.cast(pa.float64()).to_numpy(zero_copy_only=False) for one in (below, above))
            with np.errstate(all="ignore"):
                values = pa.array(np.where(part == 0, below, (1 - part) * below + part * above))
        columns = [*taken(rows.select(self.rows.keys), groups.firsts).columns, values.cast(self.schema.field(-2).type)]
        return pa.table([*columns, pa.array(np.ones(len(groups), np.int64))], schema=self.schema)

    def _at(self, rows: pa.Table, order: Numbers, ends: Numbers, places: Numbers) -> pa.Array:
        """Return the values at places in the order, counted by weight."""
        positions = order[np.searchsorted(ends, places, side="right")]
        return taken(rows.select([self.value]), positions).column(0).chunk(0)
