"""Views in one process: the incremental graph, and deltas as bytes.

`python -m benchmarks.views_process CONFIG` measures one case, and prints it.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa

import penstock as ps
from benchmarks.child import end_with_parent
from benchmarks.process import answered
from benchmarks.results import OURS, Bar, Result, ratios
from penstock.incremental.deltas import set_rows
from penstock.incremental.encoding import decode, encode

RECOMPUTED = "recompute"
NS_PER_LEAF, FLAT, FASTER, NS_PER_DELTA = 250.0, 2.0, 100.0, 82.0
FOLDS = ("sum", "vwap")
# The first batches fill caches and create what is created once.
_WARM = 20


@dataclass(frozen=True)
class Case:
    """What to measure: batches of changed leaves, or of deltas."""

    name: str
    system: str
    keys: int
    rounds: int
    batch: int
    groups: int = 0


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    keys: Sequence[int] = (1_000, 10_000, 100_000, 1_000_000)
    rounds: int = 1_000
    batch: int = 1_000
    members: int = 2_000
    groups: int = 1_000


NOTE = """
Process: batches of {batch:,} changes; a change is a new value of a key that exists, chosen at random, in NumPy arrays.
ns/change is the median time of `set` and `stabilize` (or of encode and decode), divided by the changes of a batch. sum
and vwap fold all keys into one value; keys are integers, or strings of 8 characters (symbols). fold: each change is in
another of {groups:,} groups of {members:,} members, summed by `incr_fold` and, as "recompute", by `fold`, which calls
np.sum on the members. deltas: a Set of a string key, a double and a bigint. equal: the result is that of all values
computed again; what is decoded is what was encoded.
"""


def measured(sizes: Sizes) -> Iterator[Result]:
    """Measure all cases, each in a process of its own."""
    for case in cases(sizes):
        print(f"{case.name}, {case.system} ...", end=" ", flush=True)
        told, peak_mb = answered("benchmarks.views_process", case, case.name)
        nanoseconds = 1e9 * told["median"] / case.batch
        print(f"{nanoseconds:.0f} ns a change")
        rate = round(case.batch / told["median"])
        extra = {"ns/change": round(nanoseconds, 1), "keys": case.keys}
        yield Result(case.system, case.name, rate, round(told["seconds"], 3), peak_mb, told["equal"], extra)


def cases(sizes: Sizes) -> Iterator[Case]:
    """Yield what is measured."""
    for fold in (*FOLDS, *(f"{fold}-symbols" for fold in FOLDS)):
        for keys in sizes.keys:
            yield Case(f"{fold}-{keys}", OURS, keys, sizes.rounds, sizes.batch)
    total = sizes.groups * sizes.members
    for system, rounds in ((OURS, sizes.rounds), (RECOMPUTED, max(sizes.rounds // 20, 1))):
        yield Case(f"fold-{sizes.members}", system, total, rounds, sizes.groups, sizes.groups)
    yield Case(f"deltas-{sizes.batch}", OURS, sizes.batch, sizes.rounds, sizes.batch)


def bars(found: Sequence[Result]) -> Iterator[Bar]:
    """Return which bars were reached."""
    for fold in (*FOLDS, *(f"{fold}-symbols" for fold in FOLDS)):
        took = [result.extra["ns/change"] or 0.0 for result in found if result.case.rpartition("-")[0] == fold]
        if took:
            yield Bar(f"{fold}: at most {max(took):.0f} ns a leaf, bar {NS_PER_LEAF:.0f}", max(took) <= NS_PER_LEAF)
            ratio = max(took) / min(took)
            yield Bar(f"{fold}: {ratio:.2f} x from the fewest keys to the most, bar {FLAT:.2f}", ratio <= FLAT)
    for pair, ratio in ratios([result for result in found if result.case.startswith("fold-")]).items():
        yield Bar(f"fold: {pair} {ratio:.0f}, bar {FASTER:.0f}", ratio >= FASTER)
    for result in found:
        if result.case.startswith("deltas-"):
            each = result.extra["ns/change"] or 0.0
            yield Bar(f"{result.case}: {each:.0f} ns a delta, bar {NS_PER_DELTA:.0f}", each <= NS_PER_DELTA)


def measure(case: Case) -> dict[str, Any]:
    """Run the batches of a case."""
    if case.name.startswith("deltas-"):
        return _deltas(case)
    return _grouped(case) if case.groups else _total(case)


def _total(case: Case) -> dict[str, Any]:
    random = np.random.default_rng(1)
    keys = _symbols(case.keys) if "symbols" in case.name else np.arange(case.keys)
    graph = ps.Graph()
    vwap = case.name.startswith("vwap")
    leaf = graph.leaf("leaf", {"price": float, "size": int} if vwap else float)
    result = graph.incr_fold(leaf, "vwap" if vwap else "sum")

    def batch(chosen: Any) -> Callable[[], object]:
        values = _values(random, len(chosen), vwap=vwap)

        def change() -> object:
            graph.set(leaf, chosen, values)
            return graph.stabilize()

        return change

    batch(keys)()
    seconds = _timed(batch(keys[random.integers(0, case.keys, case.batch)]) for _ in range(case.rounds + _WARM))
    values = leaf.values()
    whole = (values["price"] * values["size"]).sum() / values["size"].sum() if vwap else values.sum()
    return _told(seconds, bool(np.isclose(result.value, whole, rtol=1e-12, atol=0)))


def _grouped(case: Case) -> dict[str, Any]:
    random = np.random.default_rng(1)
    graph = ps.Graph()
    leaf = graph.leaf("leaf")

    def by(keys: Any, values: Any) -> Any:
        return keys % case.groups

    incremental = case.system == OURS
    result = graph.incr_fold(leaf, "sum", by=by) if incremental else graph.fold(leaf, np.sum, by=by)
    graph.set(leaf, np.arange(case.keys), random.random(case.keys))
    graph.stabilize()

    def batch() -> Callable[[], object]:
        members = random.integers(0, case.keys // case.groups, case.groups)
        keys, values = members * case.groups + random.permutation(case.groups), random.random(case.groups)

        def change() -> object:
            graph.set(leaf, keys, values)
            return graph.stabilize()

        return change

    seconds = _timed(batch() for _ in range(case.rounds + _WARM))
    whole = np.bincount(leaf.keys() % case.groups, leaf.values())
    found = np.array([result.get(group) for group in range(case.groups)])
    return _told(seconds, bool(np.allclose(found, whole, rtol=1e-12, atol=0)))


def _deltas(case: Case) -> dict[str, Any]:
    random = np.random.default_rng(1)
    columns = {"symbol": _symbols(case.batch), "price": random.random(case.batch), "size": np.arange(case.batch)}
    rows = pa.table({name: pa.array(column) for name, column in columns.items()})
    batches = [set_rows(rows, ["symbol"], number * case.batch + np.arange(case.batch)) for number in range(10)]
    found: list[Any] = [None] * len(batches)

    def through(number: int) -> Callable[[], object]:
        def run() -> object:
            found[number] = decode(encode(batches[number]))
            return found

        return run

    seconds = _timed(through(number % len(batches)) for number in range(case.rounds + _WARM))
    return _told(seconds, all(one.table.equals(other.table) for one, other in zip(found, batches, strict=True)))


def _timed(batches: Iterator[Callable[[], object]]) -> list[float]:
    seconds = []
    for run in batches:
        started = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - started)
    return seconds[_WARM:]


def _told(seconds: Sequence[float], equal: bool) -> dict[str, Any]:
    return {"median": median(seconds), "seconds": sum(seconds), "equal": equal}


def _symbols(count: int) -> Any:
    return np.char.mod("S%07d", np.arange(count))


def _values(random: np.random.Generator, count: int, *, vwap: bool) -> Any:
    if not vwap:
        return random.random(count)
    values = np.empty(count, [("price", np.float64), ("size", np.int64)])
    values["price"], values["size"] = random.random(count), random.integers(1, 1_000, count)
    return values


if __name__ == "__main__":
    end_with_parent()
    print("\n" + json.dumps(measure(Case(**json.loads(sys.argv[1])))), flush=True)
