"""Promise: after every stabilization each node has what computing it from scratch gives."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.incremental.graph.graph import Graph
from penstock.incremental.graph.nodes import Node
from tests.incremental.edge_values import law, same

FLOATS = st.sampled_from([0.0, -0.0, 1.5, -2.25, 1e16, -1e16, 1e300, math.inf, -math.inf, math.nan, 3.0])
INTEGERS = st.integers(-5, 5) | st.sampled_from([2**40, -(2**40)])
Step = tuple[str, dict[int, Any]]
Steps = list[list[Step]]


def steps(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Steps]:
    """Return batches of changes of the leaves a and b; None removes a key."""
    change = st.dictionaries(st.integers(0, 12), st.none() | values, max_size=6)
    return st.lists(st.lists(st.tuples(st.sampled_from("ab"), change), max_size=3), min_size=1, max_size=6)


class World:
    """A graph with every kind of node, and the same collections as dictionaries."""

    def __init__(self, dtype: Any, *, shared: bool) -> None:
        self.graph = graph = Graph()
        self.leaves = {"a": graph.leaf("a", dtype)}
        self.leaves["b"] = graph.leaf("b", dtype, like=self.leaves["a"] if shared else None)
        self.rows: dict[str, dict[int, Any]] = {"a": {}, "b": {}}
        self.dtype = dtype
        a, b = self.leaves["a"], self.leaves["b"]
        group = lambda keys, values: keys % 3  # noqa: E731
        whole = lambda values: np.nan_to_num(values, nan=1, posinf=2, neginf=3).astype(np.int64) % 4  # noqa: E731
        ints = graph.map(a, whole, name="ints")
        largest = graph.incr_fold(a, "max", by=group, name="largest")
        seen = graph.distinct(ints, name="seen")
        self.nodes: dict[str, Node] = {
            "ints": ints,
            "positive": graph.filter(a, lambda values: values > 0, name="positive"),
            "pair": graph.map2(a, b, np.minimum, name="pair"),
            "median": graph.fold(ints, np.median, by=group, name="median"),
            "sum": graph.incr_fold(a, "sum", name="sum"),
            "sums": graph.incr_fold(a, "sum", by=group, name="sums"),
            "by value": graph.incr_fold(b, "sum", by=lambda keys, values: whole(values), name="by value"),
            "counts": graph.incr_fold(a, "count", by=group, name="counts"),
            "smallest": graph.incr_fold(a, "min", name="smallest"),
            "largest": largest,
            "top": graph.incr_fold(a, "top", n=2, by=group, name="top"),
            "xor": graph.incr_fold(
                ints,
                lift=lambda values: values,
                finish=lambda counts, terms: terms,
                add=np.bitwise_xor,
                remove=np.bitwise_xor,
                name="xor",
            ),
            "mean of largest": graph.incr_fold(largest, "mean", name="mean of largest"),
            "seen": seen,
            "how many": graph.incr_fold(seen, "count", name="how many"),
            "looked up": graph.join(ints, b, lambda left, right: right, lambda keys, values: values, name="looked up"),
        }

    def change(self, leaf: str, change: dict[int, Any]) -> None:
        new = {key: value for key, value in change.items() if value is not None}
        self.graph.set(self.leaves[leaf], list(new), np.array(list(new.values()), self.dtype))
        self.graph.remove(self.leaves[leaf], [key for key in change if key not in new])
        self.rows[leaf] = {key: value for key, value in {**self.rows[leaf], **change}.items() if value is not None}

    def expected(self) -> dict[str, dict[Any, Any]]:
        a, b = self.rows["a"], self.rows["b"]
        ints = {key: whole(value) for key, value in a.items()}
        groups = grouped(a, lambda key, value: key % 3)
        largest = {group: ordered(values)[-1] for group, values in groups.items()}
        numbers = list(ints.values())
        xor = 0
        for one in numbers:
            xor ^= one
        return {
            "ints": ints,
            "positive": {key: value for key, value in a.items() if value > 0},
            "pair": {key: np.minimum(a[key], b[key]) for key in a.keys() & b.keys()},
            "median": {g: float(np.median(v)) for g, v in grouped(ints, lambda key, value: key % 3).items()},
            "sum": {None: total(list(a.values()))} if a else {},
            "sums": {group: total(values) for group, values in groups.items()},
            "by value": {g: total(v) for g, v in grouped(b, lambda key, value: whole(value)).items()},
            "counts": {group: len(values) for group, values in groups.items()},
            "smallest": {None: ordered(list(a.values()))[0]} if a else {},
            "largest": largest,
            "top": {group: ordered(values)[::-1][:2] for group, values in groups.items()},
            "xor": {None: xor} if a else {},
            "mean of largest": {None: mean(list(largest.values()))} if largest else {},
            "seen": {one: one for one in numbers},
            "how many": {None: len(set(numbers))} if numbers else {},
            "looked up": {key: b[value] for key, value in ints.items() if value in b},
        }

    def check(self) -> None:
        for name, expected in self.expected().items():
            found = self.nodes[name].to_dict()
            if name == "top":
                found = {group: list(values[:count]) for group, (count, values) in found.items()}
            assert found.keys() == expected.keys(), name
            scale = self.scale(name)
            for key, value in expected.items():
                assert alike(found[key], value, scale), (name, key, found[key], value)

    def scale(self, name: str) -> float:
        """Return the sum of the absolute values, by which sums of floats are judged."""
        if name not in ("sum", "sums", "by value", "mean of largest"):
            return 0.0
        both = [*self.rows["a"].values(), *self.rows["b"].values()]
        return float(sum(abs(value) for value in both if math.isfinite(value)))


def whole(value: float) -> int:
    value = 1 if math.isnan(value) else 2 if value == math.inf else 3 if value == -math.inf else value
    return int(np.array([value]).astype(np.int64)[0]) % 4


def grouped(rows: dict[int, Any], by: Any) -> dict[Any, list[Any]]:
    groups: dict[Any, list[Any]] = {}
    for key, value in rows.items():
        groups.setdefault(by(key, value), []).append(value)
    return groups


def ordered(values: list[Any]) -> list[Any]:
    return sorted(
        values, key=lambda value: (math.isnan(value), value if not math.isnan(value) else 0, str(value) != "-0.0")
    )


def total(values: list[Any]) -> Any:
    if all(isinstance(value, int) for value in values):
        return sum(values)
    if not all(map(math.isfinite, values)):
        return float(np.array(values).sum())
    return math.fsum(values)


def mean(values: list[Any]) -> float:
    return float(total(values) / len(values))


def alike(found: Any, expected: Any, scale: float) -> bool:
    if isinstance(expected, list):
        return [same(one) for one in found] == [same(one) for one in expected]
    if isinstance(expected, float) and math.isfinite(expected) and scale:
        return bool(abs(found - expected) <= 1e-12 * scale)
    return bool(same(float(found)) == same(float(expected)))


@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")
@law
@given(steps(FLOATS), st.booleans())
def test_floats(batches: Steps, shared: bool) -> None:
    follow(World(float, shared=shared), batches)


@law
@given(steps(INTEGERS), st.booleans())
def test_integers(batches: Steps, shared: bool) -> None:
    follow(World(np.int64, shared=shared), batches)


def follow(world: World, batches: Steps) -> None:
    for batch in batches:
        for leaf, change in batch:
            world.change(leaf, change)
        world.graph.stabilize()
        world.check()
    for leaf, rows in list(world.rows.items()):
        world.change(leaf, dict.fromkeys(rows))
    world.graph.stabilize()
    assert {name: len(node) for name, node in world.nodes.items()} == dict.fromkeys(world.nodes, 0)


def test_many_random_changes_of_many_keys() -> None:
    """Runs are merged, trees get deeper, positions are given again, and sums are computed again."""
    random = np.random.default_rng(5)
    graph = Graph()
    leaf = graph.leaf("leaf")
    group = lambda keys, values: (keys + values * 10).astype(np.int64) % 5  # noqa: E731
    nodes = {
        "sum": graph.incr_fold(leaf, "sum", by=group),
        "max": graph.incr_fold(leaf, "max", by=group),
        "min": graph.incr_fold(leaf, "min"),
        "median": graph.fold(leaf, np.median, by=group),
    }
    model: dict[int, float] = {}
    for round_ in range(150):
        keys = np.unique(random.integers(0, 3000, 200))
        values = np.round(random.random(len(keys)) * 10.0 ** random.integers(-9, 9), 12)
        if round_ % 3 == 2:
            graph.remove(leaf, keys)
            for key in keys.tolist():
                model.pop(key, None)
        else:
            graph.set(leaf, keys, values)
            model.update(zip(keys.tolist(), values.tolist(), strict=True))
        graph.stabilize()
        if round_ % 10 == 0:
            groups: dict[int, list[float]] = {}
            for key, value in model.items():
                groups.setdefault(int(group(np.array([key]), np.array([value]))[0]), []).append(value)
            assert nodes["max"].to_dict() == {one: max(values) for one, values in groups.items()}
            assert nodes["median"].to_dict() == {one: float(np.median(values)) for one, values in groups.items()}
            assert nodes["min"].value == min(model.values())
            for one, found in nodes["sum"].to_dict().items():
                assert found == pytest.approx(math.fsum(groups[one]), rel=1e-12)
