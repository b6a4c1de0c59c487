"""What a user of the graph sees: cutoff, heights, counters, changes, drawings and errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps
from penstock.errors import BadFunction, BadValue, DuplicateName
from penstock.incremental.deltas import apply, no_deltas


def test_only_what_changed_is_recomputed() -> None:
    graph = ps.Graph()
    seen: list[int] = []
    leaf = graph.leaf("leaf")
    doubled = graph.map(leaf, lambda values: seen.append(len(values)) or values * 2)
    graph.set(leaf, np.arange(1000), np.arange(1000.0))
    assert graph.stabilize().recomputed == 1000
    graph.set(leaf, [3, 7], [0.5, 0.25])
    stats = graph.stabilize()
    assert (stats.dirty, stats.recomputed, stats.cut_off, stats.nodes) == (2, 2, 0, 2)
    assert seen == [1000, 2]
    assert doubled.get(7) == 0.5
    assert graph.stabilize().nodes == 0


def test_an_equal_value_cuts_the_rest_off() -> None:
    graph = ps.Graph()
    leaf = graph.leaf("leaf", int)
    sign = graph.map(leaf, np.sign, name="sign")
    total = graph.incr_fold(sign, "sum")
    graph.set(leaf, [1, 2], [5, -5])
    graph.stabilize()
    graph.set(leaf, [1, 2], [5, -7])
    stats = graph.stabilize()
    assert (stats.dirty, stats.recomputed, stats.cut_off, stats.nodes) == (2, 1, 2, 2)
    assert total.counters.recomputed == 1
    graph.set(leaf, [1], [5])
    assert graph.stabilize().nodes == 1


def test_nan_is_equal_to_itself_and_a_cutoff_can_be_a_function() -> None:
    graph = ps.Graph()
    leaf = graph.leaf("leaf", cutoff=lambda old, new: np.abs(new - old) < 0.1)
    graph.set(leaf, 1, 1.0)
    graph.stabilize()
    graph.set(leaf, 1, 1.05)
    assert graph.stabilize().cut_off == 1
    assert leaf.to_dict() == {1: 1.0}
    exact = graph.leaf("exact")
    graph.set(exact, "x", np.nan)
    graph.stabilize()
    graph.set(exact, "x", np.nan)
    assert graph.stabilize().cut_off == 1


def test_a_diamond_is_visited_once() -> None:
    graph = ps.Graph()
    leaf = graph.leaf("leaf", int)
    left, right = graph.map(leaf, lambda v: v + 1), graph.map(graph.map(leaf, lambda v: v * 2), lambda v: v * 2)
    both = graph.map2(left, right, np.add)
    graph.set(leaf, 1, 10)
    graph.stabilize()
    assert [node.height for node in (leaf, left, right, both)] == [0, 1, 2, 3]
    graph.set(leaf, 1, 20)
    assert graph.stabilize().nodes == 5
    assert both.to_dict() == {1: 101}
    assert both.counters.recomputed == 2


def test_a_node_that_is_added_later_starts_with_what_is_there() -> None:
    graph = ps.Graph()
    leaf = graph.leaf("leaf")
    graph.set(leaf, ["a", "b"], [1.0, 2.0])
    graph.stabilize()
    total = graph.incr_fold(leaf, "sum")
    assert total.value is None
    assert graph.stabilize().nodes == 1
    assert total.value == 3.0


def test_the_last_of_several_values_of_a_key_counts() -> None:
    graph = ps.Graph()
    leaf = graph.leaf("leaf", int)
    graph.set(leaf, [1, 2, 1], [10, 20, 30])
    graph.set(leaf, [2], [40])
    graph.remove(leaf, [3])
    graph.stabilize()
    assert leaf.to_dict() == {1: 30, 2: 40}
    graph.set(leaf, [2], [50])
    graph.remove(leaf, [2])
    graph.remove(leaf, [1])
    graph.set(leaf, [1], [60])
    graph.stabilize()
    assert leaf.to_dict() == {1: 60}


def test_records_give_a_weighted_average() -> None:
    graph = ps.Graph()
    trades = graph.leaf("trades", {"price": float, "size": int})
    vwap = graph.incr_fold(trades, "vwap", by=lambda keys, values: values["size"] > 5)
    graph.set(trades, ["a", "b", "c"], {"price": [1.0, 2.0, 4.0], "size": [1, 3, 10]})
    graph.stabilize()
    assert vwap.to_dict() == {False: 1.75, True: 4.0}
    graph.remove(trades, "c")
    graph.stabilize()
    assert vwap.to_dict() == {False: 1.75}


def test_texts_are_values_too() -> None:
    graph = ps.Graph()
    leaf = graph.leaf("leaf", str)
    upper = graph.map(leaf, np.char.upper)
    longest = graph.fold(leaf, lambda values: max(values.tolist(), key=len))
    graph.set(leaf, [1], ["ab"])
    graph.stabilize()
    graph.set(leaf, [2], ["abcdef"])
    graph.stabilize()
    assert upper.to_dict() == {1: "AB", 2: "ABCDEF"}
    assert longest.value == "abcdef"
    assert graph.distinct(leaf).name == "distinct-3"
    graph.stabilize()


def test_distinct_values_have_the_type_of_their_input() -> None:
    graph = ps.Graph()
    leaf = graph.leaf("leaf")
    values = graph.distinct(leaf)
    most = graph.incr_fold(values, "max")
    pairs = graph.leaf("pairs", {"x": int, "y": float})
    seen = graph.distinct(pairs)
    graph.set(leaf, [1, 2, 3, 4], [np.nan, 2.5, np.nan, 0.0])
    graph.set(pairs, [1, 2, 3], {"x": [1, 1, 2], "y": [0.5, 0.5, 0.5]})
    graph.stabilize()
    assert (len(values), values.values().dtype) == (3, np.float64)
    assert np.isnan(most.value)
    assert seen.values().tolist() == [(1, 0.5), (2, 0.5)]
    graph.remove(leaf, 1)
    assert graph.stabilize().cut_off == 1
    graph.remove(leaf, 3)
    graph.stabilize()
    assert (sorted(values.to_dict()), most.value) == ([0.0, 2.5], 2.5)


def test_changes_are_those_of_the_last_stabilization() -> None:
    graph = ps.Graph()
    leaf = graph.leaf("leaf", int)
    large = graph.filter(leaf, lambda values: values > 10)
    graph.set(leaf, ["a", "b", "c"], [5, 20, 30])
    graph.stabilize()
    assert large.changes().keys == ["b", "c"]
    graph.set(leaf, ["a", "b"], [15, 1])
    graph.stabilize()
    found = large.changes()
    assert (found.keys, found.values, found.removed) == (["a"], [15], ["b"])
    graph.stabilize()
    assert large.changes() == type(found)([], [], [])


def test_deltas_of_a_node_rebuild_it_elsewhere() -> None:
    random = np.random.default_rng(2)
    graph = ps.Graph()
    leaf = graph.leaf("leaf", {"price": float, "size": int})
    kept = graph.filter(leaf, lambda values: values["size"] > 3)
    schema = pa.schema([("key", pa.int64()), ("price", pa.float64()), ("size", pa.int64())])
    copy = no_deltas(schema, ["key"])
    for sequence in range(1, 20):
        keys = random.integers(0, 30, 10)
        graph.set(leaf, keys, {"price": random.random(10), "size": random.integers(0, 8, 10)})
        graph.remove(leaf, random.integers(0, 30, 3))
        graph.stabilize()
        copy = apply(kept.deltas(sequence), copy)
        rows = {row["key"]: (row["price"], row["size"]) for row in copy.rows().to_pylist()}
        assert rows == kept.to_dict()
    graph.stabilize()
    assert len(kept.deltas(99)) == 0


def test_top_has_fewer_values_where_there_are_fewer() -> None:
    graph = ps.Graph()
    leaf = graph.leaf("leaf", int)
    top = graph.incr_fold(leaf, "top", n=3)
    graph.set(leaf, [1, 2], [7, 9])
    graph.stabilize()
    assert (top.value["count"], top.value["values"].tolist()) == (2, [9, 7, 0])


@pytest.mark.parametrize("dtype", ["u8", "i1", "f4", "M8[us]", "?"])
def test_order_holds_for_every_type_of_number(dtype: str) -> None:
    values = np.array([0, 1, 1, 0] if dtype == "?" else [200, 3, 100, 0], np.uint8).astype(dtype)
    graph = ps.Graph()
    leaf = graph.leaf("leaf", dtype)
    least, most = graph.incr_fold(leaf, "min"), graph.incr_fold(leaf, "max")
    graph.set(leaf, [0, 1, 2, 3], values)
    graph.stabilize()
    assert (least.value, most.value) == (values.min(), values.max())


def test_a_function_that_raises_leaves_the_graph_usable() -> None:
    graph = ps.Graph()
    leaf = graph.leaf("leaf", int)
    total = graph.incr_fold(leaf, "sum")

    def fragile(values: Any) -> Any:
        if (values < 0).any():
            message = "negative"
            raise ArithmeticError(message)
        return values + 1

    mapped = graph.map(leaf, fragile)
    sums = graph.incr_fold(mapped, "sum")
    graph.set(leaf, [1, 2], [10, 20])
    graph.stabilize()
    graph.set(leaf, 1, -1)
    with pytest.raises(ArithmeticError):
        graph.stabilize()
    with pytest.raises(ArithmeticError):
        graph.stabilize()
    graph.set(leaf, 1, 5)
    graph.stabilize()
    assert (total.value, sums.value, mapped.to_dict()) == (25, 27, {1: 6, 2: 21})


def test_drawings_have_kinds_heights_and_counters() -> None:
    graph = ps.Graph()
    leaf = graph.leaf('pri"ce')
    graph.map(leaf, np.sign, name="sign <b>")
    graph.set(leaf, [1, 2], [1.0, 2.0])
    graph.stabilize()
    assert graph.to_dot().splitlines()[3:] == [
        '  n0 [shape=cylinder, label="leaf pri\\"ce: float64\\nheight 0, keys 2\\nrecomputed 2, cut off 0"];',
        '  n1 [shape=box, label="map sign <b>\\nheight 1, keys 2\\nrecomputed 2, cut off 0"];',
        "  n0 -> n1;",
        "}",
    ]
    assert graph.to_mermaid().splitlines() == [
        "flowchart LR",
        '  n0[("leaf pri#quot;ce: float64<br/>height 0, keys 2<br/>recomputed 2, cut off 0")]',
        '  n1["map sign #lt;b#gt;<br/>height 1, keys 2<br/>recomputed 2, cut off 0"]',
        "  n0 --> n1",
    ]


def test_mistakes_are_named() -> None:
    graph, other = ps.Graph(), ps.Graph()
    leaf = graph.leaf("leaf", int)
    with pytest.raises(DuplicateName, match="a node 'leaf' already"):
        graph.leaf("leaf")
    with pytest.raises(BadValue, match="not a node of this graph"):
        other.map(leaf, np.sign)
    with pytest.raises(BadValue, match="2 keys, and 1 values"):
        graph.set(leaf, [1, 2], [1])
    with pytest.raises(BadValue, match="values are int64, and these are float64"):
        graph.set(leaf, [1], [1.5])
    with pytest.raises(BadValue, match="kind 'som'"):
        graph.incr_fold(leaf, "som")  # type: ignore[arg-type]
    with pytest.raises(BadValue, match="n=0 is less than 1"):
        graph.incr_fold(leaf, "top", n=0)
    with pytest.raises(BadFunction, match="not NumPy functions"):
        graph.incr_fold(leaf, lift=np.sign, finish=np.sign, add=max, remove=min)  # type: ignore[arg-type]
    mapped = graph.map(leaf, np.sum, name="sum up")
    with pytest.raises(BadValue, match="map 'sum up' is computed"):
        graph.set(mapped, 1, 1)
    graph.set(leaf, [1, 2], [1, 2])
    with pytest.raises(BadFunction, match="map 'sum up': the function got 2 values and returned one value"):
        graph.stabilize()


def test_fields_of_records_and_conditions_are_checked() -> None:
    graph = ps.Graph()
    trades = graph.leaf("trades", {"price": float, "size": int})
    with pytest.raises(BadValue, match="got the fields price"):
        graph.set(trades, [1], {"price": [1.0]})
    graph.filter(trades, lambda values: values["size"])
    graph.set(trades, [1], {"price": [1.0], "size": [1]})
    with pytest.raises(BadFunction, match="returned int64 instead of bool"):
        graph.stabilize()
