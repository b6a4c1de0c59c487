"""CPU time of an epoch of 1,000 changes on views of 10,000 and of 1,000,000 rows.

Run `python -m benchmarks.circuit [NAME ...]`. Each epoch deletes 500 rows and adds 500; the median of twelve epochs. In
memory, and in the stores of a bucket, as on Spark.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.incremental.circuit.changes import WEIGHT
from penstock.incremental.circuit.circuit import Circuit
from penstock.incremental.circuit.state import MemoryState
from penstock.keyed.store.bucket_store import RunSettings
from penstock.keyed.store.run_folder import RunFolder
from penstock.keyed.store.store_set import StoreSet
from penstock.plan.relations import Aggregate, Input, Join, Relation, Top
from penstock.schema import Schema
from penstock.storage.folders import LocalFolder

Numbers = npt.NDArray[np.int64]
A = Input("a", Schema("id bigint, k bigint, v bigint, x double, s string"))
B = Input("b", Schema("k bigint, w bigint"))
SIZES = (10_000, 1_000_000)
EPOCHS, CHANGES, LOADED = 12, 500, 100_000
_FIRST = Top(A, ("k",), 3, (("v", "desc", "last"),))
_MAX = Aggregate(A, ("k",), (("m", "max(v)"),))
# Name -> the relation, and how many groups there are among so many rows.
CASES: dict[str, tuple[Relation, Callable[[int], int]]] = {
    "join": (Join(A, B, (("k", "k"),)), lambda size: size // 10),
    "left join": (Join(A, B, (("k", "k"),), "left"), lambda size: size // 10),
    "sum": (Aggregate(A, ("k",), (("n", "count(*)"), ("s", "sum(v)"))), lambda size: size // 10),
    "sum of doubles": (Aggregate(A, ("k",), (("s", "sum(x)"),)), lambda size: size // 10),
    "max": (_MAX, lambda size: size // 10),
    "max in 20 groups": (_MAX, lambda size: 20),
    "top": (_FIRST, lambda size: size // 10),
    "top in 20 groups": (_FIRST, lambda size: 20),
    "max of all": (Aggregate(A, (), (("m", "max(v)"), ("s", "sum(v)"))), lambda size: 1),
}


def rows(ids: Numbers, groups: int, weight: int) -> pa.Table:
    """Return rows of the first input; a row depends on its number only."""
    values = ids * 2_654_435_761 % 1_000_003
    texts = pa.array([f"s{number % 997}" for number in ids.tolist()])
    weights = np.full(len(ids), weight)
    names = [*A.schema.names, WEIGHT]
    return pa.table([ids, ids % groups, values, values / 4, texts, weights], names=names)


def measured(relation: Relation, size: int, groups: int, *, in_bucket: bool) -> float:
    """Return the milliseconds of CPU time of an epoch."""
    with tempfile.TemporaryDirectory() as folder:
        return _Run(relation, groups, folder if in_bucket else None).median(size)


class _Run:
    def __init__(self, relation: Relation, groups: int, folder: str | None) -> None:
        self.circuit, self.groups, self.folder = Circuit(relation), groups, folder
        self.memory, self.epoch = MemoryState(), 0
        self.stored: bytes | None = None

    def step(self, changes: dict[str, pa.Table]) -> float:
        start = time.process_time()
        if self.folder is None:
            self.circuit.step(changes, self.memory)
        else:
            runs = RunSettings(RunFolder(LocalFolder(self.folder)), retention=2)
            state = StoreSet.of(self.stored, runs, self.circuit.stores)
            self.circuit.step(changes, state)
            self.stored = state.finished(self.epoch)
        self.epoch += 1
        return (time.process_time() - start) * 1000

    def median(self, size: int) -> float:
        random, there, times = np.random.default_rng(1), np.arange(size), []
        if "b" in self.circuit.inputs:
            keys = np.arange(self.groups)
            self.step({"b": pa.table({"k": keys, "w": keys * 3})})
        for start in range(0, size, LOADED):
            self.step({"a": rows(there[start : start + LOADED], self.groups, 1)})
        for number in range(EPOCHS):
            gone = random.choice(len(there), CHANGES, replace=False)
            new = np.arange(CHANGES) + size + number * CHANGES
            changes = pa.concat_tables([rows(there[gone], self.groups, -1), rows(new, self.groups, 1)])
            there = np.concatenate([np.delete(there, gone), new])
            times.append(self.step({"a": changes}))
        return float(np.median(times))


def main() -> None:
    """Print a line for each case."""
    for name in sys.argv[1:] or CASES:
        relation, groups = CASES[name]
        for in_bucket in (False, True):
            found = [measured(relation, size, groups(size), in_bucket=in_bucket) for size in SIZES]
            where = "bucket" if in_bucket else "memory"
            print(
                f"{name:18} {where}  " + "  ".join(f"{one:7.1f} ms" for one in found), f"  x {found[1] / found[0]:.2f}"
            )


if __name__ == "__main__":
    main()
