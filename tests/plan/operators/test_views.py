"""The node of a view: checked when it is built, explained, and known by a checkpoint."""

from __future__ import annotations

import pytest

import penstock as ps
from penstock.errors import (
    BadExpression,
    BadSchema,
    BadValue,
    DuplicateName,
    MissingEventTime,
    UnknownColumn,
    UpdatingStream,
)
from penstock.plan.fingerprint import fingerprints, meaning
from penstock.plan.physical.lanes import split_lanes
from penstock.settings import Settings

BIDS = "bid bigint, auction bigint, price bigint, ts timestamp"


def bids(ddl: str = BIDS, name: str = "bids") -> ps.Stream:
    return ps.from_items([], ddl).named(name)


def best(stream: ps.Stream, aggregate: str = "max(price)") -> ps.View:
    return stream.view("bid", ["auction", "price"]).group_by("auction").aggregate(best=aggregate)


def pipeline(*views: ps.View) -> ps.Pipeline:
    return ps.Pipeline("p", *(view.to(ps.collect()).named(f"out{n}") for n, view in enumerate(views)))


def test_mistakes_are_refused_when_the_view_is_built() -> None:
    with pytest.raises(UnknownColumn, match="pirce"):
        best(bids(), "max(pirce)")
    with pytest.raises(UnknownColumn, match="x"):
        bids().view("bid").group_by("x")
    with pytest.raises(BadValue, match="is not a view"):
        bids().view("bid").join(bids(), on="bid")  # type: ignore[arg-type]
    with pytest.raises(BadExpression, match="rand"):
        bids().view("bid").filter("rand() > 0.5")
    with pytest.raises(MissingEventTime, match="ttl"):
        pipeline(bids().view("bid", ttl="1h"))
    with pytest.raises(UpdatingStream):
        pipeline(bids().key_by("auction").aggregate(n="count(*)").view("auction"))
    with pytest.raises(BadSchema, match="_change"):
        pipeline(bids().view("bid").with_columns(_change="'x'"))
    with pytest.raises(BadValue, match="without a key"):
        bids().event_time("ts", "1s").view((), remove="price < 0", ttl="1h")


def test_one_stream_that_two_views_read_is_one_input() -> None:
    both = best(bids()).join(bids().view("bid"), on="auction")
    assert [stream.name for stream in both.streams] == ["bids"]
    other = best(bids()).join(bids().filter("price > 0").named("bids").view("bid"), on="auction")
    assert [stream.name for stream in other.streams] == ["bids", "bids_2"]


def test_a_checkpoint_knows_its_operators_but_not_the_names_of_its_streams() -> None:
    known = fingerprints(pipeline(best(bids())).graph)
    assert fingerprints(pipeline(best(bids(name="offers"))).graph) == known
    assert fingerprints(pipeline(best(bids(f"{BIDS}, more string"))).graph) == known
    assert fingerprints(pipeline(best(bids(), "min(price)")).graph) != known
    (node,) = pipeline(best(bids())).graph.stateful
    assert meaning(node)["2 aggregate"] == "by auction: max(price) as best"


def test_it_is_written_as_json_and_read_again() -> None:
    views = best(bids()), bids().event_time("ts", "1s").view("bid", ttl="1h").top(3, by="price")
    made = ps.Pipeline("p", *(view.to(ps.topic(f"t{number}")) for number, view in enumerate(views)))
    again = ps.Pipeline.from_json(made.to_json())
    assert again.to_json() == made.to_json()
    assert fingerprints(again.graph) == fingerprints(made.graph)


def test_explain_says_what_is_stored_what_bounds_it_and_how_it_is_divided() -> None:
    text = pipeline(bids().view().group_by("auction").aggregate(n="count(*)")).explain(Settings())
    assert "2 aggregate by auction: count(*) as n: stores the aggregates of each auction\n" in text
    assert "rows are divided over buckets: bids by auction" in text
    assert "warning: state can grow forever: every row of bids stays forever: pass remove= or ttl= to view()" in text
    bounded = pipeline(bids().event_time("ts", "1s").view("bid", ttl="1h").top(3, by="price")).explain(Settings())
    assert "one bucket, so one task: top 3 by price desc nulls last has no key" in bounded
    assert "bound: rows of bids leave 1h after their event time (ttl)" in bounded
    assert "warning" not in bounded


def test_views_of_one_relation_share_a_node() -> None:
    view = best(bids())
    table = view.to(ps.table("best", connection="sqlite:///x.db", mode="upsert"))
    both = ps.Pipeline("p", table, view.to(ps.topic("best")).named("best-topic"), view.to(ps.collect()))
    assert len(both.graph.stateful) == 1


def test_the_scan_of_each_stream_packs_its_rows() -> None:
    joined = bids().view("bid").join(bids(name="more").view("auction"), on="auction", suffix="_more")
    timed = bids(name="timed").event_time("ts", max_delay="1s").view("auction").join(bids().view("bid"), on="auction")
    for view, packed in ((joined, 2), (timed.select("auction"), 1)):
        found = split_lanes(pipeline(view).graph)
        # A scan does not leave out an event time that the view does not need.
        assert sum(prefix.packed is not None for prefix in found.prefixes.values()) == packed


def test_of_rows_that_are_never_taken_out_explain_says_that_only_the_first_stay() -> None:
    by_price = {"n": 2, "by": ["price"]}
    assert (
        "stores the first 2 rows of each auction"
        in pipeline(bids().view().group_by("auction").top(**by_price)).explain()
    )
    assert "stores all rows, by auction" in pipeline(bids().view("bid").group_by("auction").top(**by_price)).explain()


def test_a_named_view_whose_outputs_have_different_keys_says_so() -> None:
    view = ps.from_items([], "a bigint, b bigint").named("rows").view("a").named("v")
    by_b = ps.table("by_b", connection="sqlite:///x.db", mode="upsert", key="b")
    with pytest.raises(DuplicateName, match="'v' is used 2 times") as clash:
        ps.Pipeline("p", view.to(by_b), view.to(ps.topic("t")))
    assert "it is one view, and the keys of its outputs differ" in str(clash.value.hint)
    ps.Pipeline("p", view.to(by_b), view.named("by_a").to(ps.topic("t")))
