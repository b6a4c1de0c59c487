"""Which outputs share a query, and what queries are called."""

from __future__ import annotations

import penstock as ps
from penstock.plan.physical.queries import groups

SCHEMA = "k string, v bigint, ts timestamp"


def counted(stream: ps.Stream, name: str, lateness: str = "0s", emit: str = "final") -> ps.Output:
    window = stream.key_by("k").window(ps.tumbling("10s"), allowed_lateness=lateness, emit=emit)  # type: ignore[arg-type]
    return window.aggregate(n="count(*)").named(name).to(ps.collect()).named(f"to-{name}")


def rows(name: str = "rows") -> ps.Stream:
    return ps.from_items([], SCHEMA).named(name)


def found(*outputs: ps.Output, known: dict[str, list[str]] | None = None) -> dict[str, list[str]]:
    graph = ps.Pipeline("p", *outputs).graph
    return {group.name: sorted(graph.name(write) for write in group.writes) for group in groups(graph, known)}


def parts(*outputs: ps.Output) -> list[list[str]]:
    return sorted(found(*outputs).values())


def test_branches_of_one_event_time_share_a_query() -> None:
    timed = rows().event_time("ts", "5s")
    outputs = counted(timed, "a"), counted(timed.filter("v > 0"), "b"), timed.to(ps.collect()).named("all")
    assert found(*outputs) == {"final": ["all", "to-a", "to-b"]}


def test_other_delays_other_lateness_and_other_sources_get_queries_of_their_own() -> None:
    timed = rows().event_time("ts", "5s")
    outputs = (
        counted(timed, "a"),
        counted(rows().event_time("ts", "60s"), "b"),
        counted(timed, "c", lateness="30s"),
        counted(rows("other").event_time("ts", "5s"), "d"),
        counted(timed, "e", emit="updates"),
    )
    assert parts(*outputs) == [["to-a"], ["to-b"], ["to-c"], ["to-d"], ["to-e"]]
    assert set(found(*outputs)) == {"final", "final-2", "final-3", "final-4", "updates"}


def test_what_meets_in_one_operator_or_shares_state_stays_together() -> None:
    one, other = rows().event_time("ts", "5s"), rows("other").event_time("ts", "60s")
    met = one.union(other)
    tens = one.key_by("k").window(ps.tumbling("10s")).aggregate(n="count(*)").named("tens")
    sums = tens.key_by("k").window(ps.tumbling("20s"), allowed_lateness="9s").aggregate(n="sum(n)").named("sums")
    outputs = counted(met, "a"), tens.to(ps.collect()).named("t"), sums.to(ps.collect()).named("s")
    assert parts(*outputs) == [["s", "t"], ["to-a"]]


def test_a_checkpoint_keeps_its_queries_and_a_new_branch_gets_a_name_of_its_own() -> None:
    a, b = counted(rows().event_time("ts", "5s"), "a"), counted(rows().event_time("ts", "60s"), "b")
    assert found(a, b, known={"final": ["a", "to-a", "b", "to-b"]}) == {"final": ["to-a", "to-b"]}
    assert found(b, a, known={"final": ["a", "to-a"]}) == {"final-2": ["to-b"], "final": ["to-a"]}


def test_explain_tells_the_queries_apart() -> None:
    outputs = counted(rows().event_time("ts", "5s"), "a"), counted(rows().event_time("ts", "60s"), "b")
    text = ps.Pipeline("p", *outputs).explain()
    assert "two queries" in text
    assert "final results (to-a)" in text
    assert "final results (to-b)" in text
