"""Joins: pairs of rows with equal keys, and rows without a partner, maintained by the change of each side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import pyarrow as pa

from penstock.incremental.circuit.changes import (
    consolidated,
    joined,
    keys,
    negated,
    taken,
    weighted,
    weights,
)
from penstock.incremental.circuit.expressions import evaluated
from penstock.incremental.circuit.row_identity import Flags, Keys, Numbers, grouped
from penstock.incremental.circuit.state import Arrangement, State
from penstock.native.steps import Step

How = Literal["inner", "left", "right", "full", "semi", "anti"]
_A, _B = "__penstock_a", "__penstock_b"


@dataclass(frozen=True)
class Side:
    """Rows of one side with the hashes of their keys."""

    rows: pa.Table
    hashes: Numbers
    keys: Keys

    @cached_property
    def distinct(self) -> Side:
        """One row of each key."""
        firsts = grouped(self.keys, self.hashes).firsts
        if len(firsts) == len(self.hashes):
            return self
        return Side(taken(self.rows, firsts), self.hashes[firsts], self.keys.taken(firsts))

    def has_partner(self, other: Side) -> Flags:
        """Say which rows have a row with an equal key on the other side."""
        found = np.zeros(len(self.hashes), bool)
        found[matches(self, other.distinct)[0]] = True
        return found


def side(rows: pa.Table, names: Sequence[str], hashes: Numbers | None = None) -> Side:
    """Return rows as a side of a join; their hashes may be known."""
    by_key = keys(rows, names)
    return Side(rows, by_key.hashes() if hashes is None else hashes, by_key)


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


@dataclass(frozen=True)
class Pairs:
    """How rows of the result are made: the columns that each side gives, and a condition on pairs.

    `right` are the columns of the right that come after those of the left; `shared` are keys that both sides have under
    one name.
    """

    schema: pa.Schema
    left: tuple[str, ...]
    right: tuple[str, ...]
    shared: tuple[str, ...]
    residual: Step | None

    def of(self, left: Side, right: Side) -> pa.Table:
        """Return the pairs of rows with equal keys; weights are multiplied."""
        return self.found(left, right)[0]

    def found(self, left: Side, right: Side) -> tuple[pa.Table, Numbers, Numbers]:
        """Return the pairs, and the positions of their rows on both sides."""
        a, b = matches(left, right)
        columns = [*taken(left.rows.select(self.left), a).columns, *taken(right.rows.select(self.right), b).columns]
        both = weights(left.rows)[a] * weights(right.rows)[b]
        made = pa.table([*columns, pa.array(both)], schema=self.schema)
        if self.residual is None or not made.num_rows:
            return made, a, b
        numbered = made.append_column(_A, pa.array(a)).append_column(_B, pa.array(b))
        held = evaluated((self.residual,), numbered, numbered.schema)
        return held.drop_columns([_A, _B]), held.column(_A).to_numpy(), held.column(_B).to_numpy()

    def lone_left(self, rows: pa.Table) -> pa.Table:
        """Return rows of the left without a partner as rows of the result."""
        more = [pa.nulls(rows.num_rows, field.type) for field in [*self.schema][len(self.left) : -1]]
        columns = [*rows.select(self.left).columns, *more, pa.array(weights(rows))]
        return pa.table(columns, schema=self.schema)

    def lone_right(self, rows: pa.Table) -> pa.Table:
        """Return rows of the right without a partner as rows of the result."""
        given = zip(self.left, self.schema, strict=False)
        mine = [rows.column(n) if n in self.shared else pa.nulls(rows.num_rows, field.type) for n, field in given]
        return pa.table([*mine, *rows.select(self.right).columns, pa.array(weights(rows))], schema=self.schema)


@dataclass(frozen=True)
class JoinedRows:
    """A join: it reads and writes only the groups of the keys that changed.

    `append_only` says of each side whether no row is ever taken out of it: then equal rows need not be counted.
    """

    schema: pa.Schema
    how: How
    pairs: Pairs
    left: Arrangement
    right: Arrangement
    append_only: tuple[bool, ...] = (False, False)
    runs_without_changes: bool = False

    @property
    def arrangements(self) -> tuple[Arrangement, ...]:
        """The rows of each side, by their keys."""
        return (self.left, self.right)

    def step(self, changes: Sequence[pa.Table], state: State) -> pa.Table:
        """Return what the changes of both sides add to the result and take out of it."""
        made: list[pa.Table] = []
        sides = []
        for number, (arrangement, changed) in enumerate(zip(self.arrangements, changes, strict=True)):
            one = side(changed if self.append_only[number] else consolidated(changed), arrangement.keys)
            null = one.keys.has_null()
            if null.any():
                # A null key matches nothing, so that its row is not stored.
                made += self._lone(taken(one.rows, np.flatnonzero(null)), number) if self.how != "semi" else []
                one = side(taken(one.rows, np.flatnonzero(~null)), arrangement.keys)
            sides.append(one)
        left, right = sides
        if len(left.hashes) or len(right.hashes):
            recomputed = self.pairs.residual is not None and self.how != "inner"
            made += self._recomputed(left, right, state) if recomputed else self._changed(left, right, state)
        return joined(made) if made else self.schema.empty_table()

    def _changed(self, left: Side, right: Side, state: State) -> list[pa.Table]:
        """Join the change of the left with what the right is now, and that of the right with what the left was.

        A row without a partner changes where it does itself, and where the first partner comes or the last one goes.
        """
        old_left = self._read(self.left, state, right.hashes)
        old, new = self._added(self.right, right, state)
        new_right = self._read(self.right, state, left.hashes)
        made = []
        if self.how not in ("semi", "anti"):
            made += [self.pairs.of(left, new_right)] if len(left.hashes) else []
            made += [self.pairs.of(old_left, right)] if len(right.hashes) else []
        if self.how != "inner" and self.how != "right":
            wanted = self.how == "semi"
            rows = taken(left.rows, np.flatnonzero(left.has_partner(new_right) == wanted))
            sign = old_left.has_partner(new).astype(np.int64) - old_left.has_partner(old)
            made += self._lone(rows, 0) + self._lone(_signed(old_left, sign if wanted else -sign), 0)
        before, after = self._added(self.left, left, state)
        if self.how in ("right", "full"):
            rows = taken(right.rows, np.flatnonzero(~right.has_partner(old_left)))
            sign = new_right.has_partner(after).astype(np.int64) - new_right.has_partner(before)
            made += self._lone(rows, 1) + self._lone(_signed(new_right, -sign), 1)
        return made

    def _recomputed(self, left: Side, right: Side, state: State) -> list[pa.Table]:
        """Compute all rows of the keys that changed, before and after: a condition decides which are partners."""
        hashes = np.union1d(left.hashes, right.hashes)
        before = [self._read(one, state, hashes) for one in self.arrangements]
        for arrangement, one in zip(self.arrangements, (left, right), strict=True):
            self._added(arrangement, one, state)
        after = [self._read(one, state, hashes) for one in self.arrangements]
        old = [negated(one) for one in self._whole(*before)]
        both = [*old, *self._whole(*after)]
        return [consolidated(joined(both))] if both else []

    def _whole(self, left: Side, right: Side) -> list[pa.Table]:
        made, a, b = self.pairs.found(left, right)
        has_left, has_right = np.zeros(len(left.hashes), bool), np.zeros(len(right.hashes), bool)
        has_left[a], has_right[b] = True, True
        if self.how == "semi":
            return [taken(left.rows, np.flatnonzero(has_left))]
        found = [] if self.how == "anti" else [made]
        if self.how in ("left", "full", "anti"):
            found += self._lone(taken(left.rows, np.flatnonzero(~has_left)), 0)
        if self.how in ("right", "full"):
            found += self._lone(taken(right.rows, np.flatnonzero(~has_right)), 1)
        return found

    def _lone(self, rows: pa.Table, number: int) -> list[pa.Table]:
        """Return rows of one side that have no partner, as the result has them, if it has them; of `semi` that have."""
        if self.how == "semi":
            return [rows] if number == 0 and rows.num_rows else []
        wanted = ("left", "full", "anti") if number == 0 else ("right", "full")
        if self.how not in wanted or not rows.num_rows:
            return []
        if self.how == "anti":
            return [rows]
        return [self.pairs.lone_left(rows) if number == 0 else self.pairs.lone_right(rows)]

    def _read(self, arrangement: Arrangement, state: State, hashes: Numbers) -> Side:
        found = arrangement.read(state, hashes)
        return side(found.rows, arrangement.keys, found.hashes)

    def _added(self, arrangement: Arrangement, changed: Side, state: State) -> tuple[Side, Side]:
        """Add the change of a side; return all rows of its keys, before and after."""
        appends = self.append_only[self.arrangements.index(arrangement)]
        add = arrangement.append if appends else arrangement.add
        found, rows, hashes = add(state, changed.rows, changed.hashes)
        return side(found.rows, arrangement.keys, found.hashes), side(rows, arrangement.keys, hashes)


def _signed(one: Side, signs: Numbers) -> pa.Table:
    """Return the rows that have a sign, their weights multiplied by it."""
    some = np.flatnonzero(signs)
    return weighted(taken(one.rows, some), weights(one.rows)[some] * signs[some])
