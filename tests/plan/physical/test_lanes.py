"""Lanes: which nodes run natively, which aggregates have two phases, and why the others run in Spark."""

from __future__ import annotations

from typing import Any

import pytest

import penstock as ps
from penstock.plan.physical.lanes import Lanes, Prefix, split_lanes

SCHEMA = "k string, v bigint, n int, x double, p decimal(10,2), b boolean, xs array<int>, ts timestamp"


def rows() -> ps.Stream:
    return ps.from_items([], SCHEMA).named("rows")


def timed() -> ps.KeyedStream:
    return rows().event_time("ts", "5s").key_by("k")


def lanes(*streams: ps.Stream) -> tuple[Prefix, Lanes]:
    outputs = [stream.to(ps.collect()).named(f"out{number}") for number, stream in enumerate(streams)]
    found = split_lanes(ps.Pipeline("p", *outputs).graph)
    (prefix,) = found.prefixes.values()
    return prefix, found


class Longest(ps.Aggregator):
    """An aggregate in Python."""

    state, result = "string", "string"

    def start(self) -> str:
        return ""

    def add(self, acc: str, *values: str) -> str:
        return max(acc, *values, key=len)

    def merge(self, a: str, b: str) -> str:
        return max(a, b, key=len)

    def finish(self, acc: str) -> str:
        return acc


def kinds(prefix: Prefix) -> list[str]:
    return [node.kind for node in prefix.chain]


@pytest.mark.parametrize(
    ("window", "pane_s"),
    [
        (ps.tumbling("60s"), 60),
        (ps.tumbling("60s", offset="7s"), 60),
        (ps.sliding("60s", "20s"), 20),
        (ps.sliding("15s", "10s"), 5),
        (ps.sliding("15s", "10s", offset="4s"), 5),
    ],
)
def test_a_two_phase_window_has_panes_that_lie_wholly_in_each_window(window: ps.Window, pane_s: int) -> None:
    prefix, _ = lanes(timed().window(window).aggregate(n="count(*)"))
    assert prefix.split is not None
    assert prefix.split.pane_us == pane_s * 1_000_000


def test_keys_without_a_window_have_two_phases_even_right_after_the_source() -> None:
    prefix, found = lanes(rows().key_by("k").aggregate(total="sum(v)"))
    assert (kinds(prefix), prefix.late, prefix.split is not None) == ([], None, True)
    assert found.lane(prefix.partial) == "native partial, spark merge"  # type: ignore[arg-type]


def test_python_is_folded_in_the_scan_in_a_window_only() -> None:
    prefix, _ = lanes(timed().window(ps.sliding("60s", "20s")).aggregate(a=Longest("k"), n="count(*)"))
    assert prefix.split is not None
    assert prefix.split.folded == ("a",)
    prefix, found = lanes(timed().aggregate(a=Longest("k")))
    assert prefix.partial is None
    assert "a is Python: without a window its accumulator is Spark's state" in found.reasons.values()


def test_equal_partials_are_made_once() -> None:
    wanted = {"vwap": "sum(x * v) / sum(v)", "volume": "sum(v)", "n": "count(*)", "mean": "avg(v)", "m": "count(v)"}
    prefix, _ = lanes(timed().window(ps.tumbling("60s")).aggregate(**wanted))
    assert prefix.split is not None
    assert [partial.call for partial in prefix.split.partials] == ["sum", "sum", "rows", "sum_double", "count"]


def test_a_filter_clause_belongs_to_the_partial() -> None:
    prefix, _ = lanes(timed().window(ps.tumbling("60s")).aggregate(n="sum(v) FILTER (WHERE b AND v > 0) + 1"))
    assert prefix.split is not None
    assert [partial.condition for partial in prefix.split.partials] == ["b AND v > 0"]
    assert prefix.split.merges == (("__penstock_pm0", "sum(__penstock_p0)"),)
    assert prefix.split.finals == (("n", "(__penstock_pm0) + 1"),)


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("stddev(x)", "stddev() of a double: Spark's state cannot merge partial variances"),
        ("approx_count_distinct(k)", "approx_count_distinct() is a sketch, and that of DuckDB differs"),
        ("avg(p)", "avg() of a decimal is rounded by Spark's own rules"),
        ("collect_list(v)", "collect_list() has no two-phase form"),
        ("max_by(k, v, 2)", "max_by() of several rows has no two-phase form"),
        ("count(k, v)", "count() of several columns has no two-phase form"),
        ("sum(size(xs))", "the type array<int> of xs"),
    ],
)
def test_what_has_no_two_phases_has_a_reason_and_keeps_its_native_chain(what: str, reason: str) -> None:
    prefix, found = lanes(timed().window(ps.tumbling("60s")).aggregate(a=what, n="count(*)"))
    assert (prefix.partial, kinds(prefix)) == (None, ["event_time"])
    assert prefix.late is not None
    assert found.reasons[prefix.late] == reason


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda s: s.window(ps.session("5s")).aggregate(n="count(*)"), "session windows are merged row by row"),
        (
            lambda s: s.window(ps.sliding("60001ms", "1s")).aggregate(n="count(*)"),
            "sliding(60001ms, 1s) is made of 60001 panes, too many for two phases",
        ),
        (lambda s: s.window(ps.tumbling("5s")).aggregate(a=Longest("soundex(k)")), "soundex()"),
        (lambda s: s.window(ps.tumbling("5s")).reduce(max), "reduce needs whole rows"),
    ],
)
def test_windows_without_two_phases_still_split_late_rows_natively(make: Any, reason: str) -> None:
    prefix, found = lanes(make(timed()))
    assert prefix.late is not None
    assert (found.reasons[prefix.late], prefix.partial) == (reason, None)


def test_the_part_before_a_fork_stays_native_and_the_branches_are_sparks() -> None:
    shared = rows().filter("v > 0").event_time("ts", "5s")
    sums = shared.key_by("k").window(ps.tumbling("60s")).aggregate(n="count(*)")
    prefix, found = lanes(sums, shared.filter("b"))
    assert (kinds(prefix), prefix.partial) == (["filter", "event_time"], None)
    assert {found.lane(node) for node in prefix.chain} == {"native"}
    (aggregate,) = [node for node in found.reasons if node.kind == "aggregate"]
    assert found.reasons[aggregate] == "the rows of event_time go several ways"


def test_explain_shows_the_lane_of_each_node_and_the_reason() -> None:
    stream = rows().filter("v > 0").event_time("ts", "5s").key_by("k").window(ps.tumbling("60s"))
    text = ps.Pipeline("p", stream.aggregate(a="collect_list(v)").to(ps.collect())).explain()
    assert "lane native" in text
    assert "lane spark (collect_list() has no two-phase form)" in text
    assert (
        "lane native partial, spark merge" in ps.Pipeline("p", stream.aggregate(a="sum(v)").to(ps.collect())).explain()
    )
