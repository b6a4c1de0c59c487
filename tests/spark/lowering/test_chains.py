"""Nodes downstream of late rows and of windows with lateness, and keys that are times."""

from __future__ import annotations

import random
from datetime import timedelta
from itertools import chain
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import penstock as ps
from penstock.settings import Settings
from penstock.testing import EOF, Crash, run_to_end
from tests.conftest import at, at_parallelism

SCHEMA = "k string, v bigint, ts timestamp"


def row(v: int, seconds: float, k: str = "a") -> dict[str, Any]:
    return {"k": k, "v": v, "ts": at(seconds)}


def refuse_one(given: dict[str, Any]) -> dict[str, Any]:
    if given["v"] == 1:
        message = "not one"
        raise ValueError(message)
    return given


@pytest.mark.slow
def test_a_late_row_that_a_function_refuses_is_rejected(settings: Settings) -> None:
    rows = ps.from_items([], SCHEMA).named("rows").event_time("ts", "0s")
    counts = rows.key_by("k").window(ps.tumbling("10s")).aggregate(n="count(*)").named("counts")
    late = counts.side("late").map(refuse_one).named("checked").to(ps.collect()).named("late")
    pipeline = ps.Pipeline("p", counts.to(ps.collect()).named("out"), late, rejected_to=ps.collect())
    given = [row(0, 100), EOF, row(1, 1), row(2, 2), Crash()]
    out = run_to_end(pipeline, {"rows": given}, settings=settings)
    assert [one["v"] for one in out["late"]] == [2]
    (refused,) = out["collect"]
    assert (refused["node"], "not one" in refused["reason"]) == ("checked", True)


@pytest.mark.slow
def test_sessions_behind_a_window_with_lateness_wait_for_its_results(settings: Settings) -> None:
    rows = ps.from_items([], SCHEMA).named("rows").event_time("ts", "0s")
    tens = rows.key_by("k").window(ps.tumbling("10s"), allowed_lateness="30s").aggregate(n="count(*)").named("tens")
    sessions = tens.key_by("k").window(ps.session("15s", max_length="1h")).aggregate(windows="count(*)")
    pipeline = ps.Pipeline("p", sessions.to(ps.collect()).named("out"))
    given = [row(0, 5), row(1, 15), row(2, 40), row(3, 50), EOF, row(4, 200)]
    out = run_to_end(pipeline, {"rows": given}, settings=settings)
    found = sorted((one["window_start"], one["windows"]) for one in out["out"])
    # Windows end at 10, 20, 50 and 60 s: two sessions, and one of the last row.
    ends = [at(10), at(50), at(210)]
    assert found == list(zip([end - timedelta(microseconds=1) for end in ends], [2, 2, 1], strict=True))


def test_keys_that_differ_by_microseconds_are_two(settings: Settings) -> None:
    keys = [at(0) + timedelta(microseconds=micros) for micros in (100, 200)]
    items = [{"at": keys[n % 2], "v": n, "ts": at(1)} for n in range(6)]
    rows = ps.from_items(items, "at timestamp, v bigint, ts timestamp").named("rows").event_time("ts", "0s")
    windows = rows.key_by("at").window(ps.tumbling("10s"))
    sums = windows.reduce(lambda a, b: {**a, "v": a["v"] + b["v"]})
    out = run_to_end(ps.Pipeline("p", sums.to(ps.collect()).named("out")), {"rows": items}, settings=settings)
    assert {one["at"]: one["v"] for one in out["out"]} == {keys[0]: 0 + 2 + 4, keys[1]: 1 + 3 + 5}


class Same(ps.Process):
    output = "id bigint, k string, ts timestamp"

    def on_row(self, row: dict[str, Any], ctx: ps.Context) -> Any:
        yield row


class Seen(ps.Process):
    """Five seconds after each row: how many rows of its key there were up to then."""

    output = "k string, id bigint, n bigint"
    times = ps.state.list("timestamp")

    def on_row(self, row: dict[str, Any], ctx: ps.Context) -> None:
        self.times.append(row["ts"])
        ctx.set_timer(row["ts"] + timedelta(seconds=5), name=str(row["id"]))

    def on_timer(self, timer: ps.Timer, ctx: ps.Context) -> Any:
        yield {"k": ctx.key["k"], "id": int(timer.name), "n": sum(one <= timer.at for one in self.times)}


def behind_a_join() -> tuple[list[list[dict[str, Any]]], list[list[dict[str, Any]]]]:
    """Return orders in epochs of half a minute, and payments up to 24 seconds after them, in theirs."""
    chance = random.Random(5)
    left = [{"id": n, "k": chance.choice("abc"), "ts": at(chance.randrange(120))} for n in range(80)]
    right = [{"id": row["id"], "ts": row["ts"] + timedelta(seconds=chance.randrange(24))} for row in left]
    epochs = [(at(n * 30), at(n * 30 + 30)) for n in range(5)]
    return tuple(  # type: ignore[return-value]
        [[row for row in side if first <= row["ts"] < end] for first, end in epochs] for side in (left, right)
    )


EVERYTHING = ("windows", "seen", "sessions", "totals")


@pytest.mark.parametrize(
    ("how", "parallelism", "chosen"),
    [
        ("inner", 2, ("totals",)),
        pytest.param("inner", 3, EVERYTHING, marks=pytest.mark.slow),
        pytest.param("left", 3, (*EVERYTHING[:3], "twice"), marks=pytest.mark.slow),
    ],
)
def test_behind_a_join_and_a_process_everything_can_follow(
    how: Any, parallelism: int, chosen: tuple[str, ...], settings: Settings
) -> None:
    """Results of the join are up to 20 s behind the watermark: windows and timers wait for them, none is lost."""
    left = ps.from_items([], "id bigint, k string, ts timestamp").named("orders").event_time("ts", "0s")
    right = ps.from_items([], "id bigint, ts timestamp").named("paid").event_time("ts", "0s")
    both = left.join(right, "id", how, within=("0s", "20s")).select("id", "k", "ts")
    same = both.key_by("k").process(Same()).named("same")
    windows = same.key_by("k").window(ps.tumbling("10s", offset="3s")).aggregate(n="count(*)", ids="sum(id)")
    outputs = {
        "windows": windows.named("tens"),
        "seen": same.key_by("k").process(Seen()).named("after"),
        "sessions": same.deduplicate("id", "1s").key_by("k").window(ps.session("3s")).reduce(larger).named("best"),
    }
    if how == "inner":
        outputs["totals"] = same.key_by("k").aggregate(n="count(*)", ids="sum(id)").named("ever")
    else:
        again = same.join(right, "id", how, within=("0s", "20s"), suffix="_2").named("again")
        outputs["twice"] = (
            again.key_by("k").window(ps.tumbling("10s", offset="3s")).aggregate(n="count(*)").named("pairs")
        )
    pipeline = ps.Pipeline("chain", *(outputs[name].to(ps.collect()).named(name) for name in chosen))
    epochs = behind_a_join()
    controls = [EOF, Crash(), EOF, Crash(), EOF]
    if len(chosen) == 1:  # in short: two epochs
        epochs = tuple([[*chain(*side[:3])], [*chain(*side[3:])]] for side in epochs)
        controls = [EOF, None]
    items = {
        name: [one for rows, control in zip(side, controls, strict=True) for one in (*rows, control) if one]
        for name, side in zip(("orders", "paid"), epochs, strict=True)
    }
    out = run_to_end(pipeline, items, settings=at_parallelism(settings, parallelism))
    with duckdb.connect() as db:
        for name, side in zip(("l", "r"), epochs, strict=True):
            db.register(name, pa.Table.from_pylist([row for rows in side for row in rows]))
        db.execute(
            "CREATE TABLE met AS SELECT l.id, l.k, epoch(l.ts - TIMESTAMPTZ '2026-01-01T00:00Z') AS s "
            f"FROM l {how} JOIN r ON l.id = r.id AND r.ts - l.ts BETWEEN INTERVAL 0 SECOND AND INTERVAL 20 SECOND"
        )
        tens = db.sql("SELECT k, floor((s - 3) / 10), count(*), sum(id) FROM met GROUP BY ALL").fetchall()
        seen = db.sql(
            "SELECT k, id, (SELECT count(*) FROM met b WHERE b.k = a.k AND b.s <= a.s + 5) FROM met a"
        ).fetchall()
        ever = db.sql("SELECT k, count(*), sum(id) FROM met GROUP BY k").fetchall()
        best = db.sql(
            "WITH cut AS (SELECT *, CASE WHEN s - lag(s) OVER p <= 3 THEN 0 ELSE 1 END AS new FROM met "
            "WINDOW p AS (PARTITION BY k ORDER BY s)), numbered AS (SELECT *, sum(new) OVER "
            "(PARTITION BY k ORDER BY s) AS session FROM cut) SELECT k, max(id) FROM numbered GROUP BY k, session"
        ).fetchall()
    assert len(tens) > 10
    if "windows" in chosen:
        found = [
            (r["k"], ((r["window_start"] - at(0)).total_seconds() - 3) // 10, r["n"], r["ids"]) for r in out["windows"]
        ]
        assert sorted(found) == sorted(tens)
    if "seen" in chosen:
        assert sorted((row["k"], row["id"], row["n"]) for row in out["seen"]) == sorted(seen)
    if how == "inner":
        assert sorted({row["k"]: (row["k"], row["n"], row["ids"]) for row in out["totals"]}.values()) == sorted(ever)
    else:
        assert sorted((row["k"], row["n"]) for row in out["twice"]) == sorted((k, n) for k, _, n, _ in tens)
    if "sessions" in chosen:
        assert sorted((row["k"], row["id"]) for row in out["sessions"]) == sorted(best)


def larger(a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
    return a if a["id"] > b["id"] else b


@pytest.mark.slow
def test_an_aggregate_over_all_time_follows_an_asof_join_and_cut_sessions(settings: Settings) -> None:
    trades = ps.from_items([], SCHEMA).named("trades").event_time("ts", "0s")
    quotes = ps.from_items([], "k string, price bigint, ts timestamp").named("quotes").event_time("ts", "0s")
    priced = trades.join_asof(quotes, "k").key_by("k").aggregate(n="count(*)", spent="sum(v * price)").named("spent")
    cut = trades.key_by("k").window(ps.session("5s", max_length="10s")).aggregate(n="count(*)").named("cut")
    longest = cut.key_by("k").aggregate(sessions="count(*)", most="max(n)").named("longest")
    pipeline = ps.Pipeline("p", priced.to(ps.collect()).named("out"), longest.to(ps.collect()).named("most"))
    sold = [row(1, 1), row(2, 4), row(3, 8), EOF, row(4, 12), row(5, 30), Crash(), row(6, 31, "b")]
    quoted = [{"k": "a", "price": price, "ts": at(seconds)} for price, seconds in ((10, 0), (20, 4), (30, 9), (50, 29))]
    items = {"trades": sold, "quotes": [*quoted[:2], EOF, quoted[2], Crash(), quoted[3]]}
    out = run_to_end(pipeline, items, settings=settings)
    last = {one["k"]: (one["n"], one["spent"]) for one in out["out"]}
    assert last == {"a": (5, 1 * 10 + 2 * 20 + 3 * 20 + 4 * 30 + 5 * 50), "b": (1, None)}
    # Sessions of a: 1, 4 and 8 s, cut at 11 s; 12 s; 30 s.
    assert {one["k"]: (one["sessions"], one["most"]) for one in out["most"]} == {"a": (3, 3), "b": (1, 1)}
