"""Keyed state on Spark: deduplication, running aggregates, aggregates in Python."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

import penstock as ps
from penstock.errors import FunctionFailed
from penstock.settings import Settings
from penstock.testing import EOF, Crash, Results, assert_rows, run_to_end
from tests.conftest import at

SCHEMA = "k string, v bigint, ts timestamp"


def rows() -> ps.Stream:
    return ps.from_items([], SCHEMA).named("rows")


def row(k: str, v: int, seconds: float) -> dict[str, Any]:
    return {"k": k, "v": v, "ts": at(seconds)}


def run(stream: ps.Stream, given: list[Any], settings: Settings) -> Any:
    return run_to_end(ps.Pipeline("p", stream.to(ps.collect())), {"rows": given}, settings=settings)


class Mean(ps.Aggregator):
    """The mean, with a state of two columns."""

    state = "n bigint, s double"
    result = "double"

    def start(self) -> dict[str, float]:
        return {"n": 0, "s": 0.0}

    def add(self, acc: dict[str, float], *values: Any) -> dict[str, float]:
        return {"n": acc["n"] + 1, "s": acc["s"] + values[0]}

    def merge(self, a: dict[str, float], b: dict[str, float]) -> dict[str, float]:
        return {"n": a["n"] + b["n"], "s": a["s"] + b["s"]}

    def finish(self, acc: dict[str, float]) -> float:
        return acc["s"] / acc["n"]


class Broken(Mean):
    """A mean that cannot finish."""

    def finish(self, acc: dict[str, float]) -> float:
        raise RuntimeError("no")


@pytest.mark.parametrize("lane", ["auto", "spark"])
def test_duplicates_within_the_span_are_dropped_and_counted(lane: str, settings: Settings) -> None:
    stream = rows().event_time("ts", "1s").deduplicate("k", within="10s")
    late = stream.side("late").to(ps.collect()).named("late")
    pipeline = ps.Pipeline("p", stream.to(ps.collect()), late)
    given = [row("a", 1, 1), row("a", 2, 2), row("b", 3, 3), EOF, row("a", 4, 5), row("c", 5, 60), EOF]
    given += [row("d", 6, 10), row("a", 7, 61)]
    out = run_to_end(pipeline, {"rows": given}, settings=replace(settings, lane=lane))
    assert sorted(r["k"] for r in out["collect"]) == ["a", "a", "b", "c"]
    assert_rows(out["late"], [row("d", 6, 10)])
    counts = out.counts["deduplicate"]
    assert (counts.rows_in, counts.used, counts.duplicate, counts.late) == (7, 4, 2, 1)


MORE_ENDS = ((), (4, 9), (3, 6), (1, 4, 7, 9))


@pytest.mark.parametrize("ends", [(6,), *(pytest.param(ends, marks=pytest.mark.slow) for ends in MORE_ENDS)])
def test_rows_outside_the_span_are_kept_wherever_epochs_end(ends: tuple[int, ...], settings: Settings) -> None:
    seconds = [0, 10, 11, 30, 3_600, 86_400, 86_395, 20, 21, 86_389]
    given = [row("a", number, at_second) for number, at_second in enumerate(seconds)]
    items: list[Any] = []
    for number, one in enumerate(given):
        items += [EOF, one] if number in ends else [one]
    stream = rows().event_time("ts", "2d").deduplicate("k", within="10s")
    out = run(stream, items, settings)
    # 10 is 10 s after 0, 20 and 21 are that close to 11 and 30, 86,395 to 86,400; 86,389 is 11 s before that.
    assert [r["v"] for r in out["collect"]] == [0, 2, 3, 4, 5, 9]


@pytest.mark.slow
def test_what_follows_a_deduplication_knows_the_watermark(settings: Settings) -> None:
    stream = rows().event_time("ts", "1s").deduplicate(["k", "v"], within="5s")
    counts = stream.key_by("k").window(ps.tumbling("10s")).aggregate(n="count(*)")
    ever = stream.key_by("k").aggregate(n="count(*)").named("ever").to(ps.collect()).named("totals")
    given = [row("a", 1, 1), row("a", 1, 2), row("a", 2, 3), EOF, row("a", 1, 6), row("a", 1, 7), EOF, row("b", 1, 40)]
    out = run_to_end(ps.Pipeline("p", counts.to(ps.collect()), ever), {"rows": given}, settings=settings)
    assert sorted((r["k"], r["window_start"], r["n"]) for r in out["collect"]) == [("a", at(0), 3), ("b", at(40), 1)]
    assert [(r["k"], r["n"]) for r in out["totals"]] == [("a", 2), ("a", 3), ("b", 1)]


LATER = ("array<double>", "struct<a:int,b:string>", "decimal(9,2)", "binary")


@pytest.mark.parametrize("kind", ["double", *(pytest.param(kind, marks=pytest.mark.slow) for kind in LATER)])
def test_keys_of_any_type_are_told_apart_as_spark_groups_them(kind: str, settings: Settings) -> None:
    values: dict[str, list[Any]] = {
        "double": [0.0, -0.0, float("nan"), float("nan"), None, None, 1.0],
        "array<double>": [[1.0, None], [None, 1.0], [1.0], [1.0, None], None, None, []],
        "struct<a:int,b:string>": [{"a": 1, "b": None}, {"a": None, "b": "1"}, None, None, {"a": 1, "b": None}],
        "decimal(9,2)": [Decimal("1.10"), Decimal("1.1"), None, Decimal("-1.10")],
        "binary": [b"", b"\0", b"", None, None],
    }
    kept = {"double": [0, 2, 4, 6], "array<double>": [0, 1, 2, 4, 6], "struct<a:int,b:string>": [0, 1, 2]}
    kept |= {"decimal(9,2)": [0, 2, 3], "binary": [0, 1, 3]}
    items: list[Any] = []
    for number, value in enumerate(values[kind]):
        items += [{"key": value, "v": number, "ts": at(0)}, *([EOF] if number == 2 else [])]
    stream = ps.from_items([], f"key {kind}, v bigint, ts timestamp").named("rows").event_time("ts", "1m")
    out = run(stream.deduplicate("key", within="10s"), items, settings)
    assert sorted(r["v"] for r in out["collect"]) == kept[kind]


def test_a_running_aggregate_shows_the_keys_that_changed(settings: Settings) -> None:
    stream = rows().key_by("k").aggregate(total="sum(v)")
    out = run(stream, [row("a", 1, 0), row("b", 2, 0), EOF, row("a", 3, 0)], settings)
    assert_rows(out["collect"], [{"k": "a", "total": 1}, {"k": "b", "total": 2}, {"k": "a", "total": 4}])


def test_a_python_aggregator_stands_beside_sql_in_a_window(settings: Settings) -> None:
    timed = rows().event_time("ts", "1s").key_by("k")
    stream = timed.window(ps.tumbling("10s")).aggregate(mean=Mean("v"), n="count(*)")
    given = [row("a", 1, 1), row("a", 2, 2), EOF, row("a", 6, 3), row("b", 5, 1), row("a", 9, 11)]
    out = run(stream, given, settings)
    means = {(r["k"], r["window_start"]): (r["mean"], r["n"]) for r in out["collect"]}
    assert means == {("a", at(0)): (3.0, 3), ("b", at(0)): (5.0, 1), ("a", at(10)): (9.0, 1)}


def larger(a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
    return a if a["v"] >= b["v"] else b


@pytest.fixture(scope="module")
def running(settings: Settings) -> Results:
    """Python over all rows of a key, with a crash between them."""
    keyed = rows().key_by("k")
    outputs = [
        keyed.aggregate(mean=Mean("v")).named("means").to(ps.collect()).named("mean"),
        keyed.reduce(larger).named("larger").to(ps.collect()).named("largest"),
    ]
    given = [row("a", 1, 0), row("b", 8, 0), Crash(), row("a", 3, 0)]
    return run_to_end(ps.Pipeline("p", *outputs), {"rows": given}, settings=settings)


def test_a_python_aggregator_without_a_window_keeps_running_across_a_crash(running: Results) -> None:
    means = [{"k": "a", "mean": 1.0}, {"k": "b", "mean": 8.0}, {"k": "a", "mean": 2.0}]
    assert_rows(running["mean"], means)


def test_reduce_makes_one_row_of_two(running: Results, settings: Settings) -> None:
    assert [r["v"] for r in running["largest"] if r["k"] == "a"] == [1, 3]
    timed = rows().event_time("ts", "1s").key_by("k")
    given = [row("a", 1, 1), row("a", 5, 2), row("a", 3, 3)]
    (found,) = run(timed.window(ps.session("10s")).reduce(larger), given, settings)["collect"]
    assert (found["k"], found["v"], found["window_start"], found["ts"]) == ("a", 5, at(1), at(2))


def test_an_aggregator_that_raises_is_named(settings: Settings) -> None:
    stream = rows().event_time("ts", "1s").key_by("k").window(ps.tumbling("10s")).aggregate(m=Broken("v"))
    with pytest.raises(FunctionFailed, match=r"Broken\.finish raised RuntimeError"):
        run(stream, [row("a", 1, 1)], settings)


@pytest.mark.slow
def test_rocksdb_gives_the_same(settings: Settings) -> None:
    timed = rows().event_time("ts", "1s").key_by("k")
    stream = timed.window(ps.tumbling("10s")).aggregate(total="sum(v)")
    given = [row("a", 1, 1), EOF, row("a", 2, 2), Crash(), row("a", 9, 30)]
    out = run(stream, given, replace(settings, state="rocksdb"))
    assert {(r["window_start"], r["total"]) for r in out["collect"]} == {(at(0), 3), (at(30), 9)}


def test_sql_makes_the_same_nodes(settings: Settings) -> None:
    timed = rows().event_time("ts", "1s")
    query = """SELECT k, window.start AS begun, sum(v) AS total FROM t WHERE v > 0
               GROUP BY k, window(ts, '10 seconds') HAVING count(*) > 1"""
    out = run(ps.sql(query, t=timed), [row("a", 1, 1), row("a", 2, 2), row("b", 3, 3), row("a", -9, 4)], settings)
    assert_rows(out["collect"], [{"k": "a", "begun": at(0), "total": 3}])
