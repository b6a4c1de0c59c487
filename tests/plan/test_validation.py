"""Chains of nodes that would lose rows or never run are refused when the pipeline is built."""

from __future__ import annotations

from typing import Any

import pytest

import penstock as ps
from penstock.errors import BadJoin, MissingSink, PipelineError
from penstock.plan.fingerprint import meaning
from penstock.plan.physical.watermark_lag import lag_us

SCHEMA = "k string, v bigint, ts timestamp"


class Same(ps.Process):
    output = SCHEMA

    def on_row(self, row: dict[str, Any], ctx: ps.Context) -> Any:
        yield row


def rows(name: str) -> ps.Stream:
    return ps.from_items([], SCHEMA).named(name).event_time("ts", "5s")


def counts(stream: ps.Stream) -> ps.Stream:
    return stream.key_by("k").window(ps.tumbling("10s")).aggregate(n="count(*)")


def test_late_rows_alone_are_no_output() -> None:
    with pytest.raises(MissingSink, match="only late rows have an output"):
        ps.Pipeline("p", counts(rows("a")).side("late").to(ps.collect()))


def test_downstream_of_late_rows_there_is_no_state_and_no_union() -> None:
    windows = counts(rows("a")).named("first")
    late = windows.side("late")
    others = ps.from_items([], SCHEMA).named("others")
    for behind in (counts(late.event_time("ts", "1h").named("again")).named("second"), late.union(others)):
        with pytest.raises(PipelineError, match="downstream of late rows") as refused:
            ps.Pipeline("p", windows.to(ps.collect()), behind.to(ps.console()))
        assert "second pipeline" in str(refused.value.hint)
    ps.Pipeline("p", windows.to(ps.collect()), late.filter("v > 1").to(ps.console()))


def test_downstream_of_a_join_and_buckets_times_are_later_by_what_the_join_waits_for() -> None:
    joined = rows("a").named("left").join(rows("b").named("right"), on="k", within=("0s", "1h")).select("k", "v", "ts")
    processed = joined.key_by("k").process(Same()).named("process")
    behind = (
        counts(processed),
        processed.key_by("k").process(Same()).named("second"),
        processed.deduplicate("k", "1s"),
    )
    for stream in behind:
        ps.Pipeline("p", stream.to(ps.collect()))
        assert 3600 * 10**6 < lag_us(stream.node) < 3601 * 10**6
    for node in (processed.node, counts(joined).node, processed.key_by("k").aggregate(n="count(*)").node):
        assert lag_us(node) == 0
    assert "lag" in meaning(counts(processed).node)
    assert "lag" not in meaning(counts(joined).node)


def test_downstream_of_a_join_that_waits_for_years_and_buckets_nothing_uses_event_time() -> None:
    joined = rows("a").named("left").join(rows("b").named("right"), on="k", within=("0s", "400d"))
    processed = joined.select("k", "v", "ts").key_by("k").process(Same()).named("process")
    with pytest.raises(BadJoin, match=r"400d.* old because of join"):
        ps.Pipeline("p", counts(processed).to(ps.collect()))
    ps.Pipeline("p", processed.key_by("k").aggregate(n="count(*)").to(ps.collect()))
