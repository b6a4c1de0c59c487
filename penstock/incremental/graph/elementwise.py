"""Nodes that compute each key on its own: map, map2 and filter."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from penstock.errors import BadFunction
from penstock.incremental.graph.cells import Change, Cutoff, Mask
from penstock.incremental.graph.key_index import Array, Slots
from penstock.incremental.graph.nodes import Function, Node, scattered


class Map(Node):
    """A function of each value."""

    kind = "map"

    def __init__(self, name: str, node: Node, function: Function, cutoff: Cutoff | None) -> None:
        super().__init__(name, (node,), node.cells.index, cutoff)
        self.function = function

    def recompute(self, changes: Sequence[Change | None]) -> Change | None:
        """Call the function on the values that changed."""
        (change,) = changes
        if change is None:
            return None
        return self.settle(change.slots, *self.spread(change, self.function))


class Filter(Map):
    """The values for which a function is true."""

    kind = "filter"

    def recompute(self, changes: Sequence[Change | None]) -> Change | None:
        """Call the function on the values that changed."""
        (change,) = changes
        if change is None:
            return None
        slots, values = change.after()
        holds = self.call(self.function, len(values), values) if len(slots) else np.zeros(0, np.bool_)
        if holds.dtype != np.bool_:
            message = f"the function returned {holds.dtype} instead of bool"
            raise BadFunction(message, node=self.title, hint="as in: lambda values: values > 0")
        return self.settle(change.slots, change.new, holds if change.now is None else scattered(holds, change.now))


class Map2(Node):
    """A function of the values that two collections have for the same key."""

    kind = "map2"

    def __init__(self, name: str, left: Node, right: Node, function: Function, cutoff: Cutoff | None) -> None:
        super().__init__(name, (left, right), left.cells.index, cutoff)
        self.function = function
        self._shared = left.cells.index is right.cells.index

    def recompute(self, changes: Sequence[Change | None]) -> Change | None:
        """Call the function on the keys that changed in either, and are in both."""
        slots = self._touched(changes)
        if not len(slots):
            return None
        (left, in_left), (right, in_right) = self.inputs[0].cells.taken(slots), self._right(slots)
        both = _both(in_left, in_right)
        if both is None:
            return self.settle(slots, self.call(self.function, len(slots), left, right))
        if not both.any():
            return self.settle(slots, np.zeros(len(slots), self.cells.values.dtype), both)
        found = self.call(self.function, int(both.sum()), left[both], right[both])
        return self.settle(slots, scattered(found, both), both)

    def _touched(self, changes: Sequence[Change | None]) -> Slots:
        left, right = changes
        if left is None and right is None:
            return np.zeros(0, np.int64)
        ours = [] if left is None else [left.slots]
        if right is not None:
            ours.append(right.slots if self._shared else self._from_right(right.slots))
        return ours[0] if len(ours) == 1 else np.union1d(*ours)

    def _from_right(self, slots: Slots) -> Slots:
        found = self.cells.index.find(self.inputs[1].cells.index.keys(slots))
        return found[found >= 0]

    def _right(self, slots: Slots) -> tuple[Array, Mask | None]:
        cells = self.inputs[1].cells
        if self._shared:
            return cells.taken(slots)
        theirs = cells.index.find(self.cells.index.keys(slots))
        return looked_up(self.inputs[1], theirs)


def looked_up(node: Node, slots: Slots) -> tuple[Array, Mask]:
    """Return the values of slots of a node, -1 for none, and which there are."""
    known = slots >= 0
    if not node.cells.index.size:
        return np.zeros(len(slots), node.cells.values.dtype), known
    values, there = node.cells.taken(np.where(known, slots, 0))
    return values, known if there is None else known & there


def _both(left: Mask | None, right: Mask | None) -> Mask | None:
    masks = [mask for mask in (left, right) if mask is not None]
    both = np.logical_and.reduce(masks) if masks else None
    return None if both is None or both.all() else both
