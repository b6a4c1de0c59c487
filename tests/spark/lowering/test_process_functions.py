"""Promise: a process function does on Spark what it does in its unit test, whatever crashes, and no row vanishes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.connectors.generators.items import ItemSource
from penstock.errors import CheckpointMismatch, DanglingBranch, FunctionFailed, MissingEventTime
from penstock.settings import Settings
from penstock.spark.checkpoints.state.reader import read_state
from penstock.storage.folders import folder
from penstock.testing import EOF, AdvanceClock, AdvanceTime, Crash, ProcessTester, assert_rows, run_to_end
from tests.conftest import at

Row = dict[str, Any]
DELAY = timedelta(days=1)
SCHEMA = ps.Schema("k string, op string, n bigint, ts timestamp")


def source(name: str, schema: ps.Schema = SCHEMA) -> ps.Stream:
    return ps.read(ItemSource([], schema, name))


class Anything(ps.Process):
    """Does what its rows say, so that random rows make it do anything."""

    output = "k string, what string, n bigint, at timestamp"
    sides = {"sums": "k string, total bigint, names array<string>"}
    total = ps.state.value(int)
    brief = ps.state.value(int, ttl="40s")
    recent = ps.state.list(int, ttl="5s")
    names = ps.state.list(str)
    counts = ps.state.map(str, int)
    most = ps.state.reducing(int, max)

    def on_row(self, row: Row, ctx: ps.Context) -> Iterator[Any]:
        self.total.set(self.total.get(0) + row["n"])
        self.counts[row["op"]] = self.counts.get(row["op"], 0) + 1
        self.most.add(row["n"])
        if row["op"] == "emit":
            seen = f"{self.brief.get()} {self.recent.get()} {self.most.get()} {sorted(self.counts.items())}"
            yield {**ctx.key, "what": seen, "n": self.total.get(), "at": ctx.event_time}
            yield "sums", {**ctx.key, "total": self.total.get(), "names": self.names}
        elif row["op"] == "brief":
            self.brief.set(row["n"])
            self.recent.append(row["n"])
        elif row["op"] == "timer":
            ctx.set_timer(row["ts"] + timedelta(seconds=row["n"]), f"t{row['n'] % 3}")
        elif row["op"] == "clock":
            ctx.set_timer(ctx.now + timedelta(minutes=row["n"]), "clock", clock="processing")
        elif row["op"] == "cancel":
            ctx.cancel_timer(f"t{row['n'] % 3}")
        elif row["op"] == "fail":
            self.names.append("never")
            message = "asked to"
            raise ValueError(message)

    def on_timer(self, timer: ps.Timer, ctx: ps.Context) -> Iterator[Any]:
        self.names.append(timer.name)
        if timer.name == "t2" and len(self.names) < 9:
            ctx.set_timer(timer.at + timedelta(seconds=15), "t2")
        self.recent.append(-len(self.names))
        what = f"{timer.name} {self.brief.get()} {self.recent.get()}"
        yield {**ctx.key, "what": what, "n": self.total.get(), "at": timer.at if timer.clock == "event" else None}


EPOCHS = [[AdvanceTime(at(25) + DELAY)], [AdvanceClock("20m")], [Crash()]]
SHORT = [[AdvanceTime(at(25) + DELAY)], [Crash(), AdvanceClock("20m")]]


def acts(seed: int, epochs: list[list[Any]]) -> list[Any]:
    """Rows of some epochs, with time that moves between them."""
    chance = random.Random(seed)
    ops = ["emit", "brief", "timer", "timer", "clock", "cancel", "fail"]
    found: list[Any] = []
    for epoch, controls in enumerate(epochs):
        for _ in range(200):
            seconds = epoch * 20 + chance.randrange(40_000) / 1000
            row = {"k": f"k{chance.randrange(25)}", "op": chance.choice(ops), "n": chance.randrange(1, 60)}
            found.append(row | {"ts": at(seconds)})
        found += controls
    return found


def expected(items: list[Any]) -> tuple[ProcessTester, list[Row]]:
    """The same in a unit test, without the rows on which the function raises: those must leave no trace."""
    t = ProcessTester(Anything(), key="k", event_time="ts")
    failing: list[Row] = []
    rows: list[Row] = []
    late_before = at(-1e6)
    for item in items:
        if isinstance(item, dict):
            bad = item["op"] == "fail" and item["ts"] >= late_before
            (failing if bad else rows).append(item)
            continue
        if rows:
            t.send(*rows)
        rows = []
        if isinstance(item, AdvanceTime):
            late_before = item.to - DELAY  # type: ignore[operator]
            t.advance_time(late_before)
        if isinstance(item, AdvanceClock):
            t.advance_clock(item.by)
    t.advance_time("9999-01-01T00:00Z")
    return t, failing


def by_key(rows: list[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row["k"], []).append(row)
    return found


@pytest.mark.parametrize("seed", [1, *(pytest.param(n, marks=pytest.mark.slow) for n in range(2, 12))])
def test_spark_gives_what_the_unit_test_gives(settings: Settings, seed: int) -> None:
    made = source("rows").event_time("ts", "1d").key_by("k").process(Anything(), late_to=ps.collect()).named("anything")
    pipeline = ps.Pipeline(
        "anything",
        made.to(ps.collect()).named("main"),
        made.side("sums").filter("total > 0").to(ps.collect()).named("sums"),
        rejected_to=ps.console(),
    )
    items = acts(seed, SHORT if seed == 1 else EPOCHS)
    given = sum(isinstance(item, dict) for item in items)
    out = run_to_end(pipeline, {"rows": items}, settings=replace(settings, lane="auto" if seed % 2 else "spark"))
    t, failing = expected(items)
    main, late = t.take(), t.take("late")
    assert by_key(out["main"]) == by_key(main), "every key's rows and timers, in order"
    assert by_key(out["sums"]) == by_key(t.take("sums"))
    assert_rows(out["collect"], late)
    assert len(out["console"]) == len(failing) > 0
    assert {row["reason"] for row in out["console"]} == {"ValueError: asked to"}
    counts = out.counts["anything"]
    assert (counts.rows_in, counts.late, counts.rejected) == (given, len(late), len(failing))
    assert counts.used == given - len(late) - len(failing)
    assert out.counts["main"].rows_in == len(main)


class Burst(ps.Process):
    """The one of the README: more than three failures, none a minute after the one before."""

    output = "k string, failures bigint, since timestamp"
    failed = ps.state.list("timestamp", ttl="1m")

    def on_row(self, row: Row, ctx: ps.Context) -> Iterator[Any]:
        self.failed.append(row["ts"])
        if len(self.failed) > 3:
            yield {**ctx.key, "failures": len(self.failed), "since": self.failed[0]}


def test_a_row_does_not_see_state_that_is_older_than_its_ttl_at_the_rows_own_time(settings: Settings) -> None:
    hours = [{"k": "slow", "op": "", "n": 0, "ts": at(3600 * hour)} for hour in range(6)]
    quick = [{"k": "fast", "op": "", "n": 0, "ts": at(50 * number)} for number in range(4)]
    made = source("rows").event_time("ts", "5s").key_by("k").process(Burst)
    # All in one epoch, in which the watermark does not move.
    out = run_to_end(ps.Pipeline("bursts", made.to(ps.collect())), {"rows": [*quick, *hours]}, settings=settings)
    assert out["collect"] == [{"k": "fast", "failures": 4, "since": at(0)}]


class Peaks(ps.Process):
    """Windows that are above the one before; as a batch."""

    output = "k string, n bigint, window_end timestamp"
    before = ps.state.value(int)

    def on_rows(self, rows: Any, ctx: ps.Context) -> Iterator[Any]:
        for row in rows.to_pylist():
            if row["n"] > self.before.get(0):
                yield {**ctx.key, "n": row["n"], "window_end": row["window_end"]}
            self.before.set(row["n"])


@pytest.mark.slow
def test_a_process_stands_between_windows_and_needs_no_event_time(settings: Settings) -> None:
    rows = source("rows")
    windows = rows.event_time("ts", "5s").key_by("k").window(ps.tumbling("10s")).aggregate(n="count(*)")
    peaks = windows.key_by("k").process(Peaks)
    halves = peaks.key_by("k").window(ps.tumbling("30s")).aggregate(peaks="count(*)", most="max(n)").named("halves")
    untimed = rows.key_by("k").process(Anything(), on_error="reject").named("untimed")
    pipeline = ps.Pipeline("peaks", halves.to(ps.collect()), untimed.to(ps.collect()).named("untimed-rows"))
    seconds = [1, 11, 12, 21, 31, 32, 33, 45]
    items: list[Any] = [{"k": "a", "op": "brief", "n": 1, "ts": at(s)} for s in seconds]
    items[4:4] = [EOF]
    items += [{"k": "a", "op": "clock", "n": 30, "ts": at(50)}, Crash(), AdvanceClock("29m"), AdvanceClock("1m")]
    items += [{"k": "a", "op": "timer", "n": 30, "ts": at(50)}, {"k": "a", "op": "emit", "n": 0, "ts": at(50)}]
    out = run_to_end(pipeline, {"rows": items}, settings=settings)
    found = [(row["window_end"], row["peaks"], row["most"]) for row in out["collect"]]
    # Peaks at 10, 20, 40 and 60 s; those at 20 and 40 are of one batch, and have the time of its newest row.
    assert found == [(at(30), 1, 1), (at(60), 3, 3)]
    fired, emitted = out["untimed-rows"]
    assert (fired["what"], fired["n"]) == ("clock None [-1]", 38), "what has a TTL expired by the clock"
    assert (emitted["n"], emitted["at"]) == (38, None)
    assert out.counts["untimed"].rejected == 1, "a timer of event time on a stream without one"


def test_a_process_that_raises_stops_the_job_and_names_the_row(settings: Settings) -> None:
    made = source("rows").event_time("ts", "1d").key_by("k").process(Anything())
    with pytest.raises(
        FunctionFailed, match=r"Anything.on_row raised ValueError: asked to at .*; the input row was .*'k': 'a'"
    ):
        run_to_end(
            ps.Pipeline("raises", made.to(ps.collect())),
            {"rows": [{"k": "a", "op": "fail", "n": 1, "ts": at(0)}]},
            settings=settings,
        )


class Sum(ps.Process):
    output = "k string, total bigint"
    total = ps.state.value(int)

    def on_row(self, row: Row, ctx: ps.Context) -> Iterator[Any]:
        self.total.set(self.total.get(0) + row["n"])
        yield {**ctx.key, "total": self.total.get()}


class SumAndCount(ps.Process):
    output = "k string, total bigint, n bigint"
    total = ps.state.value(int)
    n = ps.state.value(int)
    seen = ps.state.list("timestamp")

    def on_row(self, row: Row, ctx: ps.Context) -> Iterator[Any]:
        self.total.set(self.total.get(0) + row["n"])
        self.n.set(self.n.get(0) + 1)
        self.seen.append(row["ts"])
        ctx.set_timer(row["ts"] + timedelta(hours=1), "forget")
        yield {**ctx.key, "total": self.total.get(), "n": self.n.get()}

    def on_timer(self, timer: ps.Timer, ctx: ps.Context) -> None:
        self.seen.clear()


class SumOfFloats(ps.Process):
    output = Sum.output
    total = ps.state.value(float)
    on_row = Sum.on_row


def test_state_is_kept_by_attribute_and_shown_by_key(settings: Settings, tmp_path: Path) -> None:
    where = tmp_path / "checkpoint"

    def run(process: ps.Process, count: int) -> list[Row]:
        items = [{"k": "ab"[i % 2], "op": "", "n": i, "ts": at(i)} for i in range(count)]
        sink = ps.collect()
        made = ps.from_items(items, SCHEMA).named("rows").event_time("ts", "5s").key_by("k").process(process)
        ps.Pipeline("sums", made.to(sink)).run(until="drained", checkpoint=where, settings=settings)
        return sink.rows

    assert [row["total"] for row in run(Sum(), 4)] in ([0, 2, 1, 4], [1, 4, 0, 2])
    assert_rows(run(SumAndCount(), 6), [{"k": "a", "total": 6, "n": 1}, {"k": "b", "total": 9, "n": 1}])
    shown = read_state(folder(where), settings)
    assert shown.columns == ["k", "total", "n", "seen", "timers"]
    assert [(row["k"], row["total"], row["n"]) for row in shown.rows] == [("a", 6, 1), ("b", 9, 1)]
    assert "forget" in str(shown.rows[0]["timers"])
    only = read_state(folder(where), settings, key="b")
    assert [row["k"] for row in only.rows] == ["b"]
    with pytest.raises(CheckpointMismatch, match="state total: value bigint -> value double"):
        run(SumOfFloats(), 8)


def test_what_cannot_work_is_refused_when_it_is_built() -> None:
    rows = source("rows")
    with pytest.raises(MissingEventTime):
        rows.key_by("k").process(Sum(), late_to=ps.collect())
    with pytest.raises(DanglingBranch, match="has no output 'sum'"):
        rows.key_by("k").process(Anything()).side("sum")
