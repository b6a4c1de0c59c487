"""Windows on Spark: each result once, and no row vanishes."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock.settings import Settings
from penstock.testing import EOF, AdvanceTime, Crash, Results, assert_rows, run_to_end
from tests.conftest import at, at_parallelism

SCHEMA = "k string, v bigint, ts timestamp"


@pytest.fixture(scope="module", params=["auto", "spark"])
def lane(request: pytest.FixtureRequest, settings: Settings) -> Settings:
    """Run the test in both lanes: the results must be equal."""
    return replace(settings, lane=request.param)


def row(k: str, v: int, seconds: float) -> dict[str, Any]:
    return {"k": k, "v": v, "ts": at(seconds)}


def windowed(window: ps.Window, **options: Any) -> ps.Stream:
    rows = ps.from_items([], SCHEMA).named("rows")
    timed = rows.filter("v >= 0").event_time("ts", "5s")
    return timed.key_by("k").window(window, **options).aggregate(total="sum(v)", n="count(*)")


def result(k: str, start: float, end: float, total: int, n: int) -> dict[str, Any]:
    return {"k": k, "window_start": at(start), "window_end": at(end), "total": total, "n": n}


@pytest.fixture(scope="module")
def tumbling(lane: Settings) -> Results:
    """Windows of ten seconds: a crash, then time that passes without rows, then late rows."""
    stream = windowed(ps.tumbling("10s"))
    pipeline = ps.Pipeline("p", stream.to(ps.collect()), stream.side("late").to(ps.collect()).named("late"))
    # The row at 90 s is filtered before event_time, so the watermark does not see it.
    first = [row("a", 1, 1), row("a", 2, 9), row("b", 3, 2), row("b", -1, 90)]
    second = [row("b", 4, 8), row("a", 1, 40)]
    third = [row("a", 2, 2), row("a", -5, 3), row("a", 7, 42), row("a", 8, 130)]
    given = [*first, EOF, *second, Crash(), AdvanceTime("2026-01-01T00:02Z"), *third]
    return run_to_end(pipeline, {"rows": given}, settings=lane)


def test_a_tumbling_window_gives_each_result_once(tumbling: Results) -> None:
    expected = [result("a", 0, 10, 3, 2), result("b", 0, 10, 7, 2), result("a", 40, 50, 1, 1)]
    assert_rows(tumbling["collect"], [*expected, result("a", 130, 140, 8, 1)])


def test_late_row_goes_to_the_side_output_and_is_counted(tumbling: Results) -> None:
    # The row at 8 s came after one of 90 s that was filtered before event_time.
    assert_rows(tumbling["late"], [row("a", 2, 2), row("a", 7, 42)])
    counts = tumbling.counts["aggregate"]
    assert (counts.rows_in, counts.used, counts.late) == (8, 6, 2)
    assert tumbling.counts["filter"].filtered == 2
    assert sum(r["n"] for r in tumbling["collect"]) + len(tumbling["late"]) == 8


def test_a_crash_neither_loses_nor_repeats_a_result(tumbling: Results) -> None:
    """The job dies in the second epoch, which adds to a window of the first; the epoch after it closes that window."""
    assert [r["total"] for r in tumbling["collect"] if (r["k"], r["window_start"]) == ("b", at(0))] == [7]
    assert len(tumbling["collect"]) == 4
    assert tumbling.counts["aggregate"].rows_in == 8


def test_time_can_be_advanced_without_rows(tumbling: Results) -> None:
    """No row was past 40 s when the row of 42 s came."""
    assert row("a", 7, 42) in tumbling["late"]


def test_the_watermark_follows_rows_that_are_filtered_after_event_time(lane: Settings) -> None:
    rows = ps.from_items([], SCHEMA).named("rows").event_time("ts", "5s").filter("v > 0")
    stream = rows.key_by("k").window(ps.tumbling("10s")).aggregate(total="sum(v)")
    pipeline = ps.Pipeline("p", stream.to(ps.collect()), stream.side("late").to(ps.collect()).named("late"))
    given = [row("a", 1, 1), row("z", -1, 100), EOF, row("a", 2, 2)]
    out = run_to_end(pipeline, {"rows": given}, settings=lane)
    assert_rows(out["late"], [row("a", 2, 2)])
    assert [r["total"] for r in out["collect"]] == [1]


def test_a_row_that_comes_when_some_of_its_sliding_windows_have_closed_is_in_the_others(lane: Settings) -> None:
    stream = windowed(ps.sliding("20s", "10s"))
    pipeline = ps.Pipeline("p", stream.to(ps.collect()), stream.side("late").to(ps.collect()).named("late"))
    # The watermark is 35 s when the row of 24 s comes: one of its windows ended at 30 s, the other one ends at 40 s.
    out = run_to_end(pipeline, {"rows": [row("b", 1, 40), EOF, row("a", 2, 24)]}, settings=lane)
    assert_rows(out["collect"], [result("b", 30, 50, 1, 1), result("b", 40, 60, 1, 1), result("a", 20, 40, 2, 1)])
    assert out["late"] == []
    assert out.counts["aggregate"].used == 2


def test_which_windows_of_a_row_have_closed_does_not_depend_on_other_windows_of_the_query(lane: Settings) -> None:
    """Spark closes windows by one watermark, which the other window holds back."""
    sliding = windowed(ps.sliding("20s", "10s"))
    slow = ps.from_items([], SCHEMA).named("rows").event_time("ts", "60s").window(ps.tumbling("10s"))
    pipeline = ps.Pipeline(
        "p", sliding.to(ps.collect()), slow.aggregate(n="count(*)").named("slow").to(ps.collect()).named("slow")
    )
    out = run_to_end(pipeline, {"rows": [row("b", 1, 40), EOF, row("a", 2, 24)]}, settings=lane)
    assert_rows(out["collect"], [result("b", 30, 50, 1, 1), result("b", 40, 60, 1, 1), result("a", 20, 40, 2, 1)])
    assert sum(one["n"] for one in out["slow"]) == 2


def test_a_sliding_window_counts_a_row_in_each_window(lane: Settings) -> None:
    pipeline = ps.Pipeline("p", windowed(ps.sliding("10s", "5s")).to(ps.collect()))
    out = run_to_end(pipeline, {"rows": [row("a", 1, 7)]}, settings=lane)
    assert_rows(out["collect"], [result("a", 0, 10, 1, 1), result("a", 5, 15, 1, 1)])


@pytest.fixture(scope="module")
def patient(lane: Settings) -> Results:
    """Windows that begin three seconds after each ten, with lateness."""
    stream = windowed(ps.tumbling("10s", offset="3s"), allowed_lateness="30s", late_to=ps.collect())
    pipeline = ps.Pipeline("p", stream.to(ps.collect()).named("out"))
    rows = [row("a", 1, 3), row("a", 5, 2.5), row("a", 1, 43), EOF, row("a", 2, 4), row("a", 1, 63), EOF]
    return run_to_end(pipeline, {"rows": [*rows, row("a", 4, 5)]}, settings=lane)


def test_an_offset_moves_where_windows_begin(patient: Results) -> None:
    assert result("a", -7, 3, 5, 1) in patient["out"]
    assert {r["window_start"] for r in patient["out"]} == {at(-7), at(3), at(43), at(63)}


def test_allowed_lateness_keeps_a_window_open_longer(patient: Results) -> None:
    assert_rows(patient["collect"], [row("a", 4, 5)])
    assert {(r["window_start"], r["total"]) for r in patient["out"]} >= {(at(3), 3), (at(43), 1), (at(63), 1)}


@pytest.mark.slow
def test_a_run_with_a_crash_gives_what_one_without_gives(lane: Settings) -> None:
    stream = windowed(ps.tumbling("10s"))
    pipeline = ps.Pipeline("p", stream.to(ps.collect()), stream.side("late").to(ps.collect()).named("late"))
    chance = random.Random(7)
    rows: list[Any] = [row(chance.choice("abc"), chance.randrange(9), chance.randrange(90)) for _ in range(60)]
    crashed = run_to_end(pipeline, {"rows": [*rows[:20], Crash(), *rows[20:40], Crash(), *rows[40:]]}, settings=lane)
    calm = run_to_end(pipeline, {"rows": [*rows[:20], EOF, *rows[20:40], EOF, *rows[40:]]}, settings=lane)
    assert_rows(crashed["collect"], calm["collect"])
    assert_rows(crashed["late"], calm["late"])
    assert crashed.counts == calm.counts


# In short in test_branches.py.
@pytest.mark.slow
def test_windows_chain(lane: Settings) -> None:
    first = windowed(ps.tumbling("10s"))
    second = first.window(ps.tumbling("20s")).aggregate(total="sum(total)").named("second")
    pipeline = ps.Pipeline("p", second.to(ps.collect()))
    out = run_to_end(pipeline, {"rows": [row("a", 1, 1), row("b", 2, 11), row("a", 4, 21)]}, settings=lane)
    expected = [{"window_start": at(0), "window_end": at(20), "total": 3}]
    assert_rows(out["collect"], [*expected, {"window_start": at(20), "window_end": at(40), "total": 4}])


def test_updates_show_a_window_before_it_is_final(settings: Settings) -> None:
    pipeline = ps.Pipeline("p", windowed(ps.tumbling("10s"), emit="updates").to(ps.collect()))
    out = run_to_end(pipeline, {"rows": [row("a", 1, 1), EOF, row("a", 2, 2)]}, settings=settings)
    assert [r["total"] for r in out["collect"]] == [1, 3]


# In short in test_all_windows.py, where both kinds are outputs of one pipeline.
@pytest.mark.slow
def test_final_and_updating_results_mix_in_one_pipeline(settings: Settings) -> None:
    rows = ps.from_items([], SCHEMA).named("rows").event_time("ts", "5s")
    final = rows.window(ps.tumbling("10s")).aggregate(n="count(*)").named("windows")
    running = rows.key_by("k").aggregate(n="count(*)").named("running")
    pipeline = ps.Pipeline("p", final.to(ps.collect()).named("final"), running.to(ps.collect()).named("so-far"))
    assert "two queries" in pipeline.explain()
    out = run_to_end(pipeline, {"rows": [row("a", 1, 1), EOF, row("a", 1, 2)]}, settings=settings)
    assert [r["n"] for r in out["final"]] == [2]
    assert [r["n"] for r in out["so-far"]] == [1, 2]


# In short on the session that all tests share, without a session of one core.
@pytest.mark.parametrize("cores", [None, pytest.param(1, marks=pytest.mark.slow)])
def test_late_rows_of_an_epoch_of_several_chunks_are_all_kept(
    cores: int | None, settings: Settings, tmp_path: Path
) -> None:
    """Promise 2: no row vanishes, however large an epoch is."""
    folder, late, many = tmp_path / "rows", tmp_path / "late", 2_500_000
    folder.mkdir()
    newest = pa.array([10**12], pa.timestamp("us", "UTC"))
    pq.write_table(pa.table({"v": pa.array([-1], pa.int64()), "ts": newest}), folder / "1.parquet")
    rows = ps.read_files(str(folder), format="parquet").event_time("ts", "0s")
    counted = rows.window(ps.tumbling("10s"), late_to=ps.files(str(late))).aggregate(n="count(*)")
    pipeline = ps.Pipeline("big", counted.to(ps.collect()))
    on = at_parallelism(settings, 1) if cores is None else replace(settings, parallelism=cores)
    big = replace(on, epoch_rows=10 * many)
    pipeline.run(until="drained", checkpoint=tmp_path / "c", settings=big)
    times = pa.array(np.arange(many) % 1000, pa.timestamp("us", "UTC"))
    pq.write_table(pa.table({"v": np.arange(many), "ts": times}), folder / "2.parquet")

    report = pipeline.run(until="drained", checkpoint=tmp_path / "c", settings=big)

    assert report.counts["aggregate"].late == report.rows["late"] == many
    assert np.array_equal(np.sort(pq.read_table(late).column("v").to_numpy()), np.arange(many))


@pytest.fixture(scope="module", params=[False, pytest.param(True, marks=pytest.mark.slow)], ids=["epochs", "epoch"])
def sessions(lane: Settings, request: pytest.FixtureRequest) -> Results:
    """Sessions that Spark has itself, and those that are cut at a length."""
    keyed = ps.from_items([], SCHEMA).named("rows").event_time("ts", "0s").key_by("k")
    windows = {"plain": ps.session("10s"), "cut": ps.session("10s", max_length="1h")}
    results = {name: keyed.window(one).aggregate(total="sum(v)", n="count(*)") for name, one in windows.items()}
    outputs = [one.named(f"of-{name}").to(ps.collect()).named(name) for name, one in results.items()]
    # The row of "b" brings the watermark to where the session of "a" ends; the next row of "a" is not late there.
    first = [row("a", 1, 0), row("b", 2, 10), row("c", 1, 0), row("c", 2, 6)]
    epochs = [first, [row("a", 3, 10), row("c", 4, 12)], [row("a", 4, 20.000001), row("c", 8, 40)]]
    given = list(chain(*epochs)) if request.param else [*epochs[0], EOF, *epochs[1], EOF, *epochs[2]]
    return run_to_end(ps.Pipeline("p", *outputs), {"rows": given}, settings=lane)


def test_rows_exactly_a_gap_apart_are_one_session_wherever_epochs_end(sessions: Results) -> None:
    expected = [result("a", 0, 20, 4, 2), result("a", 20.000001, 30.000001, 4, 1), result("b", 10, 20, 2, 1)]
    for name in ("plain", "cut"):
        assert_rows([one for one in sessions[name] if one["k"] != "c"], expected)


def test_a_session_ends_after_its_gap(sessions: Results) -> None:
    for name in ("plain", "cut"):
        found = [one for one in sessions[name] if one["k"] == "c"]
        assert_rows(found, [result("c", 0, 22, 7, 3), result("c", 40, 50, 8, 1)])


def test_times_that_no_window_can_hold_are_rejected_with_the_bound(lane: Settings, tmp_path: Path) -> None:
    first, end = -62_104_060_800_000_000, 253_339_228_800_000_000
    outside = [-(2**63) + 1, -70_000_000_000_000_000, first - 1, end, 9_000_000_000_000_000_000, 2**63 - 1, None]
    inside = [first, -1, 0, 1_767_225_600_000_000, end - 1]
    times = pa.array([*outside, *inside], pa.int64()).cast(pa.timestamp("us", "UTC"))
    pq.write_table(pa.table({"k": ["a"] * len(times), "ts": times}), tmp_path / "rows.parquet")
    rows = ps.read_files(str(tmp_path), format="parquet", schema="k string, ts timestamp").event_time("ts", "5s")
    counts = rows.key_by("k").window(ps.tumbling("10s")).aggregate(n="count(*)")
    bad = ps.collect()
    bad.name = "bad"
    pipeline = ps.Pipeline("p", counts.to(ps.collect()), rejected_to=bad)
    out = run_to_end(pipeline, {}, settings=lane)
    assert (out.counts["event_time"].rejected, out.counts["aggregate"].used) == (len(outside), len(inside))
    assert sum(r["n"] for r in out["collect"]) == len(inside)
    reasons = sorted(r["reason"].partition("event time 'ts' is ")[2].partition(",")[0] for r in out["bad"])
    early, late = "before 0002-01-01T00:00:00Z", "not before 9998-01-01T00:00:00Z"
    assert reasons == [*[early] * 3, *[late] * 3, "null"]


def test_long_windows_leave_more_room_at_the_ends_of_time(settings: Settings) -> None:
    rows = ps.from_items([], SCHEMA).named("rows").event_time("ts", "5s")
    counts = rows.key_by("k").window(ps.tumbling("1000d")).aggregate(n="count(*)")
    years = (2, 4, 1950, 2026, 9990, 9997)
    given = [{"k": "a", "v": year, "ts": datetime(year, 6, 1, tzinfo=UTC)} for year in years]
    out = run_to_end(ps.Pipeline("p", counts.to(ps.collect())), {"rows": given}, settings=settings)
    assert (sum(r["n"] for r in out["collect"]), out.counts["event_time"].rejected) == (4, 2)
