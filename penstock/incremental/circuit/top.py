"""The first n rows of each group, maintained by trees.

The rows of a large group are spread over leaves by their hash. Each leaf gives its first n rows to its parent, a parent
those of its 16 children to its own, and the root has the result. A change costs one leaf, and a parent only where the
first rows of a child differ. The depth of a group's tree follows its size: a small group is a root alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.incremental.circuit.changes import (
    WEIGHT,
    consolidated,
    joined,
    keys,
    taken,
    weighted,
    weights,
)
from penstock.incremental.circuit.ranking import First, ranked
from penstock.incremental.circuit.row_identity import Grouping, Keys, Numbers, grouped
from penstock.incremental.circuit.state import Arrangement, Found, State, with_weight

LEVEL, DEPTH, SIZE = "__penstock_level", "__penstock_depth", "__penstock_size"
_FAN_OUT_BITS = 4
# Of a tree that is built: how many rows a leaf has at most, on average; and from which average it is built again.
_LEAF, _LARGE_LEAF, _SMALL_LEAF = 32, 128, 1
_MOST_LEVELS = 6
_P1, _P2 = np.uint64(0x9E3779B185EBCA87), np.uint64(0xC2B2AE3D27D4EB4F)


@dataclass(frozen=True)
class TopRows:
    """The first n rows of each group; columns of `rows` that the result does not have are only for the order."""

    schema: pa.Schema
    rows: Arrangement
    roots: Arrangement
    first: First
    rank: str | None
    runs_without_changes: bool = False

    @property
    def arrangements(self) -> tuple[Arrangement, ...]:
        """The rows of all nodes, and of groups with more than a root their depths and sizes."""
        return (self.rows, self.roots)

    def step(self, changes: Sequence[pa.Table], state: State) -> pa.Table:
        """Change the leaves, and then what is above them."""
        came = consolidated(changes[0])
        if not came.num_rows:
            return self.schema.empty_table()
        by_key = keys(came, self.first.keys)
        hashes = by_key.hashes()
        groups = grouped(by_key, hashes)
        trees = self._trees(taken(came.select(self.first.keys), groups.firsts), hashes[groups.firsts], state)
        old, new = self._changed(came, trees.depths[groups.ids], groups, trees, state)
        self._rebuild(trees, state)
        signs = np.concatenate([-weights(old), weights(new)])
        return consolidated(weighted(joined([old, new]) if old.num_rows else new, signs))

    def _trees(self, by_key: pa.Table, hashes: Numbers, state: State) -> _Trees:
        """Return the trees of groups, given one row of each."""
        found = self.roots.read(state, hashes)
        depths, sizes = np.zeros(len(hashes), np.int64), np.zeros(len(hashes), np.int64)
        if found.rows.num_rows:
            both = joined([found.rows.select(self.first.keys), by_key]) if self.first.keys else None
            size = found.rows.num_rows
            all_hashes = np.concatenate([found.hashes, hashes])
            mine = keys(both, self.first.keys) if both is not None else Keys((), size + len(hashes))
            groups = grouped(mine, all_hashes)
            at = np.full(len(groups), -1)
            at[groups.ids[:size]] = np.arange(size)
            place = at[groups.ids[size:]]
            depths = np.where(place >= 0, found.rows.column(DEPTH).to_numpy()[place], 0)
            sizes = np.where(place >= 0, found.rows.column(SIZE).to_numpy()[place], 0)
        return _Trees(by_key, hashes, depths, sizes, found)

    def _changed(
        self, came: pa.Table, depths: Numbers, groups: Grouping, trees: _Trees, state: State
    ) -> tuple[pa.Table, pa.Table]:
        """Change nodes from the leaves to the roots; return the first rows of the roots, before and after."""
        below: list[pa.Table] = []
        old, new = self.schema.empty_table(), self.schema.empty_table()
        same_depth = bool((depths == depths[0]).all())
        for level in range(int(depths.max()), -1, -1):
            leaves = came if same_depth and depths[0] == level else taken(came, np.flatnonzero(depths == level))
            leaves = leaves if not same_depth or depths[0] == level else came.slice(0, 0)
            changes = joined([leaves, *below])
            if not changes.num_rows:
                below = []
                continue
            node = self._node(changes, level)
            found, after, hashes = self.rows.add(state, _at_level(changes, level), node)
            self._count(found, after, hashes, level, trees)
            before_rows, after_rows = _of_level(found.rows, level), _of_level(after, level)
            if level == 0:
                old, new = self._shown(before_rows), self._shown(after_rows)
                break
            chosen = [self._first(one, level) for one in (before_rows, after_rows)]
            signs = np.concatenate([-weights(chosen[0]), weights(chosen[1])])
            below = [consolidated(weighted(joined(chosen) if chosen[0].num_rows else chosen[1], signs))]
        return old, new

    def _node(self, rows: pa.Table, level: int) -> Numbers:
        """Return the hash of the node of each row at a level."""
        hashes = keys(rows, self.first.keys).hashes()
        return hashes if not level else _node_hashes(hashes, level, self._prefixes(rows, level))

    def _prefixes(self, rows: pa.Table, level: int) -> Numbers:
        """Return which of the nodes of a level each row belongs to."""
        hashes = keys(rows, self._names).hashes().view(np.uint64)
        return (hashes >> np.uint64(64 - _FAN_OUT_BITS * level)).astype(np.int64)

    @property
    def _names(self) -> list[str]:
        return [name for name in self.rows.schema.names if name not in (LEVEL, WEIGHT)]

    def _first(self, rows: pa.Table, level: int) -> pa.Table:
        """Return the first rows of each node."""
        by_key = keys(rows, self.first.keys)
        ids = grouped(by_key, by_key.hashes()).ids
        nodes = (ids << (_FAN_OUT_BITS * level)) | self._prefixes(rows, level)
        positions, counts, _ = self.first.of(rows, nodes)
        return weighted(taken(rows, positions), counts)

    def _shown(self, rows: pa.Table) -> pa.Table:
        """Return the first rows of each root as the result has them."""
        by_key = keys(rows, self.first.keys)
        positions, counts, ranks = self.first.of(rows, grouped(by_key, by_key.hashes()).ids)
        chosen = weighted(taken(rows, positions), counts)
        if self.rank is None:
            return chosen.select(self.schema.names)
        return ranked(chosen, ranks, self.first, self.rank, self.schema)

    # --- sizes and depths ---

    def _count(self, found: Found, after: pa.Table, hashes: Numbers, level: int, trees: _Trees) -> None:
        """Add to the sizes of trees how many rows their leaves have more than before."""
        mine = np.flatnonzero(trees.depths == level)
        if not len(mine):
            return
        for rows, sign in ((found.rows, -1), (after, 1)):
            some = _of_level(rows, level)
            by_key = keys(some, self.first.keys).hashes()
            order = np.argsort(trees.hashes)
            at = np.searchsorted(trees.hashes[order], by_key)
            at = order[np.minimum(at, len(order) - 1)]
            there = (trees.hashes[at] == by_key) & (trees.depths[at] == level)
            if level == 0 and sign < 0:
                # The size of a root alone is that of the root.
                continue
            np.add.at(trees.sizes, at[there], sign)

    def _rebuild(self, trees: _Trees, state: State) -> None:
        """Build trees again that became too large or too small for their depth, and store the sizes of the others."""
        leaves = np.int64(1) << (_FAN_OUT_BITS * trees.depths)
        wrong = (trees.sizes > _LARGE_LEAF * leaves) | ((trees.depths > 0) & (trees.sizes < _SMALL_LEAF * leaves))
        depths = np.where(wrong, _depth(trees.sizes), trees.depths)
        wrong = depths != trees.depths
        for depth in np.unique(trees.depths[wrong]).tolist():
            some = np.flatnonzero(wrong & (trees.depths == depth))
            self._rebuilt(trees, some, depth, depths, state)
        there = np.flatnonzero(depths > 0)
        known = trees.found
        if not len(there) and not known.rows.num_rows:
            return
        others, other_hashes = self._others(known, trees)
        by_key = taken(trees.by_key, there).columns if self.first.keys else []
        made = pa.table([*by_key, pa.array(depths[there]), pa.array(trees.sizes[there])], schema=self.roots.schema)
        hashes = np.concatenate([other_hashes, trees.hashes[there]])
        self.roots.replace(state, known, joined([others, made]) if others.num_rows else made, hashes)

    def _others(self, known: Found, trees: _Trees) -> tuple[pa.Table, Numbers]:
        """Return the roots that were read, and are of other groups: their hashes are the same."""
        if not known.rows.num_rows or not self.first.keys:
            return known.rows.slice(0, 0), known.hashes[:0]
        size = known.rows.num_rows
        both = joined([known.rows.select(self.first.keys), trees.by_key])
        groups = grouped(keys(both, self.first.keys), np.concatenate([known.hashes, trees.hashes]))
        mine = np.zeros(len(groups), bool)
        mine[groups.ids[size:]] = True
        other = np.flatnonzero(~mine[groups.ids[:size]])
        return taken(known.rows, other), known.hashes[other]

    def _rebuilt(self, trees: _Trees, some: Numbers, depth: int, depths: Numbers, state: State) -> None:
        """Take the rows of some trees of one depth out of their nodes, and put them into trees of other depths."""
        hashes = [trees.hashes[some]]
        for level in range(1, depth + 1):
            prefixes = np.arange(1 << (_FAN_OUT_BITS * level))
            every = np.repeat(trees.hashes[some], len(prefixes))
            hashes.append(_node_hashes(every, level, np.tile(prefixes, len(some))))
        found = self.rows.read(state, np.concatenate(hashes))
        both = joined([found.rows.select(self.first.keys), taken(trees.by_key, some)]) if self.first.keys else None
        size = found.rows.num_rows
        mine = keys(both, self.first.keys) if both is not None else Keys((), size + len(some))
        groups = grouped(mine, mine.hashes())
        tree_of = np.full(len(groups), -1)
        tree_of[groups.ids[size:]] = some
        owner = tree_of[groups.ids[:size]]
        other = np.flatnonzero(owner < 0)
        self.rows.replace(state, found, taken(found.rows, other), found.hashes[other])
        leaf = np.flatnonzero((owner >= 0) & (found.rows.column(LEVEL).to_numpy() == depth))
        rows = taken(found.rows, leaf).drop_columns([LEVEL])
        by_key = keys(rows, self.first.keys)
        nothing = _Trees(trees.by_key, trees.hashes, np.full(len(depths), -1), trees.sizes, trees.found)
        if rows.num_rows:
            self._changed(rows, depths[owner[leaf]], grouped(by_key, by_key.hashes()), nothing, state)


@dataclass(frozen=True)
class _Trees:
    """The groups of one step: a row with the keys of each, its hash, depth and size, and what was read of roots."""

    by_key: pa.Table
    hashes: Numbers
    depths: Numbers
    sizes: Numbers
    found: Found


def top_schemas(rows: pa.Schema, by: Sequence[str]) -> tuple[pa.Schema, pa.Schema]:
    """Return the columns of the two arrangements: of rows with these columns, in groups by some of them."""
    nodes = with_weight(rows.append(pa.field(LEVEL, pa.int8())))
    fields = [rows.field(name) for name in by]
    return nodes, pa.schema([*fields, pa.field(DEPTH, pa.int64()), pa.field(SIZE, pa.int64())])


def _node_hashes(hashes: Numbers, level: int, prefixes: Numbers) -> Numbers:
    mixed = (hashes.view(np.uint64) ^ (prefixes.view(np.uint64) * np.uint64(64) + np.uint64(level))) * _P1
    mixed = (mixed ^ (mixed >> np.uint64(29))) * _P2
    return (mixed ^ (mixed >> np.uint64(32))).view(np.int64)


def _at_level(rows: pa.Table, level: int) -> pa.Table:
    column = pa.repeat(pa.scalar(level, pa.int8()), rows.num_rows)
    if LEVEL in rows.column_names:
        return rows.set_column(rows.column_names.index(LEVEL), pa.field(LEVEL, pa.int8()), column)
    return rows.add_column(rows.num_columns - 1, pa.field(LEVEL, pa.int8()), column)


def _of_level(rows: pa.Table, level: int) -> pa.Table:
    """Return rows without the column of their level, only those of one level: others may have the same hash."""
    levels = rows.column(LEVEL).to_numpy()
    rows = rows.drop_columns([LEVEL])
    return rows if (levels == level).all() else taken(rows, np.flatnonzero(levels == level))


def _depth(sizes: Numbers) -> Numbers:
    """Return the depth of a tree for so many rows: the smallest one with leaves that are not large."""
    found = np.zeros(len(sizes), np.int64)
    for depth in range(1, _MOST_LEVELS + 1):
        found[sizes > _LEAF << (_FAN_OUT_BITS * (depth - 1))] = depth
    return found
