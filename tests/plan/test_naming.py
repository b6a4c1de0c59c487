"""Promise: what users do every day needs no `.named()`, and a branch more or less never moves a name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock import errors
from penstock.plan.changes import by_ids, compare, renames
from penstock.plan.fingerprint import Described, described, fingerprints

SCHEMA = "k string, v bigint, ts timestamp"


class Pass(ps.Process):
    """Hands rows on."""

    output = SCHEMA
    seen = ps.state.value(int)

    def on_row(self, row: Any, ctx: Any) -> Any:
        yield row


def trades() -> ps.Stream:
    return ps.read_topic("trades", schema=SCHEMA)


def timed() -> ps.Stream:
    return trades().event_time("ts", "5s")


BRANCHES: dict[str, Callable[[ps.Stream], ps.Stream]] = {
    "aggregate": lambda rows: rows.key_by("k").window(ps.tumbling("10s")).aggregate(n="count(*)"),
    "top": lambda rows: rows.key_by("k").window(ps.tumbling("10s")).top(2, by="v"),
    "reduce": lambda rows: rows.key_by("k").window(ps.session("10s")).reduce(max),
    "process": lambda rows: rows.key_by("k").process(Pass),
    "deduplicate": lambda rows: rows.deduplicate("k", within="1m"),
    "join": lambda rows: rows.join(timed(), on="k", within=("0s", "5s")),
    "join_asof": lambda rows: rows.join_asof(timed(), on="k"),
}


def graph(*outputs: Any, rejected_to: ps.Sink | None = None) -> Any:
    return ps.Pipeline("p", *outputs, rejected_to=rejected_to).graph


def plan(*outputs: Any) -> dict[str, Described]:
    return described(graph(*outputs))


def table(name: str) -> ps.Sink:
    return ps.table(name, connection="sqlite:///x.db")


def test_a_source_and_a_sink_may_have_the_same_name() -> None:
    found = graph(trades().filter("v > 0").to(table("trades")))
    read, _, write = found.nodes
    assert [found.own_name(node) for node in found.nodes] == ["trades", "filter", "trades"]
    assert [found.name(node) for node in found.nodes] == ["trades", "filter", "sink trades"]
    assert [found.label(node) for node in (read, write)] == ["read 'trades'", "write 'trades'"]
    text = ps.Pipeline("p", trades().to(table("trades"))).explain()
    assert "read 'trades'" in text
    assert "sink 'trades': " in text


def test_a_folder_may_go_into_a_table_of_its_name_and_a_window_be_called_so_too() -> None:
    rows = ps.read_files("data/u", schema=SCHEMA, format="csv").event_time("ts", "1s")
    counted = rows.key_by("k").window(ps.tumbling("1s")).aggregate(n="count(*)").named("u")
    found = graph(counted.to(table("u")))
    assert fingerprints(found).keys() == {"u"}
    assert sorted(described(found)) == ["event_time", "sink u", "source u", "u"]
    assert len(set(found.names.values())) == len(found.nodes)


def test_two_sinks_or_two_sources_of_one_name_ask_for_another() -> None:
    with pytest.raises(errors.DuplicateName, match="'u' is used 2 times"):
        graph(trades().to(table("u")), trades().filter("v > 1").to(ps.topic("u")))
    with pytest.raises(errors.DuplicateName, match=r"'u' is used 2 times \(write, rejected_to\)") as caught:
        graph(trades().to(table("u")), rejected_to=ps.topic("u"))
    assert "give the output a name of its own" in str(caught.value)
    graph(trades().to(table("u")).named("rows"), rejected_to=ps.topic("u"))
    two = ps.read_topic("u", schema=SCHEMA), ps.read_files("u", schema=SCHEMA, format="csv")
    with pytest.raises(errors.DuplicateName, match=r"'u' is used 2 times \(read\)"):
        graph(two[0].union(two[1]).to(table("out")))


@pytest.mark.parametrize("kind", BRANCHES)
def test_operators_of_one_kind_are_named_after_the_outputs_they_feed(kind: str) -> None:
    build, few, many = BRANCHES[kind], timed().filter("v > 1"), timed().filter("v > 7")
    alone = graph(build(many).to(table("b")))
    assert [alone.name(node) for node in alone.stateful] == [kind]
    named = graph(build(few).to(table("a")), build(many).named("own").to(table("b")))
    assert {named.name(node) for node in named.stateful} == {kind, "own"}
    shared = build(many)
    found = graph(build(few).to(table("a")), shared.to(table("b")), shared.filter("k > 'x'").to(table("c")))
    assert sorted(found.name(node) for node in found.stateful) == [f"{kind}-a", f"{kind}-b,c"]


def test_what_feeds_the_same_outputs_still_asks_for_a_name() -> None:
    once = timed().key_by("k").window(ps.tumbling("1s")).aggregate(n="count(*)")
    twice = once.key_by("k").window(ps.tumbling("10s")).aggregate(n="sum(n)")
    with pytest.raises(errors.DuplicateName, match="'aggregate' is used 2 times") as caught:
        graph(twice.to(table("a")))
    assert "they feed the same outputs" in str(caught.value)
    named = once.named("seconds").key_by("k").window(ps.tumbling("10s")).aggregate(n="sum(n)")
    assert fingerprints(graph(named.to(table("a")))).keys() == {"seconds", "aggregate"}


def test_nodes_without_state_never_ask_for_a_name() -> None:
    chain = trades().filter("v > 1").filter("v > 2")
    assert [graph(chain.to(table("a"))).name(node) for node in graph(chain.to(table("a"))).nodes[1:3]] == [
        "filter",
        "filter_2",
    ]
    both = graph(chain.to(table("a")), trades().filter("v > 3").to(table("b")))
    assert {both.name(node) for node in both.nodes if node.kind == "filter"} == {"filter-a", "filter-a_2", "filter-b"}


@pytest.mark.parametrize("name", ["..", ".", "...", "", "a/b", "a b", "a=b", "x" * 201, "ü" * 101, 7])
def test_a_name_that_no_file_may_have_is_refused(name: Any) -> None:
    for build in (lambda: trades().named(name), lambda: ps.Pipeline(name, trades().to(table("a")))):
        with pytest.raises(errors.BadValue, match="use letters, digits"):
            build()


@pytest.mark.parametrize("name", ["clock", "wakeups"])
def test_a_source_cannot_have_the_name_of_one_of_penstocks_own(name: str) -> None:
    with pytest.raises(errors.BadValue, match="reserved for an internal source"):
        graph(ps.read_topic(name, schema=SCHEMA).to(table("a")))
    assert graph(ps.read_topic(name, schema=SCHEMA).named("times").to(table(name)))


# --- stability: branches come, go and change places ------------------------------------------------


def branch(kind: str, number: int) -> Any:
    rows = trades().filter(f"v > {number}").event_time("ts", "5s")
    stream = {
        "aggregate": lambda: rows.key_by("k").window(ps.tumbling("10s")).aggregate(n="count(*)"),
        "process": lambda: rows.key_by("k").process(Pass),
        "deduplicate": lambda: rows.deduplicate("k", within="1m"),
        "filter": lambda: rows.filter("v < 100").filter("v < 90"),
    }[kind]()
    return stream.to(table(f"out{number}"))


KINDS = st.sampled_from(["aggregate", "process", "deduplicate", "filter"])
ALL = st.lists(KINDS, min_size=1, max_size=6)


@settings(deadline=None, max_examples=60)
@given(kinds=ALL, data=st.data())
def test_branches_that_come_go_and_change_places_never_move_state_or_counts(kinds: list[str], data: Any) -> None:
    numbers = list(range(len(kinds)))
    chosen = st.lists(st.sampled_from(numbers), min_size=1, unique=True)
    old, new = data.draw(chosen), data.draw(chosen)
    before = plan(*(branch(kinds[n], n) for n in old))
    after = plan(*(branch(kinds[n], n) for n in new))
    found, moved = compare(before, after), renames(before, after)
    for number in {*old} & {*new}:
        was, now = _feeding(before, number), _feeding(after, number)
        assert [moved.get(id, id) for id in was] == now
    kept = {name for number in {*old} & {*new} for name in _feeding(after, number) if after[name].meaning}
    assert kept == {*found.of("kept")}
    gone = {name for number in {*old} - {*new} for name in _feeding(before, number) if before[name].meaning}
    assert len(gone) == len(found.of("lost"))


@settings(deadline=None, max_examples=40)
@given(kinds=ALL, seed=st.randoms(use_true_random=False))
def test_the_order_of_branches_changes_no_name(kinds: list[str], seed: Any) -> None:
    outputs = [branch(kind, number) for number, kind in enumerate(kinds)]
    shuffled = seed.sample(outputs, len(outputs))
    assert graph(*outputs).names == graph(*shuffled).names
    assert fingerprints(graph(*outputs)) == fingerprints(graph(*shuffled))


def _feeding(plan: dict[str, Described], number: int) -> list[str]:
    """The operators of one branch, from its sink up."""
    found: list[str] = []
    (name,) = plan[f"sink out{number}"].inputs
    while plan[name].kind != "read":
        found.append(name)
        (name,) = plan[name].inputs
    return found


def test_a_plan_of_an_older_checkpoint_is_read_by_its_names() -> None:
    now = plan(branch("aggregate", 1), branch("filter", 2))
    older = {"source trades": "trades", "sink out1": "out1", "sink out2": "out2", "filter-out1": "filter"}
    older |= {"filter-out2": "filter_2", "filter-out2_2": "filter_3", "filter-out2_3": "filter_4"}
    older |= {"event_time-out1": "event_time", "event_time-out2": "event_time_2"}
    kept = {
        older.get(id, id): Described(
            node.kind, [older.get(one, one) for one in node.inputs], node.does, node.code, node.meaning, node.place
        )
        for id, node in now.items()
    }
    assert set(kept) == {older.get(id, id) for id in now}
    assert by_ids(kept).keys() >= {"source trades", "sink out1", "aggregate"}
    assert not compare(by_ids(kept), now), compare(by_ids(kept), now).table
    assert compare(by_ids(kept), now).of("kept") == ("aggregate",)


def test_an_output_more_on_a_branch_keeps_its_state() -> None:
    one, two = branch("aggregate", 1).node.input, branch("aggregate", 2)
    old = plan(ps.Output(branch("aggregate", 1).node), two)
    more = ps.Stream(one).filter("n > 5").to(table("large"))
    found = compare(old, plan(branch("aggregate", 1), two, more))
    assert {*found.of("kept")} == {"aggregate-out2", "aggregate-large,out1"}
    assert "formerly 'aggregate-out1'" in found.table


def test_a_branch_that_takes_the_place_of_another_does_not_take_its_state() -> None:
    old = plan(branch("aggregate", 1))
    found = compare(old, plan(branch("aggregate", 2)))
    assert (found.of("lost"), found.of("empty")) == (("aggregate",), ("aggregate",))
    assert '.named("aggregate")' in found.table
    explicit = ps.Stream(branch("aggregate", 2).node.input).named("aggregate").to(table("out2"))
    assert compare(old, plan(explicit)).of("kept") == ("aggregate",)
    moved = ps.Stream(branch("aggregate", 1).node.input).to(table("elsewhere"))
    assert compare(old, plan(moved)).of("kept") == ("aggregate",)
