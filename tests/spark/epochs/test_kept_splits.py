"""Promise: a sink that writes splits of its source as partitions has every row once, whatever a replay changes."""

from __future__ import annotations

import contextlib
import json
import tempfile
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame

import penstock as ps
from penstock.connectors.generators.items import ItemSource
from penstock.connectors.tables.sink import TableSink
from penstock.contracts import Offsets
from penstock.errors import CheckpointMismatch, RunError
from penstock.plan.operators.stateless import Write
from penstock.settings import Settings
from penstock.spark.epochs import sink_tasks
from penstock.spark.lowering import compile as compiler
from penstock.spark.tasks.offset_files import split_for
from penstock.storage.folders import folder
from tests.conftest import at_parallelism
from tests.connectors.kafka_topics import fresh
from tests.crash.outputs import of_files
from tests.databases import PostgresServer
from tests.spark.checkpoints.damaged_jobs import cut
from tests.waiting import wait_for

ROWS, EPOCH_ROWS = 15_000, 6_000
SCHEMA = "n bigint, k string"
Rows = Iterator[pa.RecordBatch]


@dataclass
class Job:
    """A job that appends to a table; a task of its second epoch can be made to fail once all others have committed."""

    path: Path
    url: str
    settings: Settings
    table: str
    epoch_rows: int = EPOCH_ROWS

    @property
    def rows(self) -> ps.Stream:
        return ps.from_items([{"n": n, "k": f"k{n % 7}"} for n in range(ROWS)], SCHEMA).named("rows")

    @property
    def written(self) -> ps.Output:
        return self.rows.to(ps.table(self.table, connection=self.url)).named("out")

    def run(self, cores: int, *outputs: ps.Output, allow_drop: Any = (), **options: Any) -> None:
        chosen = {"epoch_rows": self.epoch_rows, "max_lag_rows": 2 * EPOCH_ROWS}
        settings = replace(at_parallelism(self.settings, cores), **chosen)
        pipeline = ps.Pipeline("kept", *(outputs or (self.written,)), **options)
        running = pipeline.start(until="ended", checkpoint=self.path / "c", settings=settings, allow_drop=allow_drop)
        running.wait()

    def fail(
        self, cores: int, *outputs: ps.Output, row: int = 2 * EPOCH_ROWS - 1, earlier: int = EPOCH_ROWS, **options: Any
    ) -> None:
        """Stop in the middle of the epoch with this row, before which so many were written: the sink has a part."""
        step = fails_after_the_others(self.url, self.table, row, earlier)
        with failing_in_the_last_stage(step), pytest.raises(RunError, match="the others have committed"):
            self.run(cores, *outputs, **options)
        assert earlier < len(self.numbers) < earlier + EPOCH_ROWS

    @property
    def numbers(self) -> list[int]:
        with psycopg.connect(self.url) as database:
            return [n for (n,) in database.execute(f"SELECT n FROM {self.table} ORDER BY n".encode())]

    def split(self, epoch: int) -> int | None:
        """Return for how many tasks an epoch was split, if its splits were partitions."""
        (query,) = self.path.glob("c/**/queries/*/offsets")
        return split_for(folder(query.parent), epoch)


@contextlib.contextmanager
def failing_in_the_last_stage(step: Callable[[Rows], Rows]) -> Iterator[None]:
    """Insert a step before sinks get their rows."""
    placed = sink_tasks.to_sink_partitions

    def failing(frame: DataFrame, write: Write, cores: int, **options: Any) -> DataFrame:
        rows = placed(frame, write, cores, **options)
        return rows.mapInArrow(step, rows.schema)

    with pytest.MonkeyPatch.context() as broken:
        broken.setattr(sink_tasks, "to_sink_partitions", failing)
        yield


def fails_after_the_others(url: str, table: str, row: int, earlier: int) -> Callable[[Rows], Rows]:
    """Return a step that fails in the task with a row, once there are more rows than before its epoch."""

    def step(batches: Rows) -> Rows:
        for batch in batches:
            if row in batch.column("n").to_pylist():
                with psycopg.connect(url, autocommit=True) as database:
                    wait_for(lambda: _count(database, table) > earlier)
                message = "the others have committed"
                raise RuntimeError(message)
            yield batch

    return step


def _count(database: psycopg.Connection[Any], table: str) -> int:
    ((count,),) = database.execute(f"SELECT count(*) FROM {table}".encode()).fetchall()
    return int(count)


@pytest.fixture
def job(tmp_path: Path, shared_settings: Settings, postgres: PostgresServer) -> Job:
    return Job(tmp_path, postgres.url, shared_settings, f"kept_{uuid.uuid4().hex[:8]}")


@pytest.mark.parametrize(("before", "after"), [(3, 2), pytest.param(2, 3, marks=pytest.mark.slow)])
def test_an_epoch_that_a_sink_has_in_part_is_split_as_before_on_other_cores(job: Job, before: int, after: int) -> None:
    job.fail(before)
    job.run(after)
    assert job.numbers == list(range(ROWS))
    assert [job.split(epoch) for epoch in range(3)] == [before, before, after]


@pytest.mark.parametrize("damaged", ["offsets/1", pytest.param("commits/0", marks=pytest.mark.slow)])
def test_so_is_one_whose_offsets_or_commit_are_damaged(job: Job, damaged: str) -> None:
    job.fail(3)
    (path,) = job.path.glob(f"c/queries/*/{damaged}")
    cut(path)
    job.run(2)
    assert job.numbers == list(range(ROWS))


def test_an_epoch_that_was_distributed_by_content_stays_so_until_the_run_after(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after an upgrade: earlier versions always distributed rows by content."""
    with monkeypatch.context() as earlier:
        earlier.setattr(compiler, "keeps_splits", lambda *_: False)
        job.fail(2)
    job.run(2)
    assert job.numbers == list(range(ROWS))
    assert [job.split(epoch) for epoch in range(3)] == [None] * 3
    more = ps.from_items([{"n": n, "k": ""} for n in range(ROWS + 10)], SCHEMA).named("rows")
    job.run(2, more.to(ps.table(job.table, connection=job.url)).named("out"))
    assert job.numbers == list(range(ROWS + 10))
    assert job.split(3) == 2


def test_epochs_that_a_repair_runs_again_go_on_as_each_began(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first was distributed by content, the others by splits, and all have to run again."""
    first = ps.from_items([{"n": n, "k": f"k{n % 7}"} for n in range(EPOCH_ROWS)], SCHEMA).named("rows")
    with monkeypatch.context() as earlier:
        earlier.setattr(compiler, "keeps_splits", lambda *_: False)
        job.run(3, first.to(ps.table(job.table, connection=job.url)).named("out"))
    job.run(3)
    assert [job.split(epoch) for epoch in range(3)] == [None, 3, 3]
    for path in job.path.glob("c/queries/*/commits/[0-2]"):
        path.unlink()
    with pytest.raises(RunError, match="epoch 1 was started with its rows in other partitions") as error:
        job.run(2)
    assert error.value.transient
    job.run(2)
    assert job.numbers == list(range(ROWS))


@pytest.mark.parametrize("what", ["sink", pytest.param("source", marks=pytest.mark.slow)])
def test_an_epoch_whose_connectors_cannot_keep_its_splits_any_more_is_refused_for_good(
    job: Job, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    job.fail(3)
    with monkeypatch.context() as other:
        connector, promise = {"sink": (TableSink, "takes_splits"), "source": (ItemSource, "repeats_splits")}[what]
        other.setattr(connector, promise, False)
        with pytest.raises(CheckpointMismatch, match="epoch 1 was started with the splits of its source") as error:
            job.run(3)
        assert not error.value.transient
    job.run(3)
    assert job.numbers == list(range(ROWS))


def test_a_changed_plan_finishes_the_epoch_in_its_splits_or_says_that_it_cannot(job: Job) -> None:
    job.fail(3)
    second = job.rows.filter("n < 10").to(ps.files(str(job.path / "second"))).named("second")
    with pytest.raises(
        CheckpointMismatch, match=r"epoch 1 was started by the old version.*'out' may have some of its rows"
    ):
        job.run(2, job.written, second)
    # A node that is in no other output's way: the sink still gets whole splits of its one source.
    job.run(2, job.written, rejected_to=ps.files(str(job.path / "bad")))
    assert job.numbers == list(range(ROWS))
    job.run(2, job.written, second)
    assert job.numbers == list(range(ROWS))


@pytest.mark.slow
def test_a_plan_without_the_sink_goes_on(job: Job) -> None:
    job.fail(3)
    both = [job.rows.filter(f"n % 2 = {n}").to(ps.files(str(job.path / f"{n}"))).named(f"files{n}") for n in range(2)]
    job.run(2, *both)
    assert len(job.numbers) < 2 * EPOCH_ROWS
    written = [row["n"] for n in range(2) for row in of_files(job.path / f"{n}")]
    assert sorted(written) == list(range(EPOCH_ROWS, ROWS))


class Overloaded(ItemSource):
    """A source that can drop its oldest rows."""

    can_drop = True

    def drop_oldest(self, start: Offsets, rows: int) -> tuple[Offsets, int]:
        begin, end = int(start["0"]), int(self.latest(start, None)["0"])
        return {"0": end - rows}, end - rows - begin


@pytest.mark.parametrize("row", [9_000 - 1, pytest.param(3_000, marks=pytest.mark.slow)])
def test_a_changed_plan_drops_what_the_epoch_dropped(job: Job, row: int) -> None:
    source = Overloaded([{"n": n, "k": ""} for n in range(ROWS)], SCHEMA, "rows")
    out = ps.read(source).to(ps.table(job.table, connection=job.url)).named("out")
    options = {"overload": "drop"}
    job.fail(3, out, row=row, earlier=0, **options)
    job.run(2, out, rejected_to=ps.files(str(job.path / "bad")), **options)
    assert job.numbers == list(range(ROWS - 2 * EPOCH_ROWS, ROWS))


@pytest.mark.slow
def test_rows_that_are_accepted_to_be_mixed_are_distributed_by_content(job: Job) -> None:
    job.fail(3)
    second = job.rows.filter("n < 10").to(ps.files(str(job.path / "second"))).named("second")
    job.run(3, job.written, second, allow_drop=["out"])
    found = job.numbers
    assert set(found) <= set(range(ROWS))
    assert found[-1] == ROWS - 1
    assert [n for n in found if n >= 2 * EPOCH_ROWS] == list(range(2 * EPOCH_ROWS, ROWS))


Life = tuple[int, int]
LIVES = st.lists(st.tuples(st.integers(1, 4), st.integers(0, ROWS - 1)), min_size=1, max_size=3)
EXAMPLES = {
    "kind": st.sampled_from(["items", "csv", "parquet", "topic"]),
    "lives": LIVES,
    "epoch_rows": st.integers(3_000, ROWS),
}
QUIET = [HealthCheck.function_scoped_fixture]


Check = Callable[[str, list[Life], int], None]


@hypothesis_settings(max_examples=2, deadline=None, suppress_health_check=QUIET)
@given(**EXAMPLES)
def test_every_row_is_there_once_after_tasks_that_fail_at_any_parallelism(
    check: Check, kind: str, lives: list[Life], epoch_rows: int
) -> None:
    check(kind, lives, epoch_rows)


@pytest.mark.slow
@hypothesis_settings(max_examples=40, deadline=None, suppress_health_check=QUIET)
@given(**EXAMPLES)
def test_every_row_is_there_once_after_many_tasks_that_fail_at_any_parallelism(
    check: Check, kind: str, lives: list[Life], epoch_rows: int
) -> None:
    check(kind, lives, epoch_rows)


@pytest.fixture
def check(shared_settings: Settings, postgres: PostgresServer, event_log: str) -> Check:
    return partial(live_and_count, shared_settings, postgres, event_log)


def live_and_count(
    settings: Settings, postgres: PostgresServer, event_log: str, kind: str, lives: list[Life], epoch_rows: int
) -> None:
    """Run a job whose lives end, each at a parallelism of its own, in the task of some row, and count its rows."""
    with tempfile.TemporaryDirectory(prefix="penstock-property-", ignore_cleanup_errors=True) as name:
        made = Job(Path(name), postgres.url, settings, f"kept_{uuid.uuid4().hex[:8]}", epoch_rows)
        out = source(kind, made.path, event_log).to(ps.table(made.table, connection=made.url)).named("out")
        for cores, row in lives:
            with failing_in_the_last_stage(fails_at(row)), contextlib.suppress(RunError):
                made.run(cores, out)
        made.run(2, out)
        assert made.numbers == list(range(ROWS))


def source(kind: str, folder: Path, event_log: str) -> ps.Stream:
    """Return a new source with all numbers, which is read in several splits."""
    numbers = list(range(ROWS))
    if kind == "topic":
        topic = fresh(event_log).create(2)
        for partition in range(2):
            topic.produce([json.dumps({"n": n}).encode() for n in numbers[partition::2]], partition)
        return ps.read_topic(topic.name, schema="n bigint", connection=event_log)
    if kind == "parquet":
        for at in range(0, ROWS, 4_000):
            table = pa.table({"n": numbers[at : at + 4_000]})
            pq.write_table(table, folder / f"{at:05}.parquet", row_group_size=700)
        return ps.read_files(str(folder / "*.parquet"))
    if kind == "csv":
        for at in range(0, ROWS, 4_000):
            lines = [f"{n},{'x' * 400}\n" for n in numbers[at : at + 4_000]]
            (folder / f"{at:05}.csv").write_text("".join(lines))
        return ps.read_files(str(folder / "*.csv"), schema="n bigint, filler string").select("n")
    return ps.from_items([{"n": n} for n in numbers], "n bigint")


def fails_at(row: int) -> Callable[[Rows], Rows]:
    """Return a step that fails in the task of a row, after what comes before it."""

    def step(batches: Rows) -> Rows:
        for batch in batches:
            if row in batch.column("n").to_pylist():
                message = f"row {row}"
                raise RuntimeError(message)
            yield batch

    return step
