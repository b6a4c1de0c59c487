"""A join without a bound in time: what it says of itself, and what may follow it."""

from __future__ import annotations

import json
from typing import Any

import pytest

import penstock as ps
from penstock.errors import BadJoin, BadValue, DanglingBranch
from penstock.plan.fingerprint import fingerprint


def sides(*, timed: bool = True) -> tuple[ps.Stream, ps.Stream]:
    left = ps.from_items([], "id bigint, v bigint, ts timestamp").named("left")
    right = ps.from_items([], "id bigint, name string").named("right")
    return left.event_time("ts", "5s") if timed else left, right


def test_explain_warns_that_state_is_stored_forever() -> None:
    left, right = sides()
    for how, what in (("inner", "all rows of both sides are stored in the state forever"), ("semi", "all keys of the")):
        pipeline = ps.Pipeline("p", left.join(right, "id", how, within="unbounded").to(ps.console()))  # type: ignore[arg-type]
        assert f'warning: within="unbounded": {what}' in pipeline.explain() or what in pipeline.explain()
        plan = pipeline.to_json()
        assert "forever" in json.loads(plan)["warnings"]["join"]
        assert ps.Pipeline.from_json(plan).explain() == pipeline.explain()
    near = ps.Pipeline("p", left.join(left, "id", within=("0s", "1s")).to(ps.console()))
    assert "warning" not in near.explain()
    assert "warnings" not in json.loads(near.to_json())


@pytest.mark.parametrize("how", ["left", "right", "full", "anti"])
def test_rows_without_a_partner_are_never_final(how: Any) -> None:
    left, right = sides()
    with pytest.raises(BadJoin, match=f"no {how} join: a partner may always come") as refused:
        left.join(right, "id", how, within="unbounded")
    assert 'within=("0s", "7d")' in str(refused.value.hint)


def test_its_rows_have_the_left_sides_time_and_none_is_late() -> None:
    for timed in (True, False):
        left, right = sides(timed=timed)
        assert left.join(right, "id", within="unbounded").node.event_time == timed
    with pytest.raises(DanglingBranch, match="late_left"):
        left.join(right, "id", within="unbounded").side("late_left")
    with pytest.raises(BadValue, match="within='forever'"):
        left.join(right, "id", within="forever")  # type: ignore[arg-type]
    with pytest.raises(BadJoin) as missing:
        left.join(right, "id")
    assert 'within="unbounded"' in str(missing.value.hint)


def test_what_uses_event_time_cannot_follow() -> None:
    left, right = sides()
    both = left.join(right, "id", within="unbounded").named("both")
    refused = (
        both.key_by("id").window(ps.tumbling("1m")).aggregate(n="count(*)"),
        both.deduplicate("id", "1h"),
        both.join(left, "id", within=("0s", "1m"), suffix="_l"),
        both.join_asof(left, "id", suffix="_l"),
    )
    for stream in refused:
        with pytest.raises(BadJoin, match="uses event time downstream of join 'both'"):
            ps.Pipeline("p", stream.to(ps.console()))
    allowed = (
        both.key_by("id").aggregate(n="count(*)"),
        both.key_by("id").window(ps.count_window(3)).aggregate(n="count(*)"),
        both.key_by("id").window(ps.tumbling("1m", clock="processing")).aggregate(n="count(*)"),
        both.join(right, "id", within="unbounded", suffix="_2").named("second"),
    )
    for stream in allowed:
        ps.Pipeline("p", stream.to(ps.console()))


def test_its_state_does_not_depend_on_delays() -> None:
    left, right = sides(timed=False)
    states = {
        fingerprint(left.event_time("ts", delay).join(right, "id", within="unbounded").node) for delay in ("1s", "9s")
    }
    assert len(states) == 1
