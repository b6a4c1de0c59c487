"""Promise: a sink whose ledger cannot be read, or has gaps, loses no row when an older checkpoint is put back."""

from __future__ import annotations

import json
import shlex
import shutil
import uuid
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps
from penstock.contracts import Epoch, Sink
from penstock.errors import CheckpointDamaged, LedgerAhead
from penstock.settings import Settings
from penstock.spark.checkpoints.inspect import inspect
from penstock.spark.checkpoints.savepoints import create_savepoint, restore_savepoint
from penstock.storage.folders import folder

ROWS = 10


class OnlyIds(Sink):
    """The least that an exactly-once sink needs: it skips an id that it has, and cannot be asked."""

    guarantee = "exactly_once"

    def __init__(self, folder: Path) -> None:
        self.name, self.folder = "own", folder

    def prepare(self, epoch: Epoch, partition: int, batches: Iterable[pa.RecordBatch]) -> tuple[str, list[int]]:
        return epoch.id, [row["id"] for batch in batches for row in batch.to_pylist()]

    def commit(self, epoch: Epoch, tokens: Sequence[Any]) -> None:
        assert {id for id, _ in tokens} <= {epoch.id}, "tasks and driver name an epoch in the same way"
        rows = [row for _, rows in tokens for row in rows]
        if not (self.folder / epoch.id).exists() and rows:
            self.folder.mkdir(exist_ok=True)
            (self.folder / epoch.id).write_text(json.dumps(rows))


class WithGaps(OnlyIds):
    """It can be asked, but has no entry of an epoch without rows."""

    def committed(self, epoch: Epoch) -> bool:
        return (self.folder / epoch.id).exists()


class OfRejected(WithGaps):
    """The same for rejected rows: most epochs have none."""

    def prepare(self, epoch: Epoch, partition: int, batches: Iterable[pa.RecordBatch]) -> tuple[str, list[int]]:
        return epoch.id, [int(row["raw"]) for batch in batches for row in batch.to_pylist()]


class Job:
    """Runs that drain a folder of JSON files into `sink`; ids from 1000 on are filtered out."""

    def __init__(self, sink: Sink, data: Path, settings: Settings, rejected_to: Sink | None = None) -> None:
        rows = ps.read_files(str(data / "in"), schema="id bigint", format="json").filter("id < 1000")
        self.pipeline, self.settings = ps.Pipeline("own", rows.to(sink), rejected_to=rejected_to), settings
        self.data, self.checkpoint = data, data / "the checkpoint"

    def feed(self, first: int | str) -> None:
        """Add a file of rows from a number on, or of this text."""
        (self.data / "in").mkdir(exist_ok=True)
        rows = "" if isinstance(first, str) else "".join(json.dumps({"id": first + i}) + "\n" for i in range(ROWS))
        (self.data / "in" / f"{len(list((self.data / 'in').iterdir()))}.json").write_text(rows or str(first))

    def run(self, *first: int) -> None:
        """Add a file of rows for each number, and run until all are read."""
        for at in first:
            self.feed(at)
        self.pipeline.run(until="drained", checkpoint=self.checkpoint, settings=self.settings)

    def run_epochs(self, *first: int | str) -> None:
        """Run an epoch for each file."""
        run = self.pipeline.start(checkpoint=self.checkpoint, settings=self.settings)
        try:
            for at in first:
                self.feed(at)
                run.process_available()
        finally:
            # It raises the job's own error, not Spark's.
            run.stop()
            run.wait()

    def copy(self) -> None:
        shutil.copytree(self.checkpoint, self.data / "older")

    def put_back(self) -> None:
        shutil.rmtree(self.checkpoint)
        shutil.copytree(self.data / "older", self.checkpoint)

    def forget_commit(self, epoch: int) -> None:
        """As after a crash before Spark's own commit: the epoch is replayed."""
        for name in (str(epoch), f".{epoch}.crc"):
            (self.checkpoint / "queries" / "final" / "commits" / name).unlink()

    def written(self) -> list[int]:
        found = sorted((self.data / "own").iterdir())
        return sorted(row for path in found for row in json.loads(path.read_text()))


def _own(data: Path) -> Sink:
    return OnlyIds(data / "own")


def _callback(data: Path) -> Sink:
    def write(epoch: Epoch, table: pa.Table) -> None:
        (data / "own").mkdir(exist_ok=True)
        if not (data / "own" / epoch.id).exists():
            (data / "own" / epoch.id).write_text(json.dumps(table["id"].to_pylist()))

    return ps.callback(write)


@pytest.mark.parametrize("sink", [_own, pytest.param(_callback, marks=pytest.mark.slow)])
def test_an_id_is_never_given_to_other_rows(sink: Callable[[Path], Sink], settings: Settings, tmp_path: Path) -> None:
    job = Job(sink(tmp_path), tmp_path, settings)
    job.run(0)
    job.copy()
    job.run(10)
    job.put_back()
    job.run(20, 30)
    assert set(job.written()) == set(range(40))

    before = job.written()
    job.forget_commit(1)
    job.run()
    assert job.written() == before, "a replay has the id of the first try"


def test_an_epoch_that_an_earlier_version_started_keeps_its_id(settings: Settings, tmp_path: Path) -> None:
    job = Job(OnlyIds(tmp_path / "own"), tmp_path, settings)
    job.run(0)
    (job.checkpoint / "staged" / "final" / "by-input").unlink()
    record = job.checkpoint / "epochs" / "final" / "0.json"
    totals = json.loads(record.read_text())
    record.write_text(json.dumps({name: value for name, value in totals.items() if name != "first_by_input"}))
    (named,) = (tmp_path / "own").iterdir()
    plain = named.name.rpartition("-")[0]
    assert plain.endswith("-own-0")
    named.rename(named.with_name(plain))
    job.forget_commit(0)
    job.run()
    job.run(10)
    assert job.written() == list(range(20))


def test_a_replay_keeps_its_id_where_the_file_is_lost_that_says_how_it_was_named(
    settings: Settings, tmp_path: Path
) -> None:
    job = Job(OnlyIds(tmp_path / "own"), tmp_path, settings)
    job.run(0)
    job.run(10)
    job.forget_commit(1)
    (job.checkpoint / "staged" / "final" / "by-input").unlink()
    job.run()
    assert job.written() == list(range(20))


class AtMostOnce(OnlyIds):
    """It has rows as soon as a task gets them, and no ledger."""

    guarantee = "at_most_once"

    def prepare(self, epoch: Epoch, partition: int, batches: Iterable[pa.RecordBatch]) -> tuple[str, list[int]]:
        token = super().prepare(epoch, partition, batches)
        self.folder.mkdir(exist_ok=True)
        (self.folder / uuid.uuid4().hex).write_text(json.dumps(token[1]))
        return token

    def commit(self, epoch: Epoch, tokens: Sequence[Any]) -> None:
        pass


def test_rows_are_written_at_most_once_where_the_file_is_lost_that_says_which_epoch_was_started(
    settings: Settings, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    job = Job(AtMostOnce(tmp_path / "own"), tmp_path, settings)
    job.run(0)
    job.run(10)
    job.forget_commit(1)
    (job.checkpoint / "staged" / "final" / "begun").unlink()
    job.run(20)
    assert job.written() == list(range(30))
    (said,) = (record.getMessage() for record in caplog.records if "begun" in record.getMessage())
    assert "epoch 1 is taken for started" in said


def test_a_ledger_without_empty_epochs_stops_the_job_where_its_next_entry_would_be_skipped(
    settings: Settings, tmp_path: Path
) -> None:
    job = Job(WithGaps(tmp_path / "own"), tmp_path, settings)
    job.run(0)
    job.copy()
    job.run_epochs(1000, 10)
    job.put_back()
    with pytest.raises(LedgerAhead, match=r"has epoch 2, which checkpoint .* has not started yet"):
        job.run_epochs(20, 30)
    # Spark has planned it by now.
    with pytest.raises(LedgerAhead, match=r"has epoch 2, which checkpoint .* has not started yet"):
        job.run()
    assert job.written() == sorted([*range(30), *range(10, 20)])


def test_an_epoch_that_was_started_and_lost_its_offsets_is_not_planned_again(
    settings: Settings, tmp_path: Path
) -> None:
    job = Job(WithGaps(tmp_path / "own"), tmp_path, settings)
    job.run(0)
    job.run_epochs(1000, 10)
    for epoch in (1, 2):
        job.forget_commit(epoch)
        (job.checkpoint / "queries" / "final" / "offsets" / str(epoch)).unlink()
    ((lost, reason),) = inspect(folder(job.checkpoint)).all_damaged.items()
    assert (lost, reason[:44]) == ("queries/final/offsets/2", "is missing: epochs 1 to 2 were started, as e")
    with pytest.raises(CheckpointDamaged, match="offsets/2 is missing: epochs 1 to 2 were started") as error:
        job.run(20)
    assert job.written() == list(range(20))

    # What it advises works, also with a space in the path.
    lines = str(error.value.hint).splitlines()
    create, restore = (shlex.split(line) for line in lines if line.startswith("    penstock"))
    create_savepoint(folder(create[3]), folder(tmp_path / "savepoints"), create[5])
    restore_savepoint(folder(tmp_path / "savepoints" / restore[3]), folder(restore[5]))
    job.checkpoint = Path(restore[5])
    job.run()
    assert set(job.written()) == set(range(30))


def test_lost_answers_of_an_epoch_that_was_recorded_stop_a_run_whose_sink_cannot_be_asked(
    settings: Settings, tmp_path: Path
) -> None:
    job = Job(OnlyIds(tmp_path / "own"), tmp_path, settings)
    (read,) = job.pipeline.graph.reads
    answered = ps.Stream(read).map(lambda row: row, "id bigint", deterministic=False)
    job.pipeline = ps.Pipeline("own", answered.to(OnlyIds(tmp_path / "own")))
    job.run(0)
    job.forget_commit(0)
    for name in ("outbox", "answers"):
        shutil.rmtree(job.checkpoint / "staged" / "final" / name)
    with pytest.raises(CheckpointDamaged, match=r"outbox/0/sealed is missing, and sinks have rows of epoch 0"):
        job.run()


def test_rejected_rows_are_not_skipped_under_a_number_that_their_sink_has(settings: Settings, tmp_path: Path) -> None:
    job = Job(ps.callback(lambda epoch, table: None), tmp_path, settings, OfRejected(tmp_path / "own"))
    job.run(0)
    job.copy()
    job.run_epochs(10, "1\n")
    job.put_back()
    with pytest.raises(LedgerAhead, match=r"has epoch 2, which checkpoint .* has not started yet"):
        job.run_epochs(20, "2\n")
    assert job.written() == [1, 1], "epoch 1 has it now, and its sink could not know"


def test_a_ledger_without_empty_epochs_takes_a_replay(settings: Settings, tmp_path: Path) -> None:
    job = Job(WithGaps(tmp_path / "own"), tmp_path, settings)
    job.run(0)
    job.forget_commit(0)
    job.run(10)
    assert job.written() == list(range(20))
