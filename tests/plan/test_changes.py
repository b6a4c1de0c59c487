"""A changed plan against the one that wrote the checkpoint: what keeps its state, starts empty or loses it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import penstock as ps
from penstock import errors
from penstock.plan.changes import Changes, check_names, compare, sinks_with_new_lineage
from penstock.plan.fingerprint import Described, described


def rows(schema: str = "k string, v int, x double, ts timestamp") -> ps.Stream:
    return ps.from_items([], schema).named("rows")


def windows(stream: ps.Stream, window: ps.Window | None = None, delay: str = "5s", key: str = "k", **more: Any) -> Any:
    return stream.event_time("ts", delay).key_by(key).window(window or ps.tumbling("10s"), **more)


def plan(*outputs: Any) -> dict[str, Described]:
    return described(ps.Pipeline("job", *outputs).graph)


def out(stream: ps.Stream, name: str = "out") -> Any:
    return stream.to(ps.files(name))


def counts(**more: Any) -> ps.Stream:
    return windows(rows(), **more).aggregate(n="count(*)", total="sum(v)")


OLD = plan(out(counts()))


def changed(*outputs: Any) -> Changes:
    return compare(OLD, plan(*outputs))


def test_the_same_plan_is_no_change() -> None:
    assert not changed(out(counts()))


def test_a_lost_state_is_shown_in_a_table() -> None:
    once = windows(rows().filter("v > 1"), ps.tumbling("1m")).aggregate(n="count(*)", total="sum(v)")
    found = changed(out(once), out(rows().event_time("ts", "5s").deduplicate("k", within="9s"), "unique"))
    assert found.table == (
        "  node                            state         change\n"
        "  source 'rows'                   continues     -\n"
        "  filter                          -             added\n"
        "  event_time 'event_time-unique'  -             added\n"
        "  event_time 'event_time-out'     -             from rows -> filter\n"
        "  deduplicate                     starts empty  added\n"
        "  aggregate                       LOST          window: tumbling(10s) -> tumbling(1m)\n"
        "  sink 'unique'                   -             added\n"
        "  sink 'out'                      continues     -"
    )
    assert found.summary == (
        "state of 'deduplicate' starts empty, state of 'aggregate' dropped, sink 'unique' added, "
        "'filter', 'event_time-unique', 'event_time-out' changed"
    )


@pytest.mark.parametrize(
    ("stream", "said"),
    [
        (counts(window=ps.sliding("10s", "5s")), "window: tumbling(10s) -> sliding(10s, 5s)"),
        (counts(delay="6s"), "max_delay: 5s -> 6s"),
        (counts(allowed_lateness="1m"), "allowed_lateness: 0s -> 1m"),
        (counts(key="v"), "keys: k string -> v int"),
        (windows(rows()).aggregate(n="count(*)"), "aggregates: count(*) bigint; sum(v) bigint -> count(*) bigint"),
        (windows(rows()).aggregate(n="count(*)", m="sum(x)"), "sum(v) bigint -> count(*) bigint; sum(x) double"),
        (windows(rows()).reduce(max), "was aggregate"),
        (
            windows(rows("k int, v int, x double, ts timestamp")).aggregate(n="count(*)", total="sum(v)"),
            "keys: k string -> k int",
        ),
    ],
)
def test_what_gives_state_another_meaning_loses_it(stream: ps.Stream, said: str) -> None:
    found = changed(out(stream.named("aggregate")))
    assert found.of("lost") == ("aggregate",)
    assert said in found.table


@pytest.mark.parametrize(
    "stream",
    [
        counts().filter("n > 3"),
        counts().with_columns(mean="total / n"),
        windows(rows().filter("v > 0")).aggregate(n="count(*)", total="sum(v)"),
        windows(rows().with_columns(more="v + 1")).aggregate(n="count(*)", total="sum(v)"),
        windows(rows("k string, v int, x double, more int, ts timestamp")).aggregate(n="count(*)", total="sum(v)"),
        windows(rows()).aggregate(sum="sum(v)", count="count(*)"),
        windows(rows()).aggregate(n="count(*)", total="sum(v)", share="sum(v) / count(*)"),
        windows(rows(), late_to=ps.files("late")).aggregate(n="count(*)", total="sum(v)"),
        windows(rows().map(dict)).aggregate(n="count(*)", total="sum(v)"),
    ],
)
def test_what_stands_before_or_after_state_keeps_it(stream: ps.Stream) -> None:
    found = changed(out(stream))
    assert found
    assert found.of("kept") == ("aggregate",)
    assert not found.of("lost", "empty")


def test_an_average_is_there_already_beside_sum_and_count() -> None:
    before = windows(rows()).aggregate(total="sum(v)", seen="count(v)", all="sum(x)", most="count(x)")
    after = windows(rows()).aggregate(mean="avg(v)", means="mean(x)")
    assert compare(plan(out(before)), plan(out(after))).of("kept") == ("aggregate",)


def test_a_state_under_another_name_is_lost_and_the_table_says_how_to_keep_it() -> None:
    found = changed(out(counts().named("sums")))
    assert found.of("lost") == ("aggregate",)
    assert found.of("empty") == ("sums",)
    assert "removed; .named(\"aggregate\") on 'sums' would keep it" in found.table


def test_sinks_come_and_go_and_change_their_names() -> None:
    found = changed(out(counts()).named("first"), out(counts(), "more"))
    assert found.summary == "state of 'aggregate' kept, sink 'first' renamed from 'out', sink 'more' added"
    fewer = compare(plan(out(counts()), out(counts(), "more")), OLD)
    assert fewer.summary.endswith("sink 'more' removed: its rows stay in files 'more'")


def test_a_source_of_another_kind_under_an_old_name_starts_over() -> None:
    files = ps.read_files("in", format="csv", schema="k string, v int, x double, ts timestamp").named("rows")
    found = changed(out(windows(files).aggregate(n="count(*)", total="sum(v)")))
    assert found.of("added") == ("rows",)
    assert "was ItemSource" in found.table


def test_a_function_that_changed_is_seen_in_its_code() -> None:
    one, two, same = (plan(out(rows().map(fn, "v int"))) for fn in (_one, _two, _one))
    assert not compare(one, same)
    names = compare(one, two)
    assert "_one -> " in names.table
    assert sinks_with_new_lineage(one, two, ["out"]) == ["out"]


def test_an_epoch_that_was_begun_is_mixed_where_rows_change_or_a_sink_is_renamed() -> None:
    assert sinks_with_new_lineage(OLD, plan(out(counts()), out(counts(), "more")), ["out"]) == []
    assert sinks_with_new_lineage(OLD, plan(out(counts().filter("n > 1"))), ["out"]) == ["out"]
    assert sinks_with_new_lineage(OLD, plan(out(counts().filter("n > 1"))), []) == []
    assert sinks_with_new_lineage(OLD, plan(out(counts()).named("first")), []) == ["first"]


def test_only_nodes_that_are_there_can_be_dropped() -> None:
    check_names(["aggregate", "out"], OLD)
    with pytest.raises(errors.BadValue, match="unknown node 'agregate'") as wrong:
        check_names(["agregate"], OLD)
    assert "did you mean 'aggregate'" in str(wrong.value)


def _one(row: dict[str, Any]) -> dict[str, Any]:
    return {"v": row["v"]}


def _two(row: dict[str, Any]) -> dict[str, Any]:
    return {"v": row["v"] + 1}


def test_a_sink_that_moved_says_where_its_earlier_rows_stay() -> None:
    moved = changed(counts().to(ps.files("elsewhere/out")))
    assert moved.summary == (
        "state of 'aggregate' kept, sink 'out' moved from files 'out', where its earlier rows stay, "
        "to files 'elsewhere/out'"
    )
    assert "sink 'out' has other options" in changed(counts().to(ps.files("out", format="csv"))).summary


def test_state_of_another_layout_cannot_be_read_so_it_is_lost() -> None:
    new = plan(out(rows().key_by("k").window(ps.count_window(3)).aggregate(n="count(*)")))
    node = new["aggregate"]
    old = new | {"aggregate": replace(node, meaning=node.meaning | {"layout": "blobs"})}
    assert "aggregate      LOST       layout: blobs -> runs" in compare(old, new).table
    assert not compare(new, new)
    assert "layout" not in OLD["aggregate"].meaning


def test_state_of_a_deduplication_by_the_watermark_is_lost() -> None:
    new = plan(out(rows().event_time("ts", "5s").deduplicate("k", within="9s")))
    node = new["deduplicate"]
    meaning = {name: text for name, text in node.meaning.items() if name not in ("layout", "compared with")}
    found = compare(new | {"deduplicate": replace(node, meaning=meaning)}, new)
    assert found.of("lost") == ("deduplicate",)
    assert "compared with: none -> rows that were kept" in found.table
