"""What folds have in common: which group each key of the input belongs to, and groups as the keys of the result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from penstock.incremental.graph.cells import Change, Cutoff
from penstock.incremental.graph.key_index import Array, KeyIndex, Slots, as_keys
from penstock.incremental.graph.members import Members
from penstock.incremental.graph.nodes import Function, Node

_ALL = as_keys([None])


@dataclass(frozen=True)
class Moves:
    """A change of the input by groups: members that left one or had another value, and members that are there now."""

    left: Slots
    left_slots: Slots
    left_values: Array
    joined: Slots
    joined_slots: Slots
    joined_values: Array

    @property
    def touched(self) -> Slots:
        """The groups, each once."""
        return np.unique(np.concatenate([self.left, self.joined]))


class Grouped(Node):
    """A node whose keys are groups of its input's keys: what `by` returns for keys and values, or one group for all."""

    def __init__(self, name: str, node: Node, by: Function | None, cutoff: Cutoff | None = None) -> None:
        super().__init__(name, (node,), KeyIndex(), cutoff)
        self.by = by
        self.members = Members()
        if by is None:
            self.cells.index.slots(_ALL)

    def reset(self) -> None:
        """Forget everything that is computed."""
        super().reset()
        self.members = Members()

    def recompute(self, changes: Sequence[Change | None]) -> Change | None:
        """Follow the change of the input, if it has one."""
        (change,) = changes
        return None if change is None else self.follow(change)

    def follow(self, change: Change) -> Change | None:
        """Follow a change of the input; return what changed here."""
        raise NotImplementedError

    def moves(self, change: Change) -> Moves:
        """Return a change by groups, and store the groups that members have now."""
        left_slots, left_values = change.before()
        joined_slots, joined_values = change.after()
        if self.by is None:
            left, joined = (np.zeros(len(slots), np.int64) for slots in (left_slots, joined_slots))
            return Moves(left, left_slots, left_values, joined, joined_slots, joined_values)
        left = self.members.group_of(left_slots)
        joined = self._groups(joined_slots, joined_values)
        self._move(change, joined)
        return Moves(left, left_slots, left_values, joined, joined_slots, joined_values)

    def members_of(self, groups: Slots) -> tuple[Slots, Slots]:
        """Return the input's slots in groups, one group after the other, and how many each has."""
        if self.by is None:
            slots = self.inputs[0].cells.slots()
            return slots, np.array([len(slots)])
        return self.members.of(groups)

    def _groups(self, slots: Slots, values: Array) -> Slots:
        if self.by is None or not len(slots):
            return np.zeros(0, np.int64)
        keys = self.inputs[0].cells.index.keys(slots)
        return self.cells.index.slots(as_keys(self.call(self.by, len(slots), keys, values)))

    def _move(self, change: Change, joined: Slots) -> None:
        groups = np.full(len(change.slots), -1, np.int64)
        groups[slice(None) if change.now is None else change.now] = joined
        moved = groups != self.members.group_of(change.slots)
        if moved.any():
            self.members.move(change.slots[moved], groups[moved])
