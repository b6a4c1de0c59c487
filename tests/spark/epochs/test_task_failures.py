"""Promise: a task that ends in the middle of its partition commits nothing of it; its retry writes the whole."""

from __future__ import annotations

import os
import select
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql import DataFrame

import penstock as ps
from penstock.contracts import Offsets
from penstock.errors import RunError, SparkFailed
from penstock.plan.operators.stateless import Write
from penstock.settings import Settings
from penstock.spark.epochs import sink_tasks
from tests.conftest import at_parallelism
from tests.spark.sink_targets import COMMITTED_BY_TASKS, KINDS, Target, Targets

# Every sink whose tasks commit shares one mechanism; a database and a topic are in the tests of two outputs.
OTHERS = ["postgresql", "sqlite", "topic"]
ALWAYS = [kind for kind in COMMITTED_BY_TASKS if kind not in OTHERS]
SCHEMA = "k string, n bigint, filler string"
# Spark sends rows to a Python worker in pieces of 64 KiB: if batches are smaller, nothing arrives before a failure.
FILLER = "x" * 800
ROWS, EPOCHS = 6_000, 2
BATCHES_BEFORE_FAILURE = 3
PATIENCE_SECONDS = 30
Rows = Iterator[pa.RecordBatch]


@pytest.fixture
def short(settings: Settings, small_batches: int) -> Settings:
    """A few epochs, whose partitions have many Arrow batches at any parallelism."""
    assert 2 * BATCHES_BEFORE_FAILURE * small_batches < ROWS / EPOCHS / 3
    return replace(settings, epoch_rows=ROWS // EPOCHS)


@pytest.fixture
def targets(tmp_path: Path, request: pytest.FixtureRequest) -> Targets:
    return Targets(tmp_path, request)


def given() -> list[dict[str, Any]]:
    return [{"k": f"k{n % 7}", "n": n, "filler": FILLER} for n in range(ROWS)]


def assert_each_row_is_there_once(target: Target) -> None:
    found = sorted(row["n"] for row in target.rows())
    assert len(found) == ROWS
    assert found == list(range(ROWS))


def fails_once(markers: Path, how: str) -> Callable[[Rows], Rows]:
    """Return a step that fails once in each of its partitions, after their first batches."""

    def step(batches: Rows) -> Rows:
        context = TaskContext.get()
        assert context is not None
        marker = f"{markers}/{context.partitionId()}"
        for number, batch in enumerate(batches):
            if number == BATCHES_BEFORE_FAILURE and not os.path.exists(marker):
                open(marker, "x").close()
                os._exit(1) if how == "exit" else _raise()
            yield batch

    return step


def _raise() -> None:
    raise RuntimeError("this task fails in the middle of its partition")


@pytest.fixture
def failing_last_stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Have the stage in which sinks get their rows fail once in each partition, as a lost shuffle file lets it fail."""

    def with_failures(how: str) -> Path:
        markers = tmp_path / "failed"
        markers.mkdir()
        placed = sink_tasks.to_sink_partitions

        def failing(frame: DataFrame, write: Write, cores: int, **options: Any) -> DataFrame:
            rows = placed(frame, write, cores, **options)
            return rows.mapInArrow(fails_once(markers, how), rows.schema)

        monkeypatch.setattr(sink_tasks, "to_sink_partitions", failing)
        return markers

    return with_failures


@pytest.mark.parametrize("kind", [*ALWAYS, *(pytest.param(kind, marks=pytest.mark.slow) for kind in OTHERS)])
def test_a_task_that_fails_after_its_first_batches_is_retried_and_every_row_is_there_once(
    kind: str, targets: Targets, short: Settings, failing_last_stage: Callable[[str], Path], tmp_path: Path
) -> None:
    markers = failing_last_stage("raise")
    target = targets.make(kind)
    pipeline = ps.Pipeline("retried", ps.from_items(given(), SCHEMA).to(target.sink))
    pipeline.run(until="ended", checkpoint=tmp_path / "checkpoint", settings=short)
    assert list(markers.iterdir()), "tasks failed"
    assert_each_row_is_there_once(target)


@pytest.mark.parametrize(
    ("kind", "parallelism"),
    [
        ("topic", 3),
        pytest.param("sqlite", 1, marks=pytest.mark.slow),
        pytest.param("sqlite", 3, marks=pytest.mark.slow),
        pytest.param("topic", 1, marks=pytest.mark.slow),
    ],
)
def test_a_worker_that_dies_in_the_last_stage_of_two_outputs_leaves_every_row_once(
    kind: str,
    parallelism: int,
    targets: Targets,
    short: Settings,
    failing_last_stage: Callable[[str], Path],
    tmp_path: Path,
) -> None:
    markers = failing_last_stage("exit")
    one, two = targets.make(kind, "one"), targets.make("user", "two")
    rows = ps.from_items(given(), SCHEMA)
    pipeline = ps.Pipeline("exited", rows.to(one.sink), rows.to(two.sink))
    pipeline.run(until="ended", checkpoint=tmp_path / "checkpoint", settings=at_parallelism(short, parallelism))
    assert len(list(markers.iterdir())) > 1
    assert_each_row_is_there_once(one)
    assert_each_row_is_there_once(two)


class Exits(ps.Source):
    """A source whose Python ends where Spark plans with it, as if it was killed there."""

    name, schema = "exits", ps.Schema(SCHEMA)

    def __init__(self) -> None:
        self.driver = os.getpid()

    def __setstate__(self, state: dict[str, Any]) -> None:
        if os.getpid() != state["driver"]:
            os._exit(1)
        self.__dict__ |= state

    def latest(self, start: Offsets, max_rows: int | None) -> Offsets:
        return {"0": 1}


def test_a_python_that_dies_while_spark_plans_is_an_error_after_which_the_job_can_be_run_again(
    targets: Targets, settings: Settings, tmp_path: Path
) -> None:
    pipeline = ps.Pipeline("planned", ps.read(Exits()).to(targets.make("files").sink))
    with pytest.raises(SparkFailed, match="a Python worker of Spark died") as failed:
        pipeline.run(until="drained", checkpoint=tmp_path / "checkpoint", settings=settings)
    assert failed.value.transient


def test_a_task_that_is_killed_because_a_sibling_failed_commits_nothing(
    targets: Targets, short: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = targets.make("user", "fails"), targets.make("user", "killed")
    # The task of the one and the first task of the other run at the same time.
    two.sink.partitions = 1
    placed, repaired = sink_tasks.to_sink_partitions, tmp_path / "repaired"
    has_rows, never = (tmp_path / name for name in ("has-rows", "never"))
    for path in (has_rows, never):
        os.mkfifo(path)

    def failing(frame: DataFrame, write: Write, cores: int, **options: Any) -> DataFrame:
        rows = placed(frame, write, cores, **options)
        step = fails_beside(has_rows) if write.sink is one.sink else stalls(has_rows, never)
        return rows if repaired.exists() else rows.mapInArrow(step, rows.schema)

    monkeypatch.setattr(sink_tasks, "to_sink_partitions", failing)
    rows = ps.from_items(given(), SCHEMA)
    pipeline = ps.Pipeline("siblings", rows.to(two.sink), rows.to(one.sink))
    with pytest.raises(RunError, match="fails in the middle"):
        pipeline.run(until="ended", checkpoint=tmp_path / "checkpoint", settings=short)
    repaired.touch()
    pipeline.run(until="ended", checkpoint=tmp_path / "checkpoint", settings=short)
    assert_each_row_is_there_once(one)
    assert_each_row_is_there_once(two)


def stalls(has_rows: Path, never: Path) -> Callable[[Rows], Rows]:
    """Return a step that passes its first batches on, says so, and then waits until it is killed."""

    def step(batches: Rows) -> Rows:
        for number, batch in enumerate(batches):
            if number == BATCHES_BEFORE_FAILURE:
                os.write(os.open(has_rows, os.O_RDWR), b".")
                wait_for_data(never)
            yield batch

    return step


def fails_beside(has_rows: Path) -> Callable[[Rows], Rows]:
    """Return a step that fails when the other task is in the middle of its partition."""

    def step(batches: Rows) -> Rows:
        wait_for_data(has_rows)
        _raise()
        yield from batches

    return step


def wait_for_data(fifo: Path) -> None:
    """Wait until something is in a FIFO, which stays there as long as somebody has it open."""
    select.select([os.open(fifo, os.O_RDWR)], [], [], PATIENCE_SECONDS)


@pytest.mark.parametrize("kind", [KINDS[0], *(pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS[1:])])
def test_a_map_whose_worker_dies_once_in_an_epoch_leaves_every_row_once(
    kind: str, targets: Targets, short: Settings, tmp_path: Path
) -> None:
    """Without a shuffle between them the map and the sink share a stage."""
    target = targets.make(kind)
    marker = str(tmp_path / "died")

    def dies_once(row: dict[str, Any]) -> dict[str, Any]:
        if row["n"] == ROWS - 10 and not os.path.exists(marker):
            open(marker, "x").close()
            os._exit(1)
        return row

    mapped = ps.from_items(given(), SCHEMA).map(dies_once, SCHEMA)
    ps.Pipeline("mapped", mapped.to(target.sink)).run(until="ended", checkpoint=tmp_path / "checkpoint", settings=short)
    assert os.path.exists(marker)
    assert_each_row_is_there_once(target)
