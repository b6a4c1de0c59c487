"""Folds that are computed again from all members of a group, and the distinct values of a collection."""

from __future__ import annotations

import numpy as np

from penstock.incremental.graph.cells import Change, Cutoff
from penstock.incremental.graph.grouping import Grouped
from penstock.incremental.graph.key_index import Array
from penstock.incremental.graph.nodes import Function, Node, scattered


class Fold(Grouped):
    """A function of all values of a group, called again for each group that has changed."""

    kind = "fold"

    def __init__(self, name: str, node: Node, function: Function, by: Function | None, cutoff: Cutoff | None) -> None:
        super().__init__(name, node, by, cutoff)
        self.function = function

    def follow(self, change: Change) -> Change | None:
        """Call the function for each touched group."""
        touched = self.moves(change).touched
        slots, counts = self.members_of(touched)
        values = self.inputs[0].cells.values[slots]
        there = counts > 0
        if not there.any():
            return self.settle(touched, np.zeros(len(touched), self.cells.values.dtype), there)
        ends = np.cumsum(counts[there])
        found = [self.function(values[end - count : end]) for end, count in zip(ends, counts[there], strict=True)]
        return self.settle(touched, scattered(np.asarray(found), there), there)


class Distinct(Grouped):
    """The values of a collection, each once: keys and values are the same."""

    kind = "distinct"

    def __init__(self, name: str, node: Node) -> None:
        super().__init__(name, node, by=lambda keys, values: values)
        self._counts = np.zeros(0, np.int64)

    def reset(self) -> None:
        """Forget everything that is computed."""
        super().reset()
        self._counts = np.zeros(0, np.int64)

    def follow(self, change: Change) -> Change | None:
        """Count how often each value is there; only the first and the last matter."""
        moves = self.moves(change)
        touched = moves.touched
        self._counts = counted(self._counts, self.cells.index.size)
        np.add.at(self._counts, moves.joined, 1)
        np.subtract.at(self._counts, moves.left, 1)
        there = self._counts[touched] > 0
        values = self.cells.index.keys(touched).tolist()
        return self.settle(touched, np.array(values, self.inputs[0].cells.values.dtype), there)


def counted(array: Array, size: int) -> Array:
    """Return an array with room for so many groups; new ones are zero."""
    if size <= len(array):
        return array
    room = np.zeros((max(size, 2 * len(array), 16), *array.shape[1:]), array.dtype)
    room[: len(array)] = array
    return room
