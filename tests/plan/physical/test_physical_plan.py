"""One physical plan: what explain prints, the checkpoint stores and the compiler reads is one value."""

from __future__ import annotations

import ast
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as given_settings
from hypothesis import strategies as st

import penstock as ps
from penstock.errors import BadValue
from penstock.plan.physical.binding import BoundPlan
from penstock.plan.physical.explain import explain
from penstock.plan.physical.lanes import split_lanes
from penstock.plan.physical.plan import PhysicalPlan, masked_texts
from penstock.plan.physical.planner import physical_plan
from penstock.settings import Settings

ROOT = Path(__file__).parents[3]
SNAPSHOTS = Path(__file__).parent / "physical_plans"
SCHEMA = "k string, v bigint, ts timestamp not null"


def rows(name: str = "rows") -> ps.Stream:
    return ps.from_items([], SCHEMA).named(name)


def counted(stream: ps.Stream, name: str, emit: str = "final") -> ps.Stream:
    window = stream.key_by("k").window(ps.tumbling("10s"), emit=emit)  # type: ignore[arg-type]
    return window.aggregate(n="count(*)").named(name)


def both_lanes() -> ps.Pipeline:
    """The filter and half of the aggregate run in the scan; collect_list is Spark's."""
    native = counted(rows("fast").filter("v > 0").event_time("ts", "5s"), "fast-counts")
    spark = rows("slow").event_time("ts", "5s").key_by("k").window(ps.tumbling("10s")).aggregate(all="collect_list(v)")
    outputs = native.to(ps.files("fast")), spark.named("lists").to(ps.files("slow"))
    return ps.Pipeline("both-lanes", *outputs, rejected_to=ps.topic("bad"))


def two_queries() -> ps.Pipeline:
    """Results that wait for other delays, and those that are updated, are queries of their own; late rows go aside."""
    early, late = rows().event_time("ts", "5s"), rows().event_time("ts", "60s")
    counts = counted(early, "early")
    outputs = [counts.to(ps.files("early")), counts.side("late").filter("v > 1").to(ps.console())]
    return ps.Pipeline("two-queries", *outputs, counted(late, "late", emit="updates").to(ps.collect()))


def realtime() -> ps.Pipeline:
    topic = ps.read_topic("orders", schema=SCHEMA)
    counts = counted(topic.event_time("ts", "5s"), "counts", emit="updates")
    return ps.Pipeline("realtime", counts.to(ps.topic("totals", key="k")), rejected_to=ps.topic("bad"), pace="realtime")


def branches() -> ps.Pipeline:
    """Several operators follow one event time; state in buckets follows state in buckets, and a join stores rows."""
    timed = rows("left").event_time("ts", "5s")
    joined = timed.join(rows("right").event_time("ts", "9s"), on="k", how="left", within=("-5s", "1h"))
    once = joined.deduplicate("k", "1m").named("once")
    counts = once.key_by("k").window(ps.session("5s", max_length="1m")).aggregate(n="count(*)").named("sessions")
    return ps.Pipeline("branches", counts.to(ps.files("sessions")), counted(timed, "all").to(ps.files("all")))


PIPELINES = (both_lanes, two_queries, realtime, branches)


def planned(pipeline: ps.Pipeline) -> PhysicalPlan:
    return pipeline.physical_plan(Settings())


@pytest.mark.parametrize("build", PIPELINES, ids=lambda build: build.__name__)
def test_the_plan_is_what_it_was(build: Callable[[], ps.Pipeline]) -> None:
    """Set UPDATE_SNAPSHOTS=1 to write the plans again, and read the difference before you commit it."""
    text, path = planned(build()).to_json() + "\n", SNAPSHOTS / f"{build.__name__}.json"
    if os.environ.get("UPDATE_SNAPSHOTS"):
        path.write_text(text)
    assert json.loads(text) == json.loads(path.read_text())


def test_the_plan_tells_lanes_queries_state_and_guarantees() -> None:
    plan = planned(both_lanes())
    assert {node.id: node.lane for node in plan.nodes if node.kind == "aggregate"} == {
        "fast-counts": "native partial, spark merge",
        "lists": "spark",
    }
    state = plan.node("fast-counts").state
    assert state is not None
    assert (state.store, state.bounded) == ("spark", True)
    assert plan.node("fast-counts").watermark == ("event_time-fast",)
    assert {sink.guarantee for sink in plan.sinks} == {"exactly_once"}
    assert plan.rejected is not None
    assert plan.rejected.target == "topic 'bad'"


def test_queries_say_what_they_share_count_and_publish() -> None:
    first, second = planned(two_queries()).queries
    assert (first.mode, second.mode) == ("append", "update")
    assert first.late_sinks == ("sink console",)
    assert {"source rows", "filter"} <= set(first.counts)
    assert "source rows" in second.nodes
    assert "source rows" not in second.counts
    (query,) = {query.name: query for query in planned(branches()).queries if "sink sessions" in query.sinks}.values()
    assert query.redeclares_watermark
    assert query.timers


def test_in_real_time_each_sink_and_each_sources_rejected_rows_have_a_query() -> None:
    plan = planned(realtime())
    assert plan.runner == "real-time"
    assert [query.name for query in plan.queries] == ["to-totals", "rejected-orders"]
    assert {query.mode for query in plan.queries} == {"update"}
    assert plan.queries[1].rejected_from == "source orders"
    assert {scan.reader for scan in plan.scans} == {"spark"}
    assert {sink.guarantee for sink in plan.sinks} == {"at_least_once"}


def test_another_version_of_the_form_is_refused_with_what_to_do() -> None:
    document = json.loads(planned(both_lanes()).to_json()) | {"version": 99}
    with pytest.raises(BadValue, match="version 99"):
        PhysicalPlan.from_json(json.dumps(document))
    with pytest.raises(BadValue, match="not a physical plan"):
        PhysicalPlan.from_json("[]")


STEPS: dict[str, Callable[[ps.Stream], ps.Stream]] = {
    "filter": lambda stream: stream.filter("v > 1"),
    "spark filter": lambda stream: stream.filter("upper(k) RLIKE 'a'"),
    "select": lambda stream: stream.select("k", "ts", v="v + 1"),
    "map": lambda stream: stream.map(dict),
    "deduplicate": lambda stream: stream.deduplicate("k", "1m"),
}
steps = st.lists(st.sampled_from(sorted(STEPS)), max_size=3, unique=True)
ends = st.sampled_from(["rows", "final", "updates"])
outputs = st.lists(st.tuples(steps, ends, st.booleans()), min_size=1, max_size=3)


def built(branches: list[tuple[list[str], str, bool]], *, backwards: bool = False) -> ps.Pipeline:
    """Build branches of one source or of two, some behind an event time of their own."""
    found = []
    shared = rows().event_time("ts", "5s")
    for number, (names, end, own) in enumerate(branches):
        stream = rows(f"rows{number}").event_time("ts", f"{number + 1}s") if own else shared
        for name in names:
            stream = STEPS[name](stream).named(f"{name.replace(' ', '-')}-{number}")
        stream = stream if end == "rows" else counted(stream, f"counts-{number}", end)
        found.append(stream.to(ps.collect()).named(f"out-{number}"))
    return ps.Pipeline("p", *(reversed(found) if backwards else found))


@given_settings(deadline=None, max_examples=40)
@given(outputs)
def test_the_plan_survives_json_and_everyone_reads_the_same(branches: list[tuple[list[str], str, bool]]) -> None:
    pipeline = built(branches)
    plan = planned(pipeline)
    assert PhysicalPlan.from_json(plan.to_json()) == plan == masked_texts(plan)
    assert pipeline.explain(Settings()) == explain(PhysicalPlan.from_json(plan.to_json()))
    lanes = BoundPlan(PhysicalPlan.from_json(plan.to_json()), pipeline.graph).lanes()
    assert lanes == split_lanes(pipeline.graph)


@given_settings(deadline=None, max_examples=40)
@given(outputs)
def test_ids_name_nodes_and_each_sink_is_in_one_query(branches: list[tuple[list[str], str, bool]]) -> None:
    plan = planned(built(branches))
    ids = {node.id for node in plan.nodes}
    for query in plan.queries:
        assert {*query.nodes, *query.sinks, *query.counts, *query.shared, *query.per_branch} <= ids
    sinks = [sink for query in plan.queries for sink in (*query.sinks, *query.late_sinks)]
    assert sorted(sinks) == sorted(sink.id for sink in plan.sinks)
    counted_ids = [id for query in plan.queries for id in query.counts]
    assert sorted(counted_ids) == sorted(ids)
    assert [(edge.source, edge.target) for edge in plan.edges] == [(i, n.id) for n in plan.nodes for i in n.inputs]


@given_settings(deadline=None, max_examples=40)
@given(outputs, st.booleans())
def test_a_checkpoint_that_has_these_queries_changes_none_whatever_the_order_of_outputs(
    branches: list[tuple[list[str], str, bool]], backwards: bool
) -> None:
    plan = planned(built(branches))
    stateful = {node.id for node in plan.nodes if node.state is not None}
    known = {query.name: [*query.sinks, *(stateful & set(query.nodes))] for query in plan.queries}
    again = physical_plan("p", built(branches, backwards=backwards).graph, known=known)
    assert [(query.name, query.sinks, sorted(query.nodes)) for query in again.queries] == [
        (query.name, query.sinks, sorted(query.nodes)) for query in plan.queries
    ]


def test_lanes_and_queries_are_decided_in_one_module() -> None:
    """Explain, the compiler and the checkpoint once decided for themselves, and disagreed."""
    callers: dict[str, set[str]] = {"split_lanes": set(), "groups": set()}
    for path in (ROOT / "penstock").rglob("*.py"):
        for call in (one for one in ast.walk(ast.parse(path.read_text())) if isinstance(one, ast.Call)):
            if isinstance(call.func, ast.Name) and call.func.id in callers:
                callers[call.func.id].add(str(path.relative_to(ROOT / "penstock")))
    assert callers == {"split_lanes": {"plan/physical/planner.py"}, "groups": {"plan/physical/planner.py"}}
