"""Promise: a row or timer sees no state that is older than its TTL at its own time, wherever epochs end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.testing import ProcessTester
from tests.conftest import at

Row = dict[str, Any]
TTL = 10
KEYS = ("a", "b")


class Sum(ps.Aggregator):
    state, result = "bigint", "bigint"

    def start(self) -> int:
        return 0

    def add(self, acc: int, *values: int) -> int:
        return acc + values[0]

    def finish(self, acc: int) -> int:
        return acc


class Aging(ps.Process):
    """One state of each kind with a TTL; rows say what is done with them, and every call shows what it sees."""

    output = "k string, who string, seen string"
    one = ps.state.value(int, ttl="10s")
    some = ps.state.list(int, ttl="10s")
    named = ps.state.map(int, int, ttl="10s")
    most = ps.state.reducing(int, max, ttl="10s")
    total = ps.state.aggregating(Sum(), ttl="10s")

    def on_row(self, row: Row, ctx: ps.Context) -> Iterator[Row]:
        yield self._seen(f"row {row['n']}", ctx)
        n = row["n"]
        for op in row["ops"]:
            if op == "set":
                self.one.set(n)
            elif op == "append":
                self.some.append(n)
            elif op == "replace":
                self.some.set([n])
            elif op == "put":
                self.named[n] = n
            elif op == "delete" and self.named:
                del self.named[next(iter(self.named))]
            elif op == "max":
                self.most.add(n)
            elif op == "sum":
                self.total.add(n)
            elif op == "clear":
                for state in (self.one, self.some, self.named, self.most, self.total):
                    state.clear()  # type: ignore[attr-defined]
            elif op == "timer":
                ctx.set_timer(row["ts"] + timedelta(seconds=7), f"event {n}")
            elif op == "clock":
                ctx.set_timer(ctx.now + timedelta(seconds=7), f"clock {n}", clock="processing")

    def on_timer(self, timer: ps.Timer, ctx: ps.Context) -> Iterator[Row]:
        yield self._seen(timer.name, ctx)
        self.some.append(-1)

    def _seen(self, who: str, ctx: ps.Context) -> Row:
        seen = (self.one.get(), self.some.get(), dict(self.named), self.most.get(), self.total.get())
        return {**ctx.key, "who": who, "seen": repr(seen)}


@dataclass
class Aged:
    """A value and the seconds at which it was written: what the process should see, written without its engine."""

    empty: Any
    value: Any = None
    written: float | None = None

    def at(self, now: float | None) -> Any:
        if self.value is not None and self.written is None:
            # A processing-time timer wrote it before there was a watermark: it counts from when it is next seen.
            self.written = now
        unseen = self.value is None or (now is not None and self.written is not None and now >= self.written + TTL)
        return self.empty if unseen else self.value

    def put(self, value: Any, now: float | None, *, fresh: bool = False) -> None:
        """Write it; what is added to keeps the newest time at which it was written."""
        kept = not fresh and self.at(now) is not self.empty and self.written is not None
        if now is not None:
            self.written = max(now, self.written or now) if kept else now
        self.value = value


@dataclass
class Model:
    """What is stored for one key."""

    one: Aged = field(default_factory=lambda: Aged(None))
    some: Aged = field(default_factory=lambda: Aged([]))
    named: Aged = field(default_factory=lambda: Aged({}))
    most: Aged = field(default_factory=lambda: Aged(None))
    total: Aged = field(default_factory=lambda: Aged(0))
    timers: dict[str, tuple[str, float]] = field(default_factory=dict)

    @property
    def states(self) -> list[Aged]:
        return [self.one, self.some, self.named, self.most, self.total]

    def seen(self, now: float | None) -> str:
        return repr(tuple(state.at(now) for state in self.states))

    def row(self, row: Row, now: float, clock: float) -> None:
        n = row["n"]
        for op in row["ops"]:
            if op == "set":
                self.one.put(n, now, fresh=True)
            elif op == "append":
                self.some.put([*self.some.at(now), n], now)
            elif op == "replace":
                self.some.put([n], now, fresh=True)
            elif op == "put":
                self.named.put(self.named.at(now) | {n: n}, now)
            elif op == "delete" and self.named.at(now):
                left = dict(list(self.named.at(now).items())[1:])
                self.named.put(left or None, now)
            elif op == "max":
                before = self.most.at(now)
                self.most.put(n if before is None else max(before, n), now)
            elif op == "sum":
                self.total.put(self.total.at(now) + n, now)
            elif op == "clear":
                for state in self.states:
                    state.value = state.written = None
            elif op == "timer":
                self.timers[f"event {n}"] = ("event", now + 7)
            elif op == "clock":
                self.timers[f"clock {n}"] = ("processing", clock + 7)


OPS = ("set", "append", "replace", "put", "delete", "max", "sum", "clear", "timer", "clock")
ROWS = st.fixed_dictionaries(
    {
        "k": st.sampled_from(KEYS),
        "at": st.integers(-30, 90),
        "ops": st.lists(st.sampled_from(OPS), max_size=4),
    }
)
EPOCHS = st.lists(
    st.tuples(st.lists(ROWS, max_size=8), st.sampled_from([None, 5, 20]), st.sampled_from([None, 5, 20])),
    min_size=1,
    max_size=6,
)


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(EPOCHS, st.booleans(), st.sampled_from([at(0), datetime.fromisoformat("1970-01-01T00:00:00Z")]))
def test_state_of_each_kind_ages_by_the_time_of_each_row_and_timer(
    epochs: list[Any], timed: bool, start: datetime
) -> None:
    t = ProcessTester(Aging(), key="k", event_time="ts" if timed else None)
    models = {key: Model() for key in KEYS}
    expected: list[tuple[str, str, str]] = []
    clock, newest, watermark, number = 0.0, 0.0, None, 0

    def fire() -> None:
        for key, model in models.items():
            limits = {"event": watermark, "processing": clock}
            due = True
            while due:
                due_now = [
                    (kind, when, name)
                    for name, (kind, when) in model.timers.items()
                    if limits[kind] is not None and when <= limits[kind]  # type: ignore[operator]
                ]
                due = bool(due_now)
                for kind, when, name in sorted(due_now)[:1]:
                    del model.timers[name]
                    now = when if kind == "event" else watermark if timed else clock
                    expected.append((key, name, model.seen(now)))
                    model.some.put([*model.some.at(now), -1], now)

    for rows, ahead, later in epochs:
        sent = []
        for row in rows:
            number += 1
            ops = [op for op in row["ops"] if timed or op != "timer"]
            sent.append({"k": row["k"], "n": number, "ops": ops, "ts": start + timedelta(seconds=row["at"])})
        if sent:
            t.send(*sent)
        for key in KEYS:
            for row in sent:
                seconds = (row["ts"] - start).total_seconds()
                if row["k"] == key and not (timed and watermark is not None and seconds < watermark):
                    now = seconds if timed else clock
                    expected.append((key, f"row {row['n']}", models[key].seen(now)))
                    models[key].row(row, now, clock)
                    newest = max(newest, seconds)
        if sent:
            fire()
        if timed and ahead is not None and newest > ahead:
            watermark = max(watermark or 0, newest - ahead)
            t.advance_time(start + timedelta(seconds=watermark))
            fire()
        if later is not None:
            clock += later
            t.advance_clock(f"{later}s")
            fire()
    found = [(row["k"], row["who"], row["seen"]) for row in t.take()]
    assert [[one for one in found if one[0] == key] for key in KEYS] == [
        [one for one in expected if one[0] == key] for key in KEYS
    ]


class Counted(ps.Process):
    output = "k string, n bigint"
    n = ps.state.value(int, ttl="1m")

    def on_row(self, row: Row, ctx: ps.Context) -> Iterator[Row]:
        self.n.set(self.n.get(0) + 1)
        yield {**ctx.key, "n": self.n.get()}


def counted(*epochs: list[float]) -> list[int]:
    t = ProcessTester(Counted(), key="k", event_time="ts")
    for seconds in epochs:
        t.send(*({"k": "a", "ts": at(one)} for one in seconds))
    return [row["n"] for row in t.take()]


def test_rows_an_hour_apart_do_not_see_one_another_whether_in_one_epoch_or_in_several() -> None:
    hours = [3600.0 * hour for hour in range(4)]
    assert counted(hours) == counted(*([hour] for hour in hours)) == [1, 1, 1, 1]


def test_state_is_seen_until_just_before_its_ttl_is_over() -> None:
    assert counted([0, 59.999999]) == [1, 2]
    assert counted([0, 60]) == [1, 1]


def test_a_row_out_of_order_sees_what_was_written_after_its_own_time() -> None:
    assert counted([3600, 0, 30]) == [1, 2, 3]


def test_state_too_old_for_one_row_is_still_there_for_an_older_one() -> None:
    class Reader(Counted):
        def on_row(self, row: Row, ctx: ps.Context) -> Iterator[Row]:
            if row["write"]:
                self.n.set(1)
            yield {**ctx.key, "n": self.n.get()}

    t = ProcessTester(Reader(), key="k", event_time="ts")
    t.send(*({"k": "a", "write": second == 0, "ts": at(second)} for second in (0, 90, 30)))
    assert [row["n"] for row in t.take()] == [1, None, 1]


def test_state_that_no_row_to_come_can_see_takes_no_room_and_is_not_shown() -> None:
    t = ProcessTester(Counted(), key="k", event_time="ts")
    t.send({"k": "a", "ts": at(0)}, {"k": "b", "ts": at(30)})
    t.advance_time(at(59))
    assert (t.state("a"), t.state("b")) == ({"n": 1}, {"n": 1})
    t.advance_time(at(60))
    assert (t.state("a"), t.state("b")) == ({}, {"n": 1})


def test_rows_before_1970_are_not_late_before_the_first_watermark_and_age_as_others_do() -> None:
    t = ProcessTester(Counted(), key="k", event_time="ts")
    for second in (0, 30, 100):
        t.send({"k": "a", "ts": datetime.fromisoformat("1900-01-01T00:00:00Z") + timedelta(seconds=second)})
    assert [row["n"] for row in t.take()] == [1, 2, 1]
    assert t.take("late") == []
