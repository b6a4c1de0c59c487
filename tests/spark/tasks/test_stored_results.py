"""Promise: state, output and rejected rows of a replayed epoch come from the same answers, though functions differ."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import penstock as ps
from penstock.connectors.sinks.collect import CollectSink
from penstock.contracts import Epoch
from penstock.errors import CheckpointDamaged, SparkFailed
from penstock.settings import Settings
from penstock.spark.epochs.writer import EpochWriter
from penstock.spark.runs.micro_batch import MicroBatchRun
from penstock.spark.tasks.stored_results import AnswerStore, NodeAnswers
from penstock.storage.folders import LocalFolder
from penstock.values.arrow_stream import STREAM_END
from tests.conftest import at

SCHEMA = "k bigint, ts timestamp"
ANSWERED = f"{SCHEMA}, answer bigint"


class Died(Exception):
    """Ends a run in the middle of an epoch."""


class Lives:
    """Runs a pipeline again and again from one checkpoint: each life ends at a moment of an epoch, or at the end."""

    def __init__(self, folder: Path, settings: Settings, spark: SparkSession, patch: pytest.MonkeyPatch) -> None:
        self.folder, self.settings = folder, settings
        # One session serves every parallelism: only the number of partitions depends on it here.
        patch.setattr("penstock.spark.runs.micro_batch.session", lambda settings: spark)
        patch.setattr("penstock.spark.runs.micro_batch.EpochWriter", self._writer)
        self.moment: tuple[int, str] | None = None
        self.died = 0

    def live(
        self, pipeline: ps.Pipeline, parallelism: int, until: tuple[int, str] | None = None, epoch_rows: int = 1_000
    ) -> None:
        self.moment = until
        settings = replace(self.settings, parallelism=parallelism, epoch_rows=epoch_rows)
        run = MicroBatchRun(pipeline.name, pipeline.graph, self.folder / "checkpoint", settings, "ended").begin()
        try:
            run.wait()
        except Exception:
            errors = [error for writer in run.writers if (error := writer.error)]
            if not any(isinstance(one, Died) for error in errors for one in (error, error.__cause__)):
                raise
            self.died += 1

    def _writer(self, *arguments: Any) -> EpochWriter:
        made = EpochWriter(*arguments)

        def die(number: int, moment: str) -> None:
            if (number, moment) == self.moment:
                raise Died

        made.on_epoch = die
        return made


@pytest.fixture
def lives(tmp_path: Path, settings: Settings, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Lives:
    return Lives(tmp_path, settings, spark, monkeypatch)


ROWS = [{"k": number % 7, "ts": at(number // 20)} for number in range(1_200)]


class Total(ps.Process):
    """Adds up answers in state."""

    output = "k bigint, n bigint, total bigint"
    n = ps.state.value(int)
    total = ps.state.value(int)

    def on_row(self, row: dict[str, Any], ctx: ps.Context) -> Iterator[Any]:
        self.n.set(self.n.get(0) + 1)
        self.total.set(self.total.get(0) + row["answer"])
        yield {**ctx.key, "n": self.n.get(), "total": self.total.get()}


def random_answer() -> int:
    """Answer differently at every call, and not at all to one of five."""
    if random.randrange(5) == 0:
        raise ConnectionError("refused")
    return random.getrandbits(40)


async def ask(row: dict[str, Any]) -> dict[str, Any]:
    return row | {"answer": random_answer()}


def add(row: dict[str, Any]) -> dict[str, Any]:
    return row | {"answer": row["answer"] + random_answer()}


def repeat(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for _ in range(random.randrange(3)):
        yield row | {"answer": row["answer"] + random_answer()}


def shift(batch: pa.RecordBatch) -> pa.RecordBatch:
    answers = pa.array([answer + random.getrandbits(40) for answer in batch.column("answer").to_pylist()])
    return batch.set_column(2, "answer", answers)


def job(answered: ps.Stream, *more: ps.Output) -> tuple[ps.Pipeline, dict[str, CollectSink]]:
    """Show the answers themselves, and sums of them out of two kinds of state."""
    sinks = {name: CollectSink() for name in ("raw", "windows", "totals", "bad")}
    for name, sink in sinks.items():
        sink.name = name
    timed = answered.event_time("ts", "1s")
    windows = timed.window(ps.tumbling("10s")).aggregate(total="sum(answer)", n="count(*)")
    totals = timed.key_by("k").process(Total)
    outputs = answered.to(sinks["raw"]), windows.to(sinks["windows"]), totals.to(sinks["totals"]), *more
    return ps.Pipeline("p", *outputs, rejected_to=sinks["bad"]), sinks


def judge(sinks: dict[str, CollectSink]) -> None:
    """Compare state with the answers that went out."""
    raw = sinks["raw"].rows
    windows, keys, counts = defaultdict(int), defaultdict(int), Counter(row["k"] for row in raw)
    for row in raw:
        start = row["ts"].timestamp() // 10 * 10
        windows[start] += row["answer"]
        keys[row["k"]] += row["answer"]
    assert {row["window_start"].timestamp(): row["total"] for row in sinks["windows"].rows} == windows
    last = {row["k"]: row for row in sorted(sinks["totals"].rows, key=lambda row: row["n"])}
    assert {k: row["n"] for k, row in last.items()} == counts
    assert {k: row["total"] for k, row in last.items()} == keys


@pytest.mark.parametrize(
    "parallelism",
    [(3, 1), pytest.param((1, 1, 1, 1), marks=pytest.mark.slow), pytest.param((2, 3, 1, 2), marks=pytest.mark.slow)],
)
def test_state_has_the_answers_that_went_out_whatever_dies_and_at_any_parallelism(
    parallelism: tuple[int, ...], lives: Lives
) -> None:
    answered = ps.from_items(ROWS, SCHEMA).map_async(ask, ANSWERED, retries=0)
    pipeline, sinks = job(answered)
    moments = [(0, "prepared"), (0, "committed"), (1, "sealed")]
    for cores, moment in zip(parallelism[:-1], moments, strict=False):
        lives.live(pipeline, cores, until=moment)
    lives.live(pipeline, parallelism[-1])
    assert lives.died == len(parallelism) - 1
    judge(sinks)
    # A row that was answered is not refused too.
    assert len(sinks["raw"].rows) + len(sinks["bad"].rows) == len(ROWS)
    assert not (lives.folder / "checkpoint" / "staged" / "final" / "answers" / "0").exists()


@pytest.mark.slow
def test_answers_of_all_kinds_of_functions_are_stored_one_after_another(lives: Lives) -> None:
    answered = ps.from_items(ROWS, SCHEMA).map_async(ask, ANSWERED, retries=0, ordered=False)
    answered = answered.map(add, ANSWERED, deterministic=False).map_batches(shift, ANSWERED, deterministic=False)
    pipeline, sinks = job(answered.flat_map(repeat, ANSWERED, deterministic=False))
    lives.live(pipeline, 2, until=(0, "prepared"))
    lives.live(pipeline, 3)
    assert lives.died == 1
    judge(sinks)


@pytest.mark.slow
def test_two_consumers_before_the_calls_and_another_parallelism_find_the_answers_of_rows_in_other_partitions(
    lives: Lives,
) -> None:
    rows = ps.from_items([row | {"k": number} for number, row in enumerate(ROWS)], SCHEMA)
    seen = CollectSink()
    pipeline, sinks = job(rows.map_async(ask, ANSWERED, retries=0), rows.to(seen))
    lives.live(pipeline, 2, until=(0, "prepared"))
    lives.live(pipeline, 3)
    assert lives.died == 1
    judge(sinks)
    assert len(seen.rows) == len(ROWS)


class DiesOnce(CollectSink):
    """Fails when it is to show rows for the first time."""

    died = False

    def commit(self, epoch: Epoch, tokens: Sequence[Any]) -> None:
        if not self.died:
            self.died = True
            raise Died
        super().commit(epoch, tokens)


def test_a_late_row_that_was_answered_is_not_refused_in_a_replay(lives: Lives) -> None:
    seconds = [*range(100, 160), *range(160, 220), *([5] * 40), *range(220, 240)]
    rows = ps.from_items([{"k": 1, "ts": at(second)} for second in seconds], SCHEMA).event_time("ts", "1s")
    windows = rows.window(ps.tumbling("10s")).aggregate(n="count(*)")
    late, bad = CollectSink(), DiesOnce()
    late.name, bad.name = "late", "bad"
    asked = windows.side("late").map_async(ask, ANSWERED, retries=0)
    pipeline = ps.Pipeline("p", windows.to(ps.collect()), asked.to(late), rejected_to=bad)
    # The late rows are there, and those that were refused are not, when it dies.
    lives.live(pipeline, 2, epoch_rows=60)
    lives.live(pipeline, 3, epoch_rows=60)
    assert lives.died == 1
    assert len(late.rows) + len(bad.rows) == 40
    assert len(late.rows) > len(bad.rows) > 0


# --- the store, without Spark -------------------------------------------------------------------


def node(folder: Path, parallelism: int = 2) -> NodeAnswers:
    return NodeAnswers(AnswerStore(LocalFolder(folder)), "ask", parallelism)


def put(answers: NodeAnswers, partition: int, *pairs: tuple[int, int | None]) -> None:
    with answers.task(0, partition) as task:
        keys = pa.array([key for key, _ in pairs], pa.int64())
        refused = ["refused" if made is None else None for _, made in pairs]
        task.put([keys, keys], pa.array([made for _, made in pairs], pa.int64()), refused)


def test_a_retried_task_finds_its_own_answers_and_no_others(tmp_path: Path) -> None:
    put(node(tmp_path), 0, (1, 10), (1, 11), (2, None))
    with node(tmp_path).task(0, 0) as task:
        assert [task.take((1, 1)), task.take((1, 1)), task.take((1, 1))] == [(10, None), (11, None), None]
        assert task.take((2, 2)) == (None, "refused")
    with node(tmp_path).task(0, 1) as task:
        assert task.empty
        assert task.take((1, 1)) is None


def test_of_two_attempts_of_a_task_the_second_to_store_fails(tmp_path: Path) -> None:
    second = node(tmp_path).task(0, 0)
    put(node(tmp_path), 0, (1, 10))
    with pytest.raises(SparkFailed, match="another attempt"):
        second.write(pa.table({"first": [1], "second": [1], "made": [20], "refused": [None]}))
    with node(tmp_path).task(0, 0) as task:
        assert task.take((1, 1)) == (10, None)


def test_answers_that_are_lost_or_damaged_are_named(tmp_path: Path) -> None:
    put(node(tmp_path), 0, (1, 10))
    store = AnswerStore(LocalFolder(tmp_path))
    (name,) = store.names(0)
    for content in (b"", (tmp_path / "0" / name).read_bytes()[:-8], b"garbled" + STREAM_END):
        (tmp_path / "0" / name).write_bytes(content)
        with pytest.raises(CheckpointDamaged, match=f"{name} cannot be read") as error:
            node(tmp_path).task(0, 0).take((1, 1))
        assert "copy" in str(error.value.hint)
    task = node(tmp_path).task(0, 0)
    (tmp_path / "0" / name).unlink()
    for read in (lambda: task.take((1, 1)), lambda: store.require(0, [name])):
        with pytest.raises(CheckpointDamaged, match=f"{name} is missing"):
            read()


def test_an_unfinished_try_is_forgotten_and_a_complete_one_serves_any_partition(tmp_path: Path) -> None:
    store = AnswerStore(LocalFolder(tmp_path))
    put(node(tmp_path), 0, (1, 10))
    store.begin(0, complete=False)
    assert store.parallelism(0) is None
    put(node(tmp_path), 0, (1, 10), (2, 20), (3, 30))
    put(node(tmp_path), 1, (3, 31))
    store.begin(0, complete=True)
    assert store.parallelism(0) == 2
    with node(tmp_path, parallelism=3).task(0, 2) as task:
        assert task.take((2, 2)) == (20, None)
        # Another task could take the same.
        with pytest.raises(SparkFailed, match="PENSTOCK_PARALLELISM=2"):
            task.take((3, 3))
    store.begin(1, complete=False)
    assert store.folder.names() == []
