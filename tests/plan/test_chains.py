"""Chains of nodes that would lose rows or never run are refused when the pipeline is built."""

from __future__ import annotations

from typing import Any

import pytest

import penstock as ps
from penstock.errors import BadJoin, MissingSink, PipelineError

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


def test_behind_late_rows_there_is_no_state_and_no_union() -> None:
    windows = counts(rows("a")).named("first")
    late = windows.side("late")
    others = ps.from_items([], SCHEMA).named("others")
    for behind in (counts(late.event_time("ts", "1h").named("again")).named("second"), late.union(others)):
        with pytest.raises(PipelineError, match="behind late rows") as refused:
            ps.Pipeline("p", windows.to(ps.collect()), behind.to(ps.console()))
        assert "second pipeline" in str(refused.value.hint)
    ps.Pipeline("p", windows.to(ps.collect()), late.filter("v > 1").to(ps.console()))


def test_behind_a_join_and_buckets_nothing_goes_by_time() -> None:
    joined = rows("a").named("left").join(rows("b").named("right"), on="k", within=("0s", "1h")).select("k", "v", "ts")
    processed = joined.key_by("k").process(Same()).named("process")
    for behind in (counts(processed), processed.key_by("k").process(Same()).named("second")):
        with pytest.raises(BadJoin, match=r"behind process .* which follows join"):
            ps.Pipeline("p", behind.to(ps.collect()))
    ps.Pipeline("p", processed.to(ps.collect()))
    ps.Pipeline("p", counts(joined).to(ps.collect()))
