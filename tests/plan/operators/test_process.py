"""Process functions in a plan: what it shows of them, and what their state belongs to."""

from __future__ import annotations

from typing import Any

import pytest

import penstock as ps
from penstock.errors import BadFunction, BadValue, NotSerializable
from penstock.plan.changes import compare
from penstock.plan.fingerprint import described
from tests.keyed.test_process import Fraud


def rows() -> ps.Stream:
    return ps.from_items([], "card string, amount double, ts timestamp").named("payments").event_time("ts", "5s")


def test_a_plan_shows_the_process_its_keys_and_its_state() -> None:
    found = rows().key_by("card").process(Fraud)
    pipeline = ps.Pipeline("fraud", found.to(ps.collect()), found.side("audit").to(ps.console()))
    shown = pipeline.explain()
    assert "by card: Fraud (tiny: value boolean, ttl 1h; past: list double)" in shown
    assert found.side("audit").schema == ps.Schema("card string, past array<double>")
    assert found.side("late").schema.names == ("card", "amount", "ts")
    with pytest.raises(NotSerializable, match="calls Python"):
        pipeline.to_json()


def test_state_is_lost_only_when_the_keys_or_an_attribute_change_their_type() -> None:
    def plan(key: str = "card", **attributes: Any) -> Any:
        body = {"output": "a int", "on_row": lambda self, row, ctx: None, **attributes}
        made = rows().key_by(key).process(type("Made", (ps.Process,), body)())
        return described(ps.Pipeline("p", made.to(ps.collect())).graph)

    value = ps.state.value
    before = plan(a=value(int), b=ps.state.list(str))
    same = [plan(b=ps.state.list(str), a=value("bigint", ttl="1h")), plan(a=value(int), c=value(int)), plan()]
    other = [plan(a=value(float)), plan(a=ps.state.list(int)), plan("amount", a=value(int))]
    assert [compare(before, now).of("lost") for now in same] == [()] * 3
    assert [compare(before, now).of("kept") for now in same] == [("process",)] * 3
    assert [compare(before, now).of("lost") for now in other] == [("process",)] * 3


def test_what_is_no_process_is_refused() -> None:
    with pytest.raises(BadFunction, match="is not a process function"):
        rows().key_by("card").process(len)  # type: ignore[arg-type]
    with pytest.raises(BadValue, match="on_error"):
        rows().key_by("card").process(Fraud(), on_error="ignore")  # type: ignore[arg-type]
