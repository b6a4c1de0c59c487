"""A join by a foreign key: each value on the left finds one on the right."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from penstock.incremental.graph.cells import Change, Cutoff
from penstock.incremental.graph.elementwise import looked_up
from penstock.incremental.graph.key_index import Array, KeyIndex, Slots, as_keys
from penstock.incremental.graph.members import Members
from penstock.incremental.graph.nodes import Function, Node, scattered


class Join(Node):
    """A function of each value on the left and the one on the right that has the key which `on` returns.

    A changed value on the right reaches all that refer to it, and no others. Keys are those of the left.
    """

    kind = "join"

    def __init__(
        self, name: str, left: Node, right: Node, function: Function, on: Function, cutoff: Cutoff | None
    ) -> None:
        super().__init__(name, (left, right), left.cells.index, cutoff)
        self.function, self.on = function, on
        self._start()

    def reset(self) -> None:
        """Forget everything that is computed."""
        super().reset()
        self._start()

    def _start(self) -> None:
        # The keys that the left refers to, and who refers to them.
        self._references = KeyIndex()
        self._referring = Members()

    def recompute(self, changes: Sequence[Change | None]) -> Change | None:
        """Compute again what changed on the left, and what refers to something that changed on the right."""
        left, right = changes
        touched = [np.zeros(0, np.int64)]
        if left is not None:
            self._refer(left)
            touched.append(left.slots)
        if right is not None:
            touched.append(self._referring_to(right))
        return self._joined(np.unique(np.concatenate(touched)))

    def _refer(self, change: Change) -> None:
        slots, values = change.after()
        references = np.full(len(change.slots), -1, np.int64)
        if len(slots):
            keys = self.call(self.on, len(slots), self.inputs[0].cells.index.keys(slots), values)
            references[slice(None) if change.now is None else change.now] = self._references.slots(as_keys(keys))
        moved = references != self._referring.group_of(change.slots)
        self._referring.move(change.slots[moved], references[moved])

    def _referring_to(self, change: Change) -> Slots:
        found = self._references.find(self.inputs[1].cells.index.keys(change.slots))
        return self._referring.of(found[found >= 0])[0]

    def _joined(self, slots: Slots) -> Change | None:
        if not len(slots):
            return None
        left, _ = self.inputs[0].cells.taken(slots)
        right, there = self._right(slots)
        if not there.any():
            return self.settle(slots, np.zeros(len(slots), self.cells.values.dtype), there)
        found = self.call(self.function, int(there.sum()), left[there], right[there])
        return self.settle(slots, scattered(found, there), there)

    def _right(self, slots: Slots) -> tuple[Array, Array]:
        references = self._referring.group_of(slots)
        refers = references >= 0
        places = np.full(len(slots), -1, np.int64)
        if refers.any():
            places[refers] = self.inputs[1].cells.index.find(self._references.keys(references[refers]))
        return looked_up(self.inputs[1], places)
