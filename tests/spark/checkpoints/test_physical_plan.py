"""A run, its checkpoint and explain have one physical plan."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import penstock as ps
from penstock.plan.physical.lanes import Lanes
from penstock.plan.physical.plan import PhysicalPlan
from penstock.settings import Settings
from penstock.spark.checkpoints.layout import read_layout
from penstock.spark.checkpoints.physical_plan import PLAN, plan_on, read_plan
from penstock.spark.runs.micro_batch import MicroBatchRun
from penstock.storage.folders import folder
from tests.conftest import at

SCHEMA = "k string, n bigint, ts timestamp not null"
ROWS = [{"k": f"k{n % 2}", "n": n, "ts": at(n)} for n in range(12)]


def pipeline(path: Path, *names: str) -> ps.Pipeline:
    """Outputs that wait for other delays: new ones get a query each."""
    outputs = []
    for number, name in enumerate(names):
        timed = ps.from_items(ROWS, SCHEMA).named("rows").filter("n >= 0").event_time("ts", f"{number + 1}s")
        counts = timed.key_by("k").window(ps.tumbling("5s")).aggregate(n="count(*)").named(f"counts-{name}")
        outputs.append(counts.to(ps.files(str(path / name))).named(name))
    return ps.Pipeline("p", *outputs)


def plan_of(run: MicroBatchRun) -> PhysicalPlan:
    run.begin()
    run.wait()
    return run.plan


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory, settings: Settings) -> tuple[Path, MicroBatchRun, list[Lanes]]:
    """A job of two queries that has run: its folder, the run, and the lanes that it was compiled for."""
    path: Path = tmp_path_factory.mktemp("ran")
    job = pipeline(path, "a", "b")
    run = MicroBatchRun(job.name, job.graph, path / "checkpoint", settings, "drained")
    compiled = [query.context.lanes for query in run._compiled]
    plan_of(run)
    return path, run, compiled


def test_explain_compiler_runner_and_checkpoint_read_the_same_plan(
    ran: tuple[Path, MicroBatchRun, list[Lanes]], settings: Settings
) -> None:
    path, run, compiled = ran
    job, where, plan = pipeline(path, "a", "b"), path / "checkpoint", run.plan
    assert plan == job.physical_plan(settings) == read_plan(folder(where))
    assert [query.name for query in plan.queries] == [query.name for query in run._compiled]
    assert {lanes.lane(node) for lanes in compiled for node in job.graph.nodes if node.kind == "event_time"} == {
        node.lane for node in plan.event_times
    }
    assert read_layout(folder(where)).explain == job.explain(settings)
    assert sorted(folder(where / "queries").names()) == sorted(query.name for query in plan.queries)


def test_a_checkpoint_keeps_its_queries_and_the_plan_says_so(
    ran: tuple[Path, MicroBatchRun, list[Lanes]], settings: Settings
) -> None:
    path, run, _ = ran
    where, first = path / "checkpoint", run.plan
    job, other_way_round = pipeline(path, "a", "b"), pipeline(path, "b", "a")
    fresh = {query.name: query.sinks for query in other_way_round.physical_plan(settings).queries}
    again = plan_of(MicroBatchRun(job.name, job.graph, where, settings, "drained"))
    assert again == first
    stored = plan_on(folder(where), job.name, other_way_round.graph, settings).queries
    assert {query.name: query.sinks for query in stored} == {query.name: query.sinks for query in first.queries}
    assert fresh != {query.name: query.sinks for query in first.queries}


def test_a_checkpoint_without_a_stored_plan_goes_on_and_gets_one(tmp_path: Path, settings: Settings) -> None:
    """Checkpoints of before there was a physical plan have none."""
    where, job = tmp_path / "checkpoint", pipeline(tmp_path, "a")
    first = plan_of(MicroBatchRun(job.name, job.graph, where, replace(settings, lane="spark"), "drained"))
    (where / PLAN).unlink()
    assert read_plan(folder(where)) is None
    again = plan_of(MicroBatchRun(job.name, job.graph, where, replace(settings, lane="spark"), "drained"))
    assert again == first == read_plan(folder(where))
