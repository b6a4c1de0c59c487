"""Promise: names that nobody gave are stable: a branch more or less moves no state, no count and no row."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.plan.naming import node_name
from penstock.settings import Settings
from penstock.spark.checkpoints.state.reader import read_state
from penstock.storage.folders import folder
from penstock.testing import run_to_end
from tests.spark.checkpoints.test_migration import Job, expected, summed


@pytest.fixture
def job(tmp_path: Path, settings: Settings) -> Job:
    return Job(tmp_path, settings)


@pytest.mark.slow
def test_a_branch_with_the_same_method_comes_and_goes_and_state_and_counts_stay(job: Job, settings: Settings) -> None:
    rows = job.rows()
    # Source and sink have one name, and so they have in the checkpoint.
    sums = lambda: job.out(summed(rows), "rows")  # noqa: E731
    large = lambda: job.out(summed(rows.filter("v >= 15"), "20s"), "large")  # noqa: E731
    first = job.run(sums())
    assert first.report().counts["aggregate"].rows_in == 10
    assert first.report().counts["sink rows"].rows_in == first.report().rows["rows"] == 0
    second = job.run(large(), sums())
    assert "state of 'aggregate-rows' kept, state of 'aggregate-large' starts empty" in second.notice
    counts = second.report().counts
    assert (counts["aggregate-rows"].rows_in, counts["aggregate-large"].rows_in) == (20, 5)
    assert (counts["rows"].rows_in, counts["filter"].filtered) == (20, 5)
    assert "aggregate" not in counts
    assert {row["k"]: row["n"] for row in read_state(folder(job.path / "c"), settings, node="aggregate-rows").rows} == {
        "a": 10,
        "b": 10,
    }
    third = job.run(sums(), until="ended", allow_drop=["aggregate-large"])
    assert "state of 'aggregate' kept" in third.notice
    assert third.report().counts["aggregate"].rows_in == 30
    assert job.wrote("rows", "k, n, total") == expected(range(30))


@pytest.mark.slow
def test_a_job_continues_from_a_checkpoint_from_before_the_namespaces(job: Job) -> None:
    rows = job.rows()
    outputs = lambda: (job.out(summed(rows), "sums"), job.out(rows.event_time("ts", "2s"), "timed"))  # noqa: E731
    job.run(*outputs())
    older = {"event_time-sums": "event_time", "event_time-timed": "event_time_2"}
    _as_before(job.path / "c", older)
    second = job.run(*outputs(), until="ended")
    assert second.notice is None
    counts = second.report().counts
    assert {name: counts[name].rows_in for name in counts} == {
        "rows": 20,
        "event_time-sums": 20,
        "event_time-timed": 20,
        "aggregate": 20,
        "sums": 2,
        "timed": 20,
    }
    assert job.wrote("sums", "k, n, total") == expected(range(20))


def _as_before(checkpoint: Path, older: dict[str, str]) -> None:
    """Write a checkpoint's plan and records by the names that nodes had when there was one namespace."""
    identity = json.loads((checkpoint / "penstock.json").read_text())
    kinds = {id: node["kind"] for id, node in identity["plan"].items()}
    names = {id: older.get(id, node_name(kind, id)) for id, kind in kinds.items()}
    for node in identity["plan"].values():
        node.pop("named")
        node["inputs"] = [names[one] for one in node["inputs"]]
    identity["plan"] = {names[id]: node for id, node in identity["plan"].items()}
    identity["times"] = {older.get(name, name): lane for name, lane in identity["times"].items()}
    (checkpoint / "penstock.json").write_text(json.dumps(identity))
    for record in (checkpoint / "epochs").glob("*/*.json"):
        totals = json.loads(record.read_text())
        totals["counts"] = {names[id]: counted for id, counted in totals["counts"].items()}
        record.write_text(json.dumps(totals))
        record.with_name(f".{record.name}.crc").unlink(missing_ok=True)


@pytest.mark.parametrize("lane", ["auto", "spark"])
def test_topic_trades_into_table_trades_with_late_and_rejected_rows(lane: Any, settings: Settings) -> None:
    trades = ps.read_topic("trades", schema="k string, v bigint, ts timestamp")
    counted = trades.event_time("ts", "1s").key_by("k").window(ps.tumbling("10s"), late_to=ps.topic("k"))
    small = trades.filter("v < 3")
    pipeline = ps.Pipeline(
        "names",
        counted.aggregate(n="count(*)").named("trades").to(ps.table("trades", connection="sqlite:///x.db")),
        small.to(ps.topic("filter")),
        rejected_to=ps.topic("bad"),
    )
    rows = [{"k": "a", "v": n, "ts": f"2026-01-01T00:00:{n:02}Z"} for n in range(6)]
    given = [*rows, b"{", ps.testing.AdvanceTime("2026-01-01T00:01:00Z"), rows[0]]
    found = run_to_end(pipeline, {"trades": given}, settings=replace(settings, lane=lane))
    assert [(row["k"], row["n"]) for row in found["trades"]] == [("a", 6)]
    assert len(found["k"]) == 1
    assert [row["node"] for row in found["bad"]] == ["trades"]
    assert found.counts["filter"].filtered == 3
    assert found.counts["sink filter"].rows_in == len(found["filter"]) == 4
    assert found.counts["trades"].rejected == 1
    assert found.counts["aggregate trades"].late == 1
    assert found.counts["sink trades"].rows_in == 1
