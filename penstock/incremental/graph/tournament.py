"""The n smallest values of each group under inserts and deletes: an ordered multiset as a tree with 16 children a node.

Values are integers whose order is that of the values meant. The position of a member in its group chooses its leaf; a
node has the n smallest values of its children. A changed leaf is followed upwards as long as a node's n smallest
values change, so a change costs at most a node on each level, whatever the size of the group; all changes of a batch go
up together, level by level.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from penstock.incremental.graph.key_index import KeyIndex, Slots

Best = npt.NDArray[np.int64]
NOTHING = np.iinfo(np.int64).max
_BITS, _CHILDREN = 4, 16


class Tournament:
    """For each group the n smallest of its values; `total` means that there is one group, 0, only."""

    def __init__(self, n: int, *, total: bool) -> None:
        self.n = n
        self._total = total
        self._depth = 1
        self._blocks = [np.full((0, _CHILDREN, 1), NOTHING)]
        self._ids = [KeyIndex()]
        self._best = np.full((0, n), NOTHING)

    def best(self, groups: Slots) -> Best:
        """Return the n smallest values of groups, in order; NOTHING where there are fewer."""
        self._best = _filled(self._best, int(groups.max(initial=-1)) + 1)
        return np.asarray(self._best[groups])

    def update(self, groups: Slots, positions: Slots, values: Slots) -> None:
        """Set the values of members; NOTHING removes one."""
        if not len(groups):
            return
        while int(positions.max()) >> (_BITS * self._depth):
            self._deepen()
        self._best = _filled(self._best, int(groups.max()) + 1)
        new = values[:, None]
        for level in range(self._depth):
            groups, positions, nodes = self._stored(level, groups, positions, new)
            if not len(nodes):
                return
            new = self._smallest(self._blocks[level][nodes])
        self._best[groups] = new

    def _stored(self, level: int, groups: Slots, positions: Slots, new: Best) -> tuple[Slots, Slots, Slots]:
        """Store values in nodes of a level; return the nodes that this changes, with groups and positions."""
        parents = positions >> _BITS
        nodes = self._nodes(level, groups, parents)
        children = positions & (_CHILDREN - 1)
        blocks = self._blocks[level]
        differs = (blocks[nodes, children] != new).any(axis=1)
        nodes, children, new = nodes[differs], children[differs], new[differs]
        blocks[nodes, children] = new
        once, first = np.unique(nodes, return_index=True)
        return groups[differs][first], parents[differs][first], once

    def _smallest(self, blocks: Best) -> Best:
        if self.n == 1:
            return np.asarray(blocks.min(axis=(1, 2))[:, None])
        flat = blocks.reshape(len(blocks), blocks.shape[1] * blocks.shape[2])
        found = np.full((len(blocks), self.n), NOTHING)
        width = min(self.n, flat.shape[1])
        found[:, :width] = np.sort(flat, axis=1)[:, :width]
        return found

    def _nodes(self, level: int, groups: Slots, positions: Slots) -> Slots:
        nodes = positions if self._total else self._ids[level].slots(groups << 32 | positions)
        self._blocks[level] = _filled(self._blocks[level], int(nodes.max(initial=-1)) + 1)
        return nodes

    def _deepen(self) -> None:
        """Add a level, in which what was the root of each group is the first child."""
        self._blocks.append(np.full((0, _CHILDREN, self.n), NOTHING))
        self._ids.append(KeyIndex())
        groups = np.arange(min(len(self._best), 1) if self._total else len(self._best))
        if len(groups):
            nodes = self._nodes(self._depth, groups, np.zeros(len(groups), np.int64))
            self._blocks[self._depth][nodes, 0] = self._best[groups]
        self._depth += 1


def _filled(array: Best, size: int) -> Best:
    if size <= len(array):
        return array
    room = np.full((max(size, 2 * len(array), _CHILDREN), *array.shape[1:]), NOTHING)
    room[: len(array)] = array
    return room
