"""The first n rows of each group by an order, with their ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa

from penstock.incremental.circuit.changes import (
    Numbers,
    consolidated,
    joined,
    keys,
    taken,
    values_of,
    weighted,
    weights,
)
from penstock.incremental.circuit.ordering import OrderBy, sorted_positions
from penstock.incremental.circuit.row_identity import grouped
from penstock.incremental.circuit.state import Arrangement, State

Ties = Literal["row_number", "rank", "dense_rank"]


@dataclass(frozen=True)
class First:
    """Chooses rows: the first n of each group; rows that are equal in `by` are ordered by the columns `then`."""

    keys: tuple[str, ...]
    n: int
    by: tuple[OrderBy, ...]
    then: tuple[str, ...]
    ties: Ties = "row_number"

    def of(self, rows: pa.Table, groups: Numbers) -> tuple[Numbers, Numbers, Numbers]:
        """Return the positions of the chosen rows, how many of each, and their ranks; each row counts by its weight."""
        main = [code for one in self.by for code in one.codes(rows)]
        rest = [code for name in self.then for code in OrderBy(name).codes(rows)]
        order = sorted_positions(groups, [*main, *rest])
        group, weight = groups[order], weights(rows)[order]
        starts = _firsts([group])
        ahead = np.cumsum(weight) - weight
        ahead = ahead - ahead[starts][np.cumsum(_flags(starts, len(order))) - 1] if len(order) else ahead
        if self.ties == "row_number":
            some = np.minimum(weight, self.n - ahead)
            chosen = np.flatnonzero(some > 0)
            return order[chosen], some[chosen], ahead[chosen] + 1
        peers = _firsts([group, *(code[order] for code in main)])
        number = np.cumsum(_flags(peers, len(order))) - 1
        if self.ties == "rank":
            ranks = ahead[peers][number] + 1 if len(order) else ahead
        else:
            ranks = number - (number[starts][np.cumsum(_flags(starts, len(order))) - 1] if len(order) else 0) + 1
        chosen = np.flatnonzero((ranks <= self.n) & (weight > 0))
        return order[chosen], weight[chosen], ranks[chosen]


def _firsts(codes: Sequence[Numbers]) -> Numbers:
    """Return the positions at which one of some codes differs from the one before."""
    if not len(codes[0]):
        return np.zeros(0, np.int64)
    differs = np.zeros(len(codes[0]), bool)
    differs[0] = True
    for code in codes:
        differs[1:] |= code[1:] != code[:-1]
    return np.flatnonzero(differs)


def _flags(positions: Numbers, size: int) -> Numbers:
    found = np.zeros(size, np.int64)
    found[positions] = 1
    return found


@dataclass(frozen=True)
class TopRows:
    """The first n rows of each group; `order` are the columns of `rows` that are only for the order."""

    schema: pa.Schema
    rows: Arrangement
    first: First
    rank: str | None
    runs_without_changes: bool = False

    @property
    def arrangements(self) -> tuple[Arrangement, ...]:
        """All rows, by their group."""
        return (self.rows,)

    def step(self, changes: Sequence[pa.Table], state: State) -> pa.Table:
        """Choose again in the groups that changed."""
        came = consolidated(changes[0])
        hashes = self.rows.hashes(came)
        found, after, _ = self.rows.add(state, came, hashes)
        old, new = self._chosen(found.rows), self._chosen(after)
        signs = np.concatenate([-weights(old), weights(new)])
        return consolidated(weighted(joined([old, new]) if old.num_rows else new, signs))

    def _chosen(self, rows: pa.Table) -> pa.Table:
        by_key = keys(rows, self.first.keys)
        positions, counts, ranks = self.first.of(rows, grouped(by_key, by_key.hashes()).ids)
        return self.shown(rows, positions, counts, ranks)

    def shown(self, rows: pa.Table, positions: Numbers, counts: Numbers, ranks: Numbers) -> pa.Table:
        """Return chosen rows as the result has them."""
        names = [name for name in self.schema.names if name in rows.column_names]
        if self.rank is None:
            return weighted(taken(rows, positions), counts).select(names)
        if self.first.ties == "row_number" and bool((counts > 1).any()):
            # Each of several equal rows has a rank of its own.
            again = np.repeat(np.arange(len(counts)), counts)
            within = np.arange(len(again)) - np.repeat(np.cumsum(counts) - counts, counts)
            positions, ranks, counts = positions[again], ranks[again] + within, np.ones(len(again), np.int64)
        made = weighted(taken(rows, positions), counts)
        return made.append_column(self.rank, pa.array(ranks, pa.int32())).select(self.schema.names)


__all__ = ["First", "TopRows", "values_of"]
