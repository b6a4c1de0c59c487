"""Folds by order: min, max and top n, exact under updates and deletes."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.errors import BadFunction
from penstock.incremental.graph.cells import Change, Cutoff
from penstock.incremental.graph.folds import counted
from penstock.incremental.graph.grouping import Grouped, Moves
from penstock.incremental.graph.key_index import Array, Slots, grown
from penstock.incremental.graph.nodes import Function, Node
from penstock.incremental.graph.tournament import NOTHING, Tournament

_BITS = {2: np.int16, 4: np.int32, 8: np.int64}
# Positions of members that left are used again when there are so many more of them than of members.
_SPARE = 1000


class Extreme(Grouped):
    """The smallest or largest value of each group, or the n largest. NaN is larger than all numbers."""

    kind = "incr_fold"

    def __init__(self, name: str, node: Node, which: str, n: int, by: Function | None, cutoff: Cutoff | None) -> None:
        super().__init__(name, node, by, cutoff)
        self.which = which
        self.n = n
        self._start()

    def reset(self) -> None:
        """Forget everything that is computed."""
        super().reset()
        self._start()

    def _start(self) -> None:
        self._tree = Tournament(self.n, total=self.by is None)
        self._counts = np.zeros(0, np.int64)
        # The position of a member in its group, and how many were given; without groups it is its slot.
        self._positions = np.zeros(0, np.int64)
        self._given = np.zeros(0, np.int64)

    def follow(self, change: Change) -> Change | None:
        """Store the changed values in the tree, and read the touched groups from it."""
        moves = self.moves(change)
        self._counts = counted(self._counts, self.cells.index.size)
        np.add.at(self._counts, moves.joined, 1)
        np.subtract.at(self._counts, moves.left, 1)
        self._store(moves)
        touched = moves.touched
        counts = self._counts[touched]
        return self.settle(touched, self._results(touched, counts, change.new.dtype), counts > 0)

    def _store(self, moves: Moves) -> None:
        if self.by is None:
            gone = np.setdiff1d(moves.left_slots, moves.joined_slots, assume_unique=True)
            self._tree.update(np.zeros(len(gone), np.int64), gone, np.full(len(gone), NOTHING))
            self._tree.update(moves.joined, moves.joined_slots, self._ordered(moves.joined_values))
            return
        moved_out, moved_in = self._moved(moves)
        gone = moves.left_slots[moved_out]
        self._tree.update(moves.left[moved_out], self._positions[gone], np.full(len(gone), NOTHING))
        self._give_positions(moves.joined[moved_in], moves.joined_slots[moved_in])
        positions = self._positions[moves.joined_slots]
        self._tree.update(moves.joined, positions, self._ordered(moves.joined_values))
        if int(self._given.sum()) > 2 * int(self._counts.sum()) + _SPARE:
            self._rebuild()

    def _moved(self, moves: Moves) -> tuple[Any, Any]:
        """Return which members left their group, and which are new in theirs."""
        size = int(max(moves.left_slots.max(initial=-1), moves.joined_slots.max(initial=-1))) + 1
        before, after = np.full(size, -1), np.full(size, -1)
        before[moves.left_slots] = moves.left
        after[moves.joined_slots] = moves.joined
        return after[moves.left_slots] != moves.left, before[moves.joined_slots] != moves.joined

    def _give_positions(self, groups: Slots, slots: Slots) -> None:
        if not len(slots):
            return
        self._given = counted(self._given, self.cells.index.size)
        if len(self._positions) <= slots.max():
            self._positions = grown(self._positions, int(slots.max()) + 1)
        order = np.argsort(groups, kind="stable")
        ordered = groups[order]
        first = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
        lengths = np.diff(np.append(first, len(ordered)))
        number = np.arange(len(ordered)) - np.repeat(first, lengths)
        self._positions[slots[order]] = self._given[ordered] + number
        self._given[ordered[first]] += lengths

    def _rebuild(self) -> None:
        groups = np.flatnonzero(self._counts)
        slots, counts = self.members_of(groups)
        self._tree = Tournament(self.n, total=False)
        self._given[:] = 0
        owners = np.repeat(groups, counts)
        self._give_positions(owners, slots)
        self._tree.update(owners, self._positions[slots], self._ordered(self.inputs[0].cells.values[slots]))

    def _ordered(self, values: Array) -> Slots:
        """Return values as integers of which the smallest is the one that is wanted."""
        if values.dtype.kind not in "iufbmM" or values.dtype.itemsize > 8:
            message = f"{self.which} of {values.dtype}"
            raise BadFunction(message, node=self.title, hint="its input needs numbers or times: add a map before it")
        keys = _integers(values)
        return keys if self.which == "min" else ~keys

    def _results(self, groups: Slots, counts: Slots, dtype: np.dtype[Any]) -> Array:
        best = self._tree.best(groups)
        values = _values(best if self.which == "min" else ~best, dtype)
        if self.which != "top":
            return np.asarray(values[:, 0])
        found = np.zeros(len(groups), [("count", np.int64), ("values", dtype, (self.n,))])
        found["count"] = np.minimum(counts, self.n)
        there = np.arange(self.n) < found["count"][:, None]
        found["values"][there] = values[there]
        return found


def _integers(values: Array) -> Slots:
    """Return 64-bit integers in the order of values.

    >>> _integers(np.array([-1.0, 0.0, np.inf, np.nan])).argsort().tolist()
    [0, 1, 2, 3]
    """
    if values.dtype.kind == "f":
        wide = values.astype(np.float64)
        wide[np.isnan(wide)] = np.nan
        bits = wide.view(np.int64)
        return np.where(bits < 0, bits ^ NOTHING, bits)
    if values.dtype.kind == "u":
        return np.asarray((values.astype(np.uint64) ^ np.uint64(1 << 63)).view(np.int64))
    return values.view(np.int64) if values.dtype.kind in "mM" else values.astype(np.int64)


def _values(keys: Slots, dtype: np.dtype[Any]) -> Array:
    if dtype.kind == "f":
        return np.asarray(np.where(keys < 0, keys ^ NOTHING, keys).view(np.float64).astype(dtype))
    if dtype.kind == "u":
        return np.asarray((keys.view(np.uint64) ^ np.uint64(1 << 63)).astype(dtype))
    return np.asarray(keys.view(dtype) if dtype.kind in "mM" else keys.astype(dtype))
