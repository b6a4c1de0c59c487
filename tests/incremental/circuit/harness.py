"""Runs a relation over epochs of changes, in memory and in the stores of a bucket, and compares it with the judge."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.incremental.circuit.changes import WEIGHT, consolidated, joined
from penstock.incremental.circuit.circuit import Circuit
from penstock.incremental.circuit.state import MemoryState, row_count
from penstock.keyed.store.bucket_store import RunSettings
from penstock.keyed.store.run_folder import RunFolder
from penstock.keyed.store.store_set import StoreSet
from penstock.plan.relations import Aggregate, Input, Latest, Relation
from penstock.storage.folders import LocalFolder
from tests.incremental.circuit.judge import SEQUENCE, Row, differences, recomputed

# Rows of each input with their weights; those of a log have weight 1, and their order counts.
Epoch = dict[str, list[tuple[Row, int]]]


def inputs_of(relation: Relation) -> dict[str, Input]:
    return {one.name: one for one in relation.operators if isinstance(one, Input)}


def logs_of(relation: Relation) -> set[str]:
    return {one.input.name for one in relation.operators if isinstance(one, Latest) and isinstance(one.input, Input)}


def table(given: Input, rows: Sequence[tuple[Row, int]]) -> pa.Table:
    schema = given.schema.nullable().arrow
    columns = [pa.array([row[number] for row, _ in rows], one.type) for number, one in enumerate(schema)]
    return pa.table(
        [*columns, pa.array([n for _, n in rows], pa.int64())], schema=schema.append(pa.field(WEIGHT, pa.int64()))
    )


@dataclass
class Harness:
    """One relation with its states; `stored` is what Spark would have stored of a bucket after the last epoch.

    With `append_only` no row is ever taken out of an input, and the circuit knows it.
    """

    relation: Relation
    folder: Path | None = None
    append_only: bool = False
    epoch: int = 0
    stored: bytes | None = None
    history: dict[str, list[tuple[Row, int]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.circuit = Circuit(self.relation, inputs_of(self.relation) if self.append_only else ())
        self.memory = MemoryState()
        self.result = self.circuit.schema.empty_table()

    def run(self, epoch: Epoch) -> pa.Table:
        """Run one epoch, and check what came of it."""
        inputs = inputs_of(self.relation)
        given = {name: table(inputs[name], rows) for name, rows in epoch.items() if name in inputs}
        changes = self.circuit.step(given, self.memory)
        if self.folder is not None:
            again = self._in_bucket(given)
            assert identical(again, changes)
        assert identical(changes, consolidated(changes)), "changes have a row twice, or one of weight 0"
        for name, rows in epoch.items():
            self.history.setdefault(name, []).extend(rows)
        self.result = consolidated(joined([self.result, changes]))
        wrong = differences(self.rows(), recomputed(self.relation, self.contents()))
        assert not wrong, "\n".join([f"epoch {self.epoch}", *wrong])
        self.epoch += 1
        return changes

    def _in_bucket(self, given: dict[str, pa.Table]) -> pa.Table:
        assert self.folder is not None
        runs = RunSettings(RunFolder(LocalFolder(self.folder)), retention=2, tail_bytes=300)
        state = StoreSet.of(self.stored, runs, self.circuit.stores)
        changes = self.circuit.step(given, state)
        self.stored = state.finished(self.epoch)
        return changes

    def rows(self) -> list[Row]:
        """Return the rows of the result, each as often as it is there."""
        found: list[Row] = []
        for row in self.result.to_pylist():
            weight = row.pop(WEIGHT)
            assert weight > 0, f"{row} is there {weight} times"
            found += [tuple(row.values())] * weight
        return found

    def contents(self) -> dict[str, pa.Table]:
        """Return what the inputs have now: of logs all rows with their numbers, of others those that are left."""
        made = {}
        for name, given in inputs_of(self.relation).items():
            rows = self.history.get(name, [])
            if name in logs_of(self.relation):
                made[name] = table(given, rows).append_column(SEQUENCE, pa.array(np.arange(len(rows))))
                continue
            left: Counter[str] = Counter()
            by_text: dict[str, Row] = {}
            for row, weight in rows:
                text = repr(tuple(0.0 if isinstance(one, float) and one == 0 else one for one in row))
                by_text[text] = row
                left[text] += weight
            made[name] = table(given, [(by_text[text], 1) for text, n in left.items() for _ in range(n)])
        return made

    def state_rows(self) -> dict[int, int]:
        """Return how many rows the state has, by arrangement, in memory and in the bucket."""
        found = row_count(self.memory, range(self.circuit.stores))
        if self.folder is not None:
            runs = RunSettings(RunFolder(LocalFolder(self.folder)), retention=2, tail_bytes=300)
            assert row_count(StoreSet.of(self.stored, runs, self.circuit.stores), range(self.circuit.stores)) == found
        return found

    @property
    def rows_that_stay(self) -> int:
        """How many rows the state has when all inputs are empty: one for each aggregate without keys, at least."""
        return sum(isinstance(one, Aggregate) and not one.keys for one in self.relation.operators)


def identical(one: pa.Table, other: pa.Table) -> bool:
    """Whether two tables have the same rows in the same order; NaN is NaN."""
    return one.schema.equals(other.schema) and str(one.to_pylist()) == str(other.to_pylist())


def check(relation: Relation, epochs: Sequence[Epoch], *, in_bucket: bool = True, append_only: bool = False) -> Harness:
    """Run epochs in memory and in a bucket; each must be what the judge finds."""
    folder = Path(tempfile.mkdtemp()) if in_bucket else None
    try:
        harness = Harness(relation, folder, append_only)
        for epoch in epochs:
            harness.run(epoch)
        harness.state_rows()
        return harness
    finally:
        if folder is not None:
            shutil.rmtree(folder)


def retraction(history: dict[str, list[tuple[Row, int]]], logs: dict[str, Any]) -> Epoch:
    """Return the epoch that takes out all that is there; `logs` gives for a row of a log the one that removes it."""
    made: Epoch = {}
    for name, rows in history.items():
        made[name] = [(logs[name](row), 1) for row, _ in rows] if name in logs else [(row, -n) for row, n in rows]
    return made
