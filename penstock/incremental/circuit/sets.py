"""Distinct rows, EXCEPT and INTERSECT: how often each row is in an input decides how often it is in the result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa

from penstock.incremental.circuit.changes import WEIGHT, joined, keys, taken, values_of, weighted, weights
from penstock.incremental.circuit.row_identity import Numbers, grouped
from penstock.incremental.circuit.state import Arrangement, State

LEFT, RIGHT = "__penstock_left", "__penstock_right"
Kind = Literal["distinct", "except", "except all", "intersect", "intersect all"]


@dataclass(frozen=True)
class CountedRows:
    """The rows of one or two inputs with how often each has them."""

    schema: pa.Schema
    rows: Arrangement
    kind: Kind
    runs_without_changes: bool = False

    @property
    def arrangements(self) -> tuple[Arrangement, ...]:
        """The rows with their counts."""
        return (self.rows,)

    def step(self, changes: Sequence[pa.Table], state: State) -> pa.Table:
        """Count the rows that changed."""
        names = values_of(changes[0])
        came = joined([one.select(names) for one in changes])
        sizes = [one.num_rows for one in changes]
        by_row = keys(came, names)
        hashes = by_row.hashes()
        found = self.rows.read(state, hashes)
        size = found.rows.num_rows
        both = joined([found.rows.select(names), came]) if size else came
        both_hashes = np.concatenate([found.hashes, hashes])
        groups = grouped(keys(both, names) if size else by_row, both_hashes)
        before, after = [], []
        for number, side in enumerate((LEFT, RIGHT)):
            old = np.zeros(len(both_hashes), np.int64)
            old[:size] = found.rows.column(side).to_numpy()
            new = old.copy()
            if number < len(changes):
                start = size + sum(sizes[:number])
                new[start : start + sizes[number]] = weights(changes[number])
            before.append(groups.total(old))
            after.append(groups.total(new))
        left = np.flatnonzero((after[0] != 0) | (after[1] != 0))
        rows = taken(both, groups.firsts[left])
        for side, counts in zip((LEFT, RIGHT), after, strict=True):
            rows = rows.append_column(side, pa.array(counts[left]))
        self.rows.replace(state, found, rows, both_hashes[groups.firsts[left]])
        change = self._multiplicity(*after) - self._multiplicity(*before)
        changed = np.flatnonzero(change)
        return weighted(taken(both, groups.firsts[changed]), change[changed])

    def _multiplicity(self, left: Numbers, right: Numbers) -> Numbers:
        left, right = np.maximum(left, 0), np.maximum(right, 0)
        match self.kind:
            case "distinct":
                found = left > 0
            case "except":
                found = (left > 0) & (right == 0)
            case "intersect":
                found = (left > 0) & (right > 0)
            case "except all":
                found = np.maximum(left - right, 0)
            case _:
                found = np.minimum(left, right)
        return found.astype(np.int64)


def counted_schema(schema: pa.Schema) -> pa.Schema:
    """Return the columns of the state: those of the rows, and a count for each side."""
    without = pa.schema([field for field in schema if field.name != WEIGHT])
    return without.append(pa.field(LEFT, pa.int64())).append(pa.field(RIGHT, pa.int64()))
