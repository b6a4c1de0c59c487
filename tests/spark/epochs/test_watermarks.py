"""Watermarks: each branch keeps its own, sources that meet wait for one another, and idle ones are left out."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.settings import Settings
from penstock.spark.checkpoints.inspect import inspect
from penstock.spark.checkpoints.savepoints import create_savepoint
from penstock.storage.folders import folder
from penstock.testing import EOF, AdvanceClock, Crash, run_to_end
from tests.conftest import at

SCHEMA = "k string, v bigint, ts timestamp"


@pytest.fixture(params=["auto", pytest.param("spark", marks=pytest.mark.slow)])
def lane(request: pytest.FixtureRequest, settings: Settings) -> Settings:
    return replace(settings, lane=request.param)


def row(v: int, seconds: float, k: str = "a") -> dict[str, Any]:
    return {"k": k, "v": v, "ts": at(seconds)}


def source(name: str) -> ps.Stream:
    return ps.from_items([], SCHEMA).named(name)


def counted(stream: ps.Stream, name: str, lateness: str = "0s") -> list[ps.Output]:
    """Count rows in windows of ten seconds; late ones have an output too."""
    windows = stream.key_by("k").window(ps.tumbling("10s"), allowed_lateness=lateness)
    counts = windows.aggregate(n="count(*)", last="max(v)").named(name)
    return [counts.to(ps.collect()).named(f"to-{name}"), counts.side("late").to(ps.collect()).named(f"late-{name}")]


def seen(rows: list[dict[str, Any]]) -> list[int]:
    return sorted(one["v"] for one in rows)


# The first epoch reaches second 100. In the second, row 1 is late after 5 s of delay, row 2 after 50 s too.
ROWS = [row(0, 100), EOF, row(1, 60), row(2, 20), row(3, 101), Crash(), row(4, 61), row(5, 200)]


@pytest.mark.slow
def test_branches_with_other_delays_or_lateness_keep_their_own_late_rows(lane: Settings) -> None:
    rows = source("rows")
    short, long = rows.event_time("ts", "5s"), rows.event_time("ts", "50s")
    outputs = [*counted(short, "short"), *counted(long, "long"), *counted(short, "patient", lateness="45s")]
    out = run_to_end(ps.Pipeline("p", *outputs), {"rows": ROWS}, settings=lane)
    assert seen(out["late-short"]) == [1, 2, 4]
    assert seen(out["late-long"]) == seen(out["late-patient"]) == [2]
    assert [out.counts[name].rows_in for name in ("short", "long", "patient")] == [6, 6, 6]
    assert [one["n"] for one in sorted(out["to-long"], key=lambda one: one["window_start"])] == [2, 2, 1]


def test_the_smallest_watermark_counts_where_sources_meet_and_each_ones_own_before(settings: Settings) -> None:
    left, right = source("left").event_time("ts", "5s"), source("right").event_time("ts", "50s")
    outputs = [*counted(left.union(right), "met"), *counted(left, "left-only")]
    inputs = {"left": [row(0, 100), EOF, row(1, 20), row(2, 60)], "right": [row(10, 80), EOF, row(11, 31)]}
    out = run_to_end(ps.Pipeline("p", *outputs), inputs, settings=settings)
    # The right source is at second 80, less 50: only what ended by then is late for both together.
    assert seen(out["late-met"]) == [1]
    assert seen(out["late-left-only"]) == [1, 2]
    assert out.counts["union"].rows_in == 5


@pytest.mark.slow
def test_an_idle_source_is_left_out_until_it_gives_rows_again(lane: Settings) -> None:
    left = source("left").event_time("ts", "5s")
    right = source("right").event_time("ts", "5s", idle_after="30s")
    inputs = {
        "left": [row(0, 10), row(1, 100), AdvanceClock("31s"), row(2, 15), Crash()],
        "right": [row(10, 10), EOF, row(11, 96), row(12, 50), Crash()],
    }
    out = run_to_end(ps.Pipeline("p", *counted(left.union(right), "met")), inputs, settings=lane)
    # After 31 s without rows on the right, second 95 counts: what is older is late, on both sides, and nothing else.
    assert seen(out["late-met"]) == [2, 12]
    assert out.counts["met"].late == 2


def test_a_run_tells_the_watermark_of_this_epoch_and_who_holds_it_back(tmp_path: Path, settings: Settings) -> None:
    left = ps.from_items([row(0, 10), row(1, 100)], SCHEMA).named("left").event_time("ts", "5s")
    right = ps.from_items([row(10, 30)], SCHEMA).named("right").event_time("ts", "10s", idle_after="1h")
    outputs = counted(left.union(right), "met", lateness="3s")
    pipeline = ps.Pipeline("p", *outputs, rejected_to=ps.files(str(tmp_path / "rejected"), format="json"))
    run = pipeline.start(until="drained", checkpoint=tmp_path / "checkpoint", settings=settings)
    run.wait()
    (watermark,) = run.progress().watermarks
    assert watermark.at == run.progress().watermark == run.report().watermark == at(20)
    assert watermark.held_by is not None
    assert (watermark.held_by.source, watermark.held_by.newest) == ("right", at(30))
    # The window of second 10, over at second 20, is open for three more, and so are those of seconds 30 and 100.
    assert run.progress().state_rows == 3
    (kept,) = inspect(folder(tmp_path / "checkpoint")).queries.values()
    saved = create_savepoint(folder(tmp_path / "checkpoint"), folder(tmp_path / "savepoints")).queries["final"]
    assert kept.watermark == saved.watermark == at(20).isoformat(timespec="milliseconds")
    assert [*saved.ledger] == ["to-met", "late-met", "rejected"]


@pytest.mark.slow
def test_a_source_that_gives_nothing_after_a_restart_holds_back_no_more_than_before(
    tmp_path: Path, settings: Settings
) -> None:
    streams = []
    for name, seconds in (("left", 100), ("right", 150)):
        (tmp_path / name).mkdir()
        write(tmp_path / name / "first.json", seconds)
        streams.append(ps.read_files(str(tmp_path / name), schema=SCHEMA, format="json").event_time("ts", "5s"))
    made: list[Any] = []
    counts = streams[0].union(streams[1]).window(ps.tumbling("10s")).aggregate(n="count(*)")
    pipeline = ps.Pipeline("p", counts.to(ps.callback(lambda epoch, rows: made.extend(rows.to_pylist()))))
    pipeline.run(until="drained", checkpoint=tmp_path / "checkpoint", settings=settings)
    assert made == []
    write(tmp_path / "left" / "second.json", 200)
    pipeline.run(until="drained", checkpoint=tmp_path / "checkpoint", settings=settings)
    assert [one["window_start"] for one in made] == [at(100)]


def write(path: Path, seconds: float) -> None:
    path.write_text(json.dumps({"k": "a", "v": 1, "ts": at(seconds).isoformat()}) + "\n")


class _Both(ps.Process):
    output = "k string, v bigint"
    sides = {"again": "k string, v bigint"}

    def on_row(self, row: dict[str, Any], ctx: ps.Context) -> Any:
        made = {"k": row["k"], "v": row["v"]}
        return [made, ("again", made)]


def test_the_newest_time_is_known_where_one_operator_has_several_outputs(tmp_path: Path, settings: Settings) -> None:
    rows = ps.from_items([row(0, 100), row(1, 60)], SCHEMA).named("rows")
    both = rows.event_time("ts", "5s").key_by("k").process(_Both())
    outputs = [both.to(ps.collect()).named("main"), both.side("again").to(ps.collect()).named("again")]
    report = ps.Pipeline("p", *outputs).run(until="drained", checkpoint=str(tmp_path / "c"), settings=settings)
    assert report.rows == {"main": 2, "again": 2}
    assert report.watermark == at(95)
