"""Process functions without Spark: state, timers, outputs, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps
from penstock.errors import (
    BadProcess,
    BadState,
    BadValue,
    FunctionFailed,
    UnknownColumn,
)
from penstock.keyed.process_operator import ProcessOperator
from penstock.keyed.store.bucket_store import BucketStore
from penstock.testing import ProcessTester
from tests.conftest import at

MINUTE = timedelta(minutes=1)


class Fraud(ps.Process):
    output = "card string, amount double, ts timestamp"
    sides = {"audit": "card string, past array<double>"}
    tiny = ps.state.value(bool, ttl="1h")
    past = ps.state.list(float)

    def on_row(self, row: dict[str, Any], ctx: ps.Context) -> Iterator[Any]:
        self.past.append(row["amount"])
        if row["amount"] < 1:
            self.tiny.set(True)
            ctx.set_timer(row["ts"] + MINUTE)
        elif row["amount"] > 500 and self.tiny.get():
            yield row
            yield "audit", {**ctx.key, "past": list(self.past)}

    def on_timer(self, timer: ps.Timer, ctx: ps.Context) -> None:
        self.tiny.clear()


def payment(seconds: float, amount: float, card: str = "a") -> dict[str, Any]:
    return {"card": card, "amount": amount, "ts": at(seconds)}


def test_a_large_payment_after_a_tiny_one_is_a_fraud() -> None:
    t = ProcessTester(Fraud(), key="card", event_time="ts")
    large = payment(10, 900.0)
    t.send(payment(0, 0.5), large, payment(0, 900.0, "b"))
    assert t.take() == [large]
    assert t.take("audit") == [{"card": "a", "past": [0.5, 900.0]}]
    assert t.take() == []
    assert t.state("a") == {"tiny": True, "past": [0.5, 900.0]}
    assert t.state("b") == {"past": [900.0]}
    assert t.state("c") == {}


def test_a_timer_fires_when_the_watermark_reaches_it() -> None:
    t = ProcessTester(Fraud(), key="card", event_time="ts")
    t.send(payment(0, 0.5))
    t.advance_time(at(59))
    assert t.state("a")["tiny"]
    t.advance_time(at(60))
    assert "tiny" not in t.state("a")
    t.send(payment(61, 900.0))
    assert t.take() == []


def test_a_row_before_the_watermark_is_late() -> None:
    t = ProcessTester(Fraud(), key="card", event_time="ts")
    t.advance_time(at(10))
    t.send(payment(9, 1.0), payment(10, 1.0))
    assert t.take("late") == [payment(9, 1.0)]
    assert t.state("a") == {"past": [1.0]}


class Batched(ps.Process):
    output = "k string, n bigint, newest timestamp"
    total = ps.state.value(int)

    def on_rows(self, rows: pa.RecordBatch, ctx: ps.Context) -> Iterator[Any]:
        self.total.set(self.total.get(0) + rows.num_rows)
        yield {**ctx.key, "n": self.total.get(), "newest": ctx.event_time}


def test_a_batch_has_the_rows_of_one_key() -> None:
    t = ProcessTester(Batched(), key="k", event_time="ts")
    t.send({"k": "a", "ts": at(2)}, {"k": "b", "ts": at(3)}, {"k": "a", "ts": at(1)})
    assert t.take() == [{"k": "a", "n": 2, "newest": at(2)}, {"k": "b", "n": 1, "newest": at(3)}]


class Alarm(ps.Process):
    output = "k string, what string, at timestamp, seen timestamp, now timestamp, mark timestamp"

    def on_row(self, row: dict[str, Any], ctx: ps.Context) -> None:
        for name, seconds in (row["event"] or {}).items():
            ctx.set_timer(at(seconds), name)
        for name, seconds in (row["clock"] or {}).items():
            ctx.set_timer(ctx.now + timedelta(seconds=seconds), name, clock="processing")
        for name in row["cancel"] or []:
            ctx.cancel_timer(name)

    def on_timer(self, timer: ps.Timer, ctx: ps.Context) -> Iterator[Any]:
        if timer.name == "again":
            ctx.set_timer(timer.at + MINUTE, "again")
        when = {"seen": ctx.event_time, "now": ctx.now, "mark": ctx.watermark}
        yield {**ctx.key, "what": f"{timer.clock} {timer.name}", "at": timer.at, **when}


def alarm(seconds: float, *, event: Any = None, clock: Any = None, cancel: Any = None, k: str = "a") -> dict[str, Any]:
    return {"k": k, "ts": at(seconds), "event": event, "clock": clock, "cancel": cancel}


def test_timers_fire_in_the_order_of_their_times_and_one_that_sets_itself_again_fires_again() -> None:
    t = ProcessTester(Alarm(), key="k", event_time="ts")
    t.send(alarm(0, event={"late": 90, "early": 30, "again": 0, "gone": 10}, cancel=["gone"]))
    assert t.take() == []
    t.advance_time(at(90))
    fired = t.take()
    assert [row["what"] for row in fired] == ["event again", "event early", "event again", "event late"]
    assert [row["seen"] for row in fired] == [row["at"] for row in fired] == [at(0), at(30), at(60), at(90)]
    assert {row["mark"] for row in fired} == {at(90)}


def test_a_timer_of_the_same_name_moves() -> None:
    t = ProcessTester(Alarm(), key="k", event_time="ts")
    t.send(alarm(0, event={"x": 10}))
    t.send(alarm(1, event={"x": 20}))
    t.advance_time(at(15))
    assert t.take() == []
    t.advance_time(at(20))
    assert [row["at"] for row in t.take()] == [at(20)]


def test_the_end_of_time_fires_what_is_pending_and_nothing_that_is_set_then() -> None:
    t = ProcessTester(Alarm(), key="k", event_time="ts")
    t.send(alarm(0, event={"again": 30, "once": 10_000}))
    t.advance_time("9999-01-01T00:00Z")
    assert [row["what"] for row in t.take()] == ["event again", "event once"]


def test_a_processing_timer_goes_by_the_clock() -> None:
    t = ProcessTester(Alarm(), key="k", event_time="ts")
    start = t.now
    t.send(alarm(5, clock={"x": 60}, event={"y": 6}))
    t.advance_time(at(6))
    assert [row["what"] for row in t.take()] == ["event y"]
    t.advance_clock("59s")
    assert t.take() == []
    t.advance_clock("1s")
    (row,) = t.take()
    assert (row["what"], row["at"], row["now"]) == ("processing x", start + MINUTE, t.now)
    assert row["seen"] == at(6)


class Forgetful(ps.Process):
    output = "k string, before bigint"
    n = ps.state.value(int, ttl="10s")

    def on_row(self, row: dict[str, Any], ctx: ps.Context) -> Iterator[Any]:
        yield {**ctx.key, "before": self.n.get()}
        self.n.set(row["n"])


def test_state_lives_for_its_ttl_by_the_watermark_else_by_the_clock() -> None:
    t = ProcessTester(Forgetful(), key="k", event_time="ts")
    t.send({"k": "a", "n": 1, "ts": at(0)})
    t.advance_clock("1h")
    t.advance_time(at(9))
    t.send({"k": "a", "n": 2, "ts": at(9)})
    t.advance_time(at(19))
    t.send({"k": "a", "n": 3, "ts": at(20)})
    assert [row["before"] for row in t.take()] == [None, 1, None]
    t = ProcessTester(Forgetful(), key="k")
    t.send({"k": "a", "n": 1}, {"k": "b", "n": 1})
    t.advance_clock("9s")
    t.send({"k": "a", "n": 2})
    t.advance_clock("1s")
    t.send({"k": "a", "n": 3})
    assert [row["before"] for row in t.take()] == [None, None, 1, 2]
    assert t.state("b") == {}, "a key that has expired takes no room"


class Picky(ps.Process):
    output = "k string, total bigint"
    sides = {"odd": "k string"}
    total = ps.state.value("struct<sum:bigint>")

    def on_row(self, row: dict[str, Any], ctx: ps.Context) -> Iterator[Any]:
        total = self.total.get({"sum": 0})
        total["sum"] += row.pop("n")
        self.total.set(total)
        ctx.set_timer(row["ts"], "bad" if row["bad"] else "good")
        yield {**ctx.key, "total": total["sum"]}
        if row["bad"]:
            message = "no"
            raise ValueError(message)

    def on_timer(self, timer: ps.Timer, ctx: ps.Context) -> None:
        assert timer.name == "good"


def test_what_a_row_changed_is_undone_when_the_function_raises_on_it() -> None:
    operator = ProcessOperator(Picky(), ("k",), ("k", "n", "bad", "ts"), "ts", rejects=True, label="process")
    rows = [{"k": "a", "n": 10**i, "bad": i % 3 == 1, "ts": at(i)} for i in range(8)]
    first = operator.run(pa.Table.from_pylist(rows[:2]), BucketStore.of(None), 1, 0)
    result = operator.run(pa.Table.from_pylist(rows[2:]), first.store, 1, 0)
    totals = [1, 101, 1101, 101101, 1101101]
    assert [r["total"] for t in (first, result) for r in t.tables["main"][0].to_pylist()] == totals
    refused = [one for t in (first, result) for one in t.refused]
    assert refused == [("ValueError: no", row) for row in rows if row["bad"]]
    assert operator.state_of(result.store, {"k": "a"}) == {"total": {"sum": 1101101}}


def test_a_function_that_raises_names_itself_and_the_row() -> None:
    t = ProcessTester(Picky(), key="k", event_time="ts")
    with pytest.raises(
        FunctionFailed,
        match=r"Picky.on_row raised ValueError: no at test_process.py:\d+ .*; the input row was .*'n': 4",
    ):
        t.send({"k": "a", "n": 4, "bad": True, "ts": at(0)})


def running(emit: Any, *, timer: Any = None, clock: str = "event") -> ps.Process:
    class Emits(ps.Process):
        output = "a bigint"
        sides = {"audit": "b string"}
        flag = ps.state.value(bool)

        def on_row(self, row: dict[str, Any], ctx: ps.Context) -> Any:
            if timer is not None:
                ctx.set_timer(timer, clock=clock)  # type: ignore[arg-type]
            return emit(self) if callable(emit) else emit

        def on_timer(self, timer: ps.Timer, ctx: ps.Context) -> None: ...

    return Emits()


@pytest.mark.parametrize(
    ("emit", "said"),
    [
        ({"a": 1}, "it returned {'a': 1}"),
        ([{"a": 1, "aa": 2}], "has the column 'aa', which its schema lacks"),
        ([("adit", {"b": ""})], "has no output 'adit'"),
        ([("audit", {"a": 1})], "for output 'audit' has the column 'a'"),
        ([3], "it emitted int 3, which is not a row"),
        (lambda process: process.flag.set("yes"), "state 'flag' holds boolean, and was given str 'yes'"),
    ],
)
def test_a_wrong_emit_says_what_is_wrong(emit: Any, said: str) -> None:
    t = ProcessTester(running(emit), key="k")
    with pytest.raises(FunctionFailed) as failed:
        t.send({"k": 1})
    assert said in str(failed.value)


def test_a_value_of_the_wrong_type_names_its_column() -> None:
    with pytest.raises(
        FunctionFailed, match=r"column 'a' is bigint, and was given 'x' \(str\); the input row was {'k': 1}"
    ):
        ProcessTester(running([{"a": 1}, {"a": "x"}]), key="k").send({"k": 1})


@pytest.mark.parametrize(
    ("timer", "clock", "event_time", "said"),
    [
        (at(4), "event", "ts", "is in the past"),
        (at(4).replace(year=1990), "processing", "ts", "is in the past"),
        (at(9), "event", None, "uses event time, and the stream has none"),
        (at(9), "wall", "ts", "clock='wall' is not known"),
        (at(9).replace(tzinfo=None), "event", "ts", "has no time zone"),
    ],
)
def test_a_wrong_timer_says_what_is_wrong(timer: Any, clock: str, event_time: str | None, said: str) -> None:
    t = ProcessTester(running(None, timer=timer, clock=clock), key="k", event_time=event_time)
    with pytest.raises(FunctionFailed, match=said):
        t.send({"k": 1, "ts": at(5)})


def test_a_process_that_cannot_work_is_refused_when_it_is_declared() -> None:
    def make(**body: Any) -> Any:
        return type("Made", (ps.Process,), {"output": "a int", **body})

    def sets(self: Any, row: Any, ctx: Any) -> None:
        ctx.set_timer(row["ts"])

    wrong: list[tuple[Any, str]] = [
        (make(), "neither on_row nor on_rows"),
        (make(on_row=sets, on_rows=sets), "both on_row and on_rows"),
        (make(on_row=sets), "sets timers, and has no on_timer"),
        (make(on_row=len, sides={"late": "a int"}), "invalid name 'late' of a side output"),
        (type("Bare", (ps.Process,), {"on_row": len}), "the schema of its rows is missing"),
    ]
    for process, said in wrong:
        with pytest.raises(BadProcess, match=said):
            ProcessTester(process, key="k")


def test_a_state_that_cannot_be_is_refused_when_it_is_declared() -> None:
    for declare in (
        lambda: ps.state.value(object),
        lambda: ps.state.list("whatever"),
        lambda: ps.state.map("array<int>", int),
        lambda: ps.state.reducing(int, 3),  # type: ignore[arg-type]
        lambda: ps.state.aggregating("sum"),  # type: ignore[arg-type]
    ):
        with pytest.raises(BadState):
            declare()
    with pytest.raises(BadValue):
        ps.state.value(int, ttl="0s")
    with pytest.raises(BadState, match="outside of a key"):
        Fraud().tiny.get()


def test_a_tester_says_which_column_or_output_is_missing() -> None:
    t = ProcessTester(Fraud(), key="card", event_time="ts")
    with pytest.raises(UnknownColumn, match="'card'"):
        t.send({"ts": at(0)})
    with pytest.raises(BadValue, match="no output 'adit'"):
        t.take("adit")


def test_no_row_before_1970_is_late_before_the_watermark_was_moved() -> None:
    class Told(ps.Process):
        output = "k string"

        def on_row(self, row: dict[str, Any], ctx: ps.Context) -> Iterator[dict[str, Any]]:
            yield {**ctx.key}

    t = ProcessTester(Told(), key="k", event_time="ts")
    t.send({"k": "a", "ts": datetime(1850, 1, 1, tzinfo=UTC)})
    assert len(t.take()) == 1
    t.advance_time("1900-01-01T00:00Z")
    t.send({"k": "a", "ts": datetime(1850, 1, 1, tzinfo=UTC)}, {"k": "a", "ts": datetime(1950, 1, 1, tzinfo=UTC)})
    assert (len(t.take()), len(t.take("late"))) == (1, 1)


def test_timers_of_the_year_9500_fire_in_turn() -> None:
    class Twice(ps.Process):
        output = "k string, at timestamp"

        def on_row(self, row: dict[str, Any], ctx: ps.Context) -> Iterator[dict[str, Any]]:
            ctx.set_timer(row["ts"])
            return iter(())

        def on_timer(self, timer: ps.Timer, ctx: ps.Context) -> Iterator[dict[str, Any]]:
            if timer.name == "":
                ctx.set_timer(timer.at + timedelta(seconds=1), name="again")
            yield {**ctx.key, "at": timer.at}

    t = ProcessTester(Twice(), key="k", event_time="ts")
    t.send({"k": "a", "ts": datetime(9500, 1, 1, tzinfo=UTC)})
    t.advance_time("9500-01-02T00:00Z")
    assert len(t.take()) == 2
