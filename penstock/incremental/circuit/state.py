"""The state of a circuit: for each of its arrangements the rows by the hash of their key.

A step reads the groups of the hashes that it touches and replaces them. In a bucket on Spark the stores are those of a
`StoreSet`; in a process they are in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from penstock.incremental.circuit.changes import (
    WEIGHT,
    joined,
    keys,
    summed,
    values_of,
)
from penstock.incremental.circuit.row_identity import Numbers, grouped
from penstock.keyed.store.bucket_store import BucketStore, Touched
from penstock.keyed.store.groups import ALWAYS, Groups, StateRows, empty_groups, merged
from penstock.keyed.store.groups import grouped as as_groups
from penstock.keyed.store.manifest import Manifest

# A part is merged with the next older one if that is less than so many times as large.
_RATIO = 2


class State(Protocol):
    """Stores by their numbers."""

    def get(self, number: int) -> BucketStore:
        """Return a store; one that was never used is empty."""

    def put(self, number: int, store: BucketStore) -> None:
        """Replace a store."""


class MemoryStore(BucketStore):
    """A store in memory: sorted parts, newest first, each a few times as large as the one before it."""

    def __init__(self, parts: tuple[Groups, ...] = ()) -> None:
        super().__init__(Manifest())
        self.parts = parts

    def _parts(self) -> Iterator[Groups]:
        yield from self.parts or (empty_groups(),)

    def replaced(self, touched: Touched, parts: Sequence[StateRows], expired_us: int | None = None) -> MemoryStore:
        """Return the store with new rows for the groups that were touched."""
        like = [StateRows(table.slice(0, 0), touched.hashes[:0]) for table in touched.tables or ()]
        found = [as_groups(parts or like, touched.existing), *self.parts]
        while len(found) > 1 and len(found[1]) < _RATIO * len(found[0]):
            found[:2] = [merged(found[:2], oldest=len(found) == 2, expired_us=ALWAYS)]
        return MemoryStore(tuple(part for part in found if len(part)))


class MemoryState:
    """The state of a circuit in memory."""

    def __init__(self) -> None:
        self._stores: dict[int, BucketStore] = {}

    def get(self, number: int) -> BucketStore:
        """Return a store."""
        return self._stores.get(number) or MemoryStore()

    def put(self, number: int, store: BucketStore) -> None:
        """Replace a store."""
        self._stores[number] = store

    @property
    def numbers(self) -> list[int]:
        """The stores that were used."""
        return sorted(self._stores)


def row_count(state: State, numbers: Sequence[int]) -> dict[int, int]:
    """Return how many rows each of some stores has."""
    groups = {number: state.get(number).everything() for number in numbers}
    return {number: sum(table.num_rows for table in one.tables) for number, one in groups.items()}


@dataclass(frozen=True)
class Found:
    """Rows that were read, with the hash of each; `touched` is what replacing them needs."""

    rows: pa.Table
    hashes: Numbers
    touched: Touched


@dataclass(frozen=True)
class Arrangement:
    """One table of state: its number, its columns, and the columns by whose hash its rows are found."""

    number: int
    schema: pa.Schema
    keys: tuple[str, ...]

    def read(self, state: State, hashes: Numbers) -> Found:
        """Return the rows of the groups with these hashes."""
        touched = state.get(self.number).read(hashes)
        if touched.tables is None:
            return Found(self.schema.empty_table(), touched.hashes[:0], touched)
        return Found(touched.tables[0], touched.row_hashes[0], touched)

    def replace(self, state: State, found: Found, rows: pa.Table, hashes: Numbers) -> None:
        """Replace the rows of the groups that were read."""
        if not len(found.touched.existing) and not rows.num_rows:
            return
        store = state.get(self.number).replaced(found.touched, [StateRows(rows, hashes)])
        state.put(self.number, store)

    def hashes(self, rows: pa.Table) -> Numbers:
        """Return the hash of each row's key."""
        return keys(rows, self.keys).hashes()

    def append(self, state: State, rows: pa.Table, hashes: Numbers) -> tuple[Found, pa.Table, Numbers]:
        """Add rows as `add` does, if none is ever taken out: equal ones need not be found."""
        found = self.read(state, hashes)
        both = joined([found.rows, rows]) if found.rows.num_rows else rows
        all_hashes = np.concatenate([found.hashes, hashes])
        self.replace(state, found, both, all_hashes)
        return found, both, all_hashes

    def add(self, state: State, changes: pa.Table, hashes: Numbers) -> tuple[Found, pa.Table, Numbers]:
        """Add changes to rows that have weights; return what was there, and what is there now, with hashes."""
        found = self.read(state, hashes)
        both = joined([found.rows, changes]) if found.rows.num_rows else changes
        all_hashes = np.concatenate([found.hashes, hashes])
        by_row = keys(both, values_of(both))
        rows, positions = summed(both, grouped(by_row, by_row.hashes()))
        mine = all_hashes[positions]
        self.replace(state, found, rows, mine)
        return found, rows, mine


def with_weight(schema: pa.Schema) -> pa.Schema:
    """Return the columns of rows, and their weight."""
    return schema.append(pa.field(WEIGHT, pa.int64()))
