"""Which slots belong to a group: sorted runs of (group, slot), merged when they have grown to a similar size.

A slot belongs to one group or none. An entry of a run is valid if it has the newest number of its slot, so leaving a
group costs nothing, and entries that are not valid any more are dropped when runs are merged.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from penstock.incremental.graph.key_index import Slots, grown

_NONE = -1


@dataclass(frozen=True)
class Run:
    """Entries in the order of their groups and slots."""

    groups: Slots
    slots: Slots
    numbers: Slots

    def __len__(self) -> int:
        return len(self.groups)


@dataclass
class Members:
    """The slots of each group, and the group of each slot."""

    runs: list[Run] = field(default_factory=list)
    _groups: Slots = field(default_factory=lambda: np.zeros(0, np.int64))
    _newest: Slots = field(default_factory=lambda: np.zeros(0, np.int64))
    _next: int = 1

    def group_of(self, slots: Slots) -> Slots:
        """Return the group of each slot, -1 if it has none."""
        self._grow(slots)
        return np.asarray(self._groups[slots] - 1)

    def move(self, slots: Slots, groups: Slots) -> None:
        """Give slots, each once, another group than they have; -1 for none."""
        self._grow(slots)
        self._groups[slots] = groups + 1
        numbers = self._next + np.arange(len(slots))
        self._next += len(slots)
        self._newest[slots] = numbers
        joined = groups >= 0
        if joined.any():
            self._append(_sorted(groups[joined], slots[joined], numbers[joined]))

    def of(self, groups: Slots) -> tuple[Slots, Slots]:
        """Return the slots of groups, each given once, and how many each group has."""
        parts: list[Slots] = []
        owners: list[Slots] = []
        for run in self.runs:
            first, last = (np.searchsorted(run.groups, groups, side) for side in ("left", "right"))
            lengths = last - first
            places = np.repeat(first - np.cumsum(lengths) + lengths, lengths) + np.arange(lengths.sum())
            owner = np.repeat(np.arange(len(groups)), lengths)
            valid = self._newest[run.slots[places]] == run.numbers[places]
            parts.append(run.slots[places[valid]])
            owners.append(owner[valid])
        if not parts:
            return np.zeros(0, np.int64), np.zeros(len(groups), np.int64)
        slots, owner = np.concatenate(parts), np.concatenate(owners)
        counts = np.bincount(owner, minlength=len(groups))
        # The entries of one run are in order already.
        several = sum(map(len, parts)) > max(map(len, parts))
        return slots[np.lexsort((slots, owner))] if several else slots, counts

    def _append(self, run: Run) -> None:
        while self.runs and len(self.runs[-1]) < 2 * len(run):
            run = self._merged(self.runs.pop(), run)
        self.runs.append(run)

    def _merged(self, older: Run, newer: Run) -> Run:
        both = [np.concatenate(pair) for pair in zip(_columns(older), _columns(newer), strict=True)]
        valid = self._newest[both[1]] == both[2]
        return _sorted(*(column[valid] for column in both))

    def _grow(self, slots: Slots) -> None:
        size = int(slots.max(initial=_NONE)) + 1
        if size > len(self._groups):
            self._groups, self._newest = grown(self._groups, size), grown(self._newest, size)


def _columns(run: Run) -> tuple[Slots, Slots, Slots]:
    return run.groups, run.slots, run.numbers


def _sorted(groups: Slots, slots: Slots, numbers: Slots) -> Run:
    order = np.lexsort((slots, groups))
    return Run(groups[order], slots[order], numbers[order])
