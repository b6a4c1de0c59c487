"""Which rows of a group are the first n, and their ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa

from penstock.incremental.circuit.changes import taken, weighted, weights
from penstock.incremental.circuit.ordering import OrderBy, sorted_positions
from penstock.incremental.circuit.row_identity import Numbers

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
        order = self._order(rows, groups, main)
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

    def _order(self, rows: pa.Table, groups: Numbers, main: list[Numbers]) -> Numbers:
        """Return the positions of rows in order; other columns decide only where there are rows that are equal."""
        order = sorted_positions(groups, main)
        ahead = {one.column for one in self.by}
        then = [name for name in self.then if name not in ahead]
        if not then or len(_firsts([groups[order], *(code[order] for code in main)])) == len(order):
            return order
        return sorted_positions(groups, [*main, *(code for name in then for code in OrderBy(name).codes(rows))])


def ranked(rows: pa.Table, ranks: Numbers, first: First, rank: str, schema: pa.Schema) -> pa.Table:
    """Return chosen rows in a schema with the column `rank`; each of several equal rows has a rank of its own."""
    counts = weights(rows)
    if first.ties == "row_number" and bool((counts > 1).any()):
        again = np.repeat(np.arange(len(counts)), counts)
        within = np.arange(len(again)) - np.repeat(np.cumsum(counts) - counts, counts)
        rows, ranks = weighted(taken(rows, again), np.ones(len(again), np.int64)), ranks[again] + within
    return rows.append_column(rank, pa.array(ranks, pa.int32())).select(schema.names)


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
