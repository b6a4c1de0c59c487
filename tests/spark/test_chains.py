"""What stands behind late rows and behind windows with lateness, and keys that are times."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import penstock as ps
from penstock.settings import Settings
from penstock.testing import EOF, Crash, run_to_end
from tests.conftest import at

SCHEMA = "k string, v bigint, ts timestamp"


def row(v: int, seconds: float, k: str = "a") -> dict[str, Any]:
    return {"k": k, "v": v, "ts": at(seconds)}


def refuse_one(given: dict[str, Any]) -> dict[str, Any]:
    if given["v"] == 1:
        message = "not one"
        raise ValueError(message)
    return given


def test_a_late_row_that_a_function_refuses_is_rejected(settings: Settings) -> None:
    rows = ps.from_items([], SCHEMA).named("rows").event_time("ts", "0s")
    counts = rows.key_by("k").window(ps.tumbling("10s")).aggregate(n="count(*)").named("counts")
    late = counts.side("late").map(refuse_one).named("checked").to(ps.collect()).named("late")
    pipeline = ps.Pipeline("p", counts.to(ps.collect()).named("out"), late, rejected_to=ps.collect())
    given = [row(0, 100), EOF, row(1, 1), row(2, 2), Crash(), row(3, 200)]
    out = run_to_end(pipeline, {"rows": given}, settings=settings)
    assert [one["v"] for one in out["late"]] == [2]
    (refused,) = out["collect"]
    assert (refused["node"], "not one" in refused["reason"]) == ("checked", True)


def test_sessions_behind_a_window_with_lateness_wait_for_its_results(settings: Settings) -> None:
    rows = ps.from_items([], SCHEMA).named("rows").event_time("ts", "0s")
    tens = rows.key_by("k").window(ps.tumbling("10s"), allowed_lateness="30s").aggregate(n="count(*)").named("tens")
    sessions = tens.key_by("k").window(ps.session("15s", max_length="1h")).aggregate(windows="count(*)")
    pipeline = ps.Pipeline("p", sessions.to(ps.collect()).named("out"))
    given = [row(0, 5), row(1, 15), row(2, 40), EOF, row(3, 50), EOF, row(4, 200)]
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
