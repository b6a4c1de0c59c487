"""Joins: pairs of rows with equal keys, maintained by the change of each side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.incremental.circuit.changes import (
    WEIGHT,
    Numbers,
    consolidated,
    joined,
    keys,
    taken,
    weights,
)
from penstock.incremental.circuit.expressions import evaluated
from penstock.incremental.circuit.row_identity import Keys
from penstock.incremental.circuit.state import Arrangement, State
from penstock.native.steps import Step


@dataclass(frozen=True)
class Side:
    """Rows of one side with the hashes of their keys; rows whose key has a null are not among them."""

    rows: pa.Table
    hashes: Numbers
    keys: Keys


@dataclass(frozen=True)
class Pairs:
    """How pairs are made: the columns that each side gives, the names of the result, and a condition on it."""

    schema: pa.Schema
    left: tuple[str, ...]
    right: tuple[str, ...]
    left_keys: tuple[str, ...]
    right_keys: tuple[str, ...]
    residual: Step | None

    def of(self, left: Side, right: Side) -> pa.Table:
        """Return the pairs of rows with equal keys; weights are multiplied."""
        a, b = matches(left, right)
        columns = [*taken(left.rows.select(self.left), a).columns, *taken(right.rows.select(self.right), b).columns]
        both = weights(left.rows)[a] * weights(right.rows)[b]
        made = pa.table([*columns, pa.array(both)], schema=self.schema)
        return made if self.residual is None or not made.num_rows else evaluated((self.residual,), made, self.schema)


def matches(left: Side, right: Side) -> tuple[Numbers, Numbers]:
    """Return the positions of each pair of rows with equal keys."""
    order = np.argsort(right.hashes, kind="stable")
    in_order = right.hashes[order]
    first = np.searchsorted(in_order, left.hashes, side="left")
    counts = np.searchsorted(in_order, left.hashes, side="right") - first
    a = np.repeat(np.arange(len(left.hashes)), counts)
    starts = np.cumsum(counts) - counts
    b = order[np.repeat(first - starts, counts) + np.arange(len(a))]
    same = left.keys.same(a, right.keys, b)
    return (a, b) if same.all() else (a[same], b[same])


def side(rows: pa.Table, names: Sequence[str], hashes: Numbers | None = None) -> Side:
    """Return rows as a side of a join; without hashes they may have null keys, which are left out."""
    by_key = keys(rows, names)
    if hashes is not None:
        return Side(rows, hashes, by_key)
    null = by_key.has_null()
    if null.any():
        rows = taken(rows, np.flatnonzero(~null))
        by_key = keys(rows, names)
    return Side(rows, by_key.hashes(), by_key)


@dataclass(frozen=True)
class InnerJoin:
    """Pairs of rows with equal keys."""

    schema: pa.Schema
    pairs: Pairs
    left: Arrangement
    right: Arrangement
    runs_without_changes: bool = False

    @property
    def arrangements(self) -> tuple[Arrangement, ...]:
        """The rows of each side, by their keys."""
        return (self.left, self.right)

    def step(self, changes: Sequence[pa.Table], state: State) -> pa.Table:
        """Join the change of the left with what the right was, and that of the right with what the left is."""
        left, right = (
            side(consolidated(one), names.keys) for one, names in zip(changes, self.arrangements, strict=True)
        )
        made = []
        if left.rows.num_rows:
            made.append(self.pairs.of(left, self._read(self.right, state, left.hashes)))
            self.left.add(state, left.rows, left.hashes)
        if right.rows.num_rows:
            made.append(self.pairs.of(self._read(self.left, state, right.hashes), right))
            self.right.add(state, right.rows, right.hashes)
        return joined(made) if made else self.schema.empty_table()

    def _read(self, arrangement: Arrangement, state: State, hashes: Numbers) -> Side:
        found = arrangement.read(state, hashes)
        return side(found.rows, arrangement.keys, found.hashes)


__all__ = ["WEIGHT", "InnerJoin", "Pairs", "Side", "matches", "side"]
