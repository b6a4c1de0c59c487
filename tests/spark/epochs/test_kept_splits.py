"""Promise: a sink that writes splits of its source as partitions has every row once, whatever a replay changes."""

from __future__ import annotations

import contextlib
import json
import tempfile
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
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
from penstock.errors import CheckpointMismatch, RunError
from penstock.plan.operators.stateless import Write
from penstock.plan.physical.planner import physical_plan
from penstock.settings import Settings
from penstock.spark.epochs import sink_tasks
from penstock.spark.lowering import compile as compiler
from penstock.spark.tasks.offset_files import split_for
from penstock.storage.folders import folder
from tests.conftest import at_parallelism
from tests.connectors.kafka_topics import fresh
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
        settings = replace(at_parallelism(self.settings, cores), epoch_rows=self.epoch_rows)
        pipeline = ps.Pipeline("kept", *(outputs or (self.written,)), **options)
        running = pipeline.start(until="ended", checkpoint=self.path / "c", settings=settings, allow_drop=allow_drop)
        running.wait()

    def fail(self, cores: int) -> None:
        """Stop in the middle of the second epoch: the sink has some of its partitions."""
        step = fails_after_the_others(self.url, self.table)
        with failing_in_the_last_stage(step), pytest.raises(RunError, match="the others have committed"):
            self.run(cores)
        assert EPOCH_ROWS < len(self.numbers) < 2 * EPOCH_ROWS

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


def fails_after_the_others(url: str, table: str) -> Callable[[Rows], Rows]:
    """Return a step that fails in the task with the last row of the second epoch."""

    def step(batches: Rows) -> Rows:
        for batch in batches:
            if 2 * EPOCH_ROWS - 1 in batch.column("n").to_pylist():
                with psycopg.connect(url, autocommit=True) as database:
                    wait_for(lambda: _count(database, table) > EPOCH_ROWS)
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


def test_an_epoch_that_began_in_the_other_way_is_refused_before_a_task_writes(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    job.fail(3)
    with monkeypatch.context() as other:
        other.setattr(compiler, "keeps_splits", lambda *_: False)
        with pytest.raises(RunError, match="epoch 1 was started with its rows in other partitions") as error:
            job.run(3)
        assert error.value.transient
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
EXAMPLES = {"kind": st.sampled_from(["items", "csv", "parquet", "topic"]), "lives": LIVES}
QUIET = [HealthCheck.function_scoped_fixture]


@hypothesis_settings(max_examples=2, deadline=None, suppress_health_check=QUIET)
@given(**EXAMPLES, epoch_rows=st.integers(3_000, ROWS))
def test_every_row_is_there_once_after_tasks_that_fail_at_any_parallelism(
    shared_settings: Settings,
    postgres: PostgresServer,
    event_log: str,
    kind: str,
    lives: list[Life],
    epoch_rows: int,
) -> None:
    check(shared_settings, postgres, event_log, kind, lives, epoch_rows)


@pytest.mark.slow
@hypothesis_settings(max_examples=40, deadline=None, suppress_health_check=QUIET)
@given(**EXAMPLES, epoch_rows=st.integers(3_000, ROWS))
def test_every_row_is_there_once_after_many_tasks_that_fail_at_any_parallelism(
    shared_settings: Settings,
    postgres: PostgresServer,
    event_log: str,
    kind: str,
    lives: list[Life],
    epoch_rows: int,
) -> None:
    check(shared_settings, postgres, event_log, kind, lives, epoch_rows)


def check(
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


APPENDED = ps.table("out", connection="postgresql://127.0.0.1/shop")


def _planned(*outputs: ps.Output, kafka_reader: Any = "penstock") -> list[bool]:
    graph = ps.Pipeline("p", *outputs).graph
    return [query.keeps_splits for query in physical_plan("p", graph, kafka_reader=kafka_reader).queries]


class Own(ps.Source):
    name, schema = "own", ps.Schema(SCHEMA)


def _shapes() -> Iterator[tuple[str, bool, Callable[[ps.Stream], ps.Stream]]]:
    yield "filter and columns", True, lambda rows: rows.filter("n > 1").select("n", up="upper(k)")
    yield "a function", True, lambda rows: rows.map(lambda row: row)
    yield "several rows of one", True, lambda rows: rows.flat_map(lambda row: [row, row])
    yield "a function with other answers each time", False, lambda rows: rows.map(lambda row: row, deterministic=False)
    yield "two ways to one sink", False, lambda rows: rows.filter("n > 1").union(rows.filter("n < 1"))
    yield "state", False, lambda rows: rows.event_time("ts", "1s").deduplicate("k", "1m")


@pytest.mark.parametrize(("keeps", "shape"), [pytest.param(*one[1:], id=one[0]) for one in _shapes()])
def test_only_what_runs_in_the_tasks_of_one_source_and_is_repeated_keeps_splits(
    keeps: bool, shape: Callable[[ps.Stream], ps.Stream]
) -> None:
    rows = ps.from_items([], f"{SCHEMA}, ts timestamp").named("rows")
    assert _planned(shape(rows).to(APPENDED)) == [keeps]


def test_two_sinks_another_reader_and_a_source_of_a_user_do_not_keep_splits() -> None:
    rows = ps.from_items([], SCHEMA).named("rows")
    assert _planned(rows.to(APPENDED), rows.to(ps.files("out")).named("second")) == [False]
    topic = ps.read_topic("t", schema=SCHEMA)
    assert _planned(topic.to(APPENDED)) == [True]
    assert _planned(topic.to(APPENDED), kafka_reader="spark") == [False]
    assert _planned(ps.read(Own()).to(APPENDED)) == [False]


def test_only_a_table_that_is_appended_to_by_several_tasks_takes_splits(tmp_path: Path) -> None:
    takes = {
        "append": APPENDED,
        "upsert": ps.table("out", connection="postgresql://127.0.0.1/shop", mode="upsert", key="k"),
        "no ledger": ps.table("out", connection="postgresql://127.0.0.1/shop", guarantee="at_least_once"),
        "one writer": ps.table("out", connection=f"sqlite:///{tmp_path}/out.db"),
        "files": ps.files("out"),
    }
    assert {name for name, sink in takes.items() if sink.takes_splits} == {"append"}
