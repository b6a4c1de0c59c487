"""Promise: an epoch number that a sink's ledger has is never given to other rows in silence."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

import penstock as ps
from penstock.contracts import Epoch, Sink
from penstock.errors import CheckpointDamaged, LedgerAhead
from penstock.settings import Settings
from penstock.spark.checkpoints.savepoints import create_savepoint, restore_savepoint
from penstock.storage.folders import folder
from tests.conftest import at_parallelism
from tests.connectors.kafka_topics import fresh
from tests.spark.stateful_jobs import expected, feed, job, written

ROWS = 100


def _feed(data: Path, number: int) -> None:
    (data / "in").mkdir(parents=True, exist_ok=True)
    lines = (json.dumps({"id": number * ROWS + i}) + "\n" for i in range(ROWS))
    (data / "in" / f"{number}.json").write_text("".join(lines))


def _rows(data: Path) -> ps.Stream:
    return ps.read_files(str(data / "in"), schema="id bigint", format="json")


class Remembering(Sink):
    """A user's own sink: files named after the epoch's id are its ledger."""

    guarantee = "exactly_once"

    def __init__(self, folder: Path) -> None:
        self.name, self.folder = "own", folder

    def prepare(self, epoch: Epoch, partition: int, batches: Iterable[pa.RecordBatch]) -> list[int]:
        return [row["id"] for batch in batches for row in batch.to_pylist()]

    def commit(self, epoch: Epoch, tokens: Sequence[Any]) -> None:
        if not self.committed(epoch):
            self.folder.mkdir(exist_ok=True)
            (self.folder / epoch.id).write_text(json.dumps([i for token in tokens for i in token]))

    def committed(self, epoch: Epoch) -> bool:
        return (self.folder / epoch.id).exists()


def _files(data: Path) -> tuple[Sink, Callable[[], list[int]]]:
    def read() -> list[int]:
        found = [str(path) for path in (data / "out").rglob("*.parquet")]
        return [row["id"] for row in ds.dataset(found).to_table().to_pylist()]

    return ps.files(str(data / "out")), read


def _sqlite(data: Path) -> tuple[Sink, Callable[[], list[int]]]:
    def read() -> list[int]:
        with sqlite3.connect(data / "rows.db") as database:
            return [id for (id,) in database.execute("SELECT id FROM rows")]

    return ps.table("rows", connection=f"sqlite:///{data}/rows.db"), read


def _own(data: Path) -> tuple[Sink, Callable[[], list[int]]]:
    def read() -> list[int]:
        return [i for path in (data / "own").iterdir() for i in json.loads(path.read_text())]

    return Remembering(data / "own"), read


def _topic(data: Path, address: str) -> tuple[Sink, Callable[[], list[int]]]:
    topic = fresh(address)

    def read() -> list[int]:
        return [json.loads(message.value())["id"] for message in topic.consume()]

    return ps.topic(topic.name, connection=address), read


# A table is in test_older_checkpoint.py too.
@pytest.fixture(params=["files", pytest.param("sqlite", marks=pytest.mark.slow), "own", "topic"])
def sink(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Sink, Callable[[], list[int]]]:
    if request.param == "topic":
        return _topic(tmp_path, request.getfixturevalue("event_log"))
    makers = {"files": _files, "sqlite": _sqlite, "own": _own}
    return makers[request.param](tmp_path)


def test_an_older_copy_of_a_checkpoint_is_refused_and_can_be_restored_as_a_new_lineage(
    sink: tuple[Sink, Callable[[], list[int]]], settings: Settings, tmp_path: Path
) -> None:
    to, read = sink
    pipeline, where = ps.Pipeline("copy", _rows(tmp_path).to(to)), tmp_path / "checkpoint"
    _feed(tmp_path, 0)
    pipeline.run(until="drained", checkpoint=where, settings=settings)
    shutil.copytree(where, tmp_path / "older")
    _feed(tmp_path, 1)
    pipeline.run(until="drained", checkpoint=where, settings=settings)
    assert sorted(read()) == list(range(2 * ROWS))
    shutil.rmtree(where)
    shutil.copytree(tmp_path / "older", where)
    _feed(tmp_path, 2)
    _feed(tmp_path, 3)
    with pytest.raises(LedgerAhead, match=r"has epoch 1, which checkpoint .* does not know") as error:
        pipeline.run(until="drained", checkpoint=where, settings=settings)
    assert "penstock savepoint restore" in str(error.value)
    assert sorted(read()) == list(range(2 * ROWS))

    create_savepoint(folder(where), folder(tmp_path / "savepoints"), "older")
    restore_savepoint(folder(tmp_path / "savepoints" / "older"), folder(tmp_path / "restored"))
    pipeline.run(until="drained", checkpoint=tmp_path / "restored", settings=settings)
    assert set(read()) == set(range(4 * ROWS))


def test_an_epoch_that_checkpoint_and_ledger_know_with_other_input_is_refused(
    settings: Settings, tmp_path: Path
) -> None:
    to, read = _files(tmp_path)
    pipeline, where = ps.Pipeline("other", _rows(tmp_path).to(to)), tmp_path / "checkpoint"

    def run(*fed: int) -> None:
        for number in fed:
            _feed(tmp_path, number)
        pipeline.run(until="drained", checkpoint=where, settings=settings)

    run(0)
    for name in ("checkpoint", "out"):
        shutil.copytree(tmp_path / name, tmp_path / f"{name}-older")
    run(1)
    shutil.copytree(tmp_path / "out", tmp_path / "out-newer")
    for name in ("checkpoint", "out"):
        shutil.rmtree(tmp_path / name)
        shutil.copytree(tmp_path / f"{name}-older", tmp_path / name)
    run(2)
    _remove(_query(tmp_path) / "commits", "1")
    shutil.rmtree(tmp_path / "out")
    shutil.copytree(tmp_path / "out-newer", tmp_path / "out")
    with pytest.raises(LedgerAhead, match="has epoch 1 with other input than checkpoint"):
        run()
    assert sorted(read()) == list(range(2 * ROWS))


@pytest.fixture(scope="module")
def stopped(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Path]:
    """A windowed job whose last epoch had no rows: it only closed windows. Returns what brings it back as it was."""
    data: Path = tmp_path_factory.mktemp("stopped")
    run = job(data).start(checkpoint=data / "checkpoint", settings=settings)
    for number in range(2):
        feed(data / "in", number)
        run.process_available()
    run.stop()
    run.wait()
    query = _query(data)
    lines = [(query / "offsets" / str(n)).read_text().splitlines()[2:] for n in _epochs(query)[-2:]]
    assert lines[0] == lines[1], "the last epoch is one without rows"
    whole = data.with_name(f"{data.name}-whole")
    shutil.copytree(data, whole)

    def as_it_was() -> Path:
        shutil.rmtree(data)
        shutil.copytree(whole, data)
        return data

    return as_it_was


def _query(data: Path) -> Path:
    return data / "checkpoint" / "queries" / "final"


def _epochs(query: Path) -> list[int]:
    return sorted(int(path.name) for path in (query / "offsets").iterdir() if path.name.isdigit())


def _remove(folder: Path, name: str) -> None:
    (folder / name).unlink()
    (folder / f".{name}.crc").unlink(missing_ok=True)


def test_an_epoch_without_rows_and_with_lost_offsets_runs_again_under_its_number(
    settings: Settings, stopped: Callable[[], Path]
) -> None:
    data = stopped()
    query = _query(data)
    _remove(query / "offsets", str(_epochs(query)[-1]))
    feed(data / "in", 2)
    job(data).run(until="ended", checkpoint=data / "checkpoint", settings=settings)
    assert written(data / "out") == expected(3)


def test_an_epoch_with_lost_offsets_and_commit_is_not_planned_again(
    settings: Settings, stopped: Callable[[], Path]
) -> None:
    data = stopped()
    query = _query(data)
    newest = str(_epochs(query)[-1])
    _remove(query / "offsets", newest)
    _remove(query / "commits", newest)
    feed(data / "in", 2)
    with pytest.raises(CheckpointDamaged, match=f"offsets/{newest} is missing: epoch {newest} was started"):
        job(data).run(until="ended", checkpoint=data / "checkpoint", settings=settings)
    # Without any trace of it the ledger is what remains.
    _remove(data / "checkpoint" / "epochs" / "final", f"{newest}.json")
    for path in query.glob(f"state/*/*/{int(newest) + 1}.*"):
        _remove(path.parent, path.name)
    with pytest.raises(LedgerAhead, match=f"has epoch {newest}, which checkpoint"):
        job(data).run(until="ended", checkpoint=data / "checkpoint", settings=settings)


class Watching(Sink):
    """Notes what was synced to disk, by a log of it, before a task gets its rows."""

    guarantee = "exactly_once"
    before_rows: dict[int, list[str]] = {}

    def __init__(self, log: Path) -> None:
        self.name, self.log = "watching", log

    def prepare(self, epoch: Epoch, partition: int, batches: Iterable[pa.RecordBatch]) -> list[str]:
        # A sink may commit here: tables and topics do.
        synced = self.log.read_text().splitlines()
        for _ in batches:
            pass
        return synced

    def commit(self, epoch: Epoch, tokens: Sequence[Any]) -> None:
        self.before_rows[epoch.number] = min(tokens, key=len)


def test_the_offsets_of_an_epoch_are_durable_before_a_task_or_the_driver_commits_it(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsync, log = os.fsync, tmp_path / "synced"

    def noted(handle: int) -> None:
        fsync(handle)
        with log.open("a") as file:
            file.write(os.readlink(f"/proc/self/fd/{handle}") + "\n")

    monkeypatch.setattr(os, "fsync", noted)
    pipeline, where = ps.Pipeline("durable", _rows(tmp_path).to(Watching(log))), tmp_path / "checkpoint"
    _feed(tmp_path, 0)
    run = pipeline.start(checkpoint=where, settings=settings)
    run.process_available()
    _feed(tmp_path, 1)
    run.process_available()
    run.stop()
    run.wait()
    offsets = str(where / "queries" / "final" / "offsets")
    assert set(Watching.before_rows) >= {0, 1}
    for number, synced in Watching.before_rows.items():
        content = [synced.index(f"{offsets}/{name}") for name in (number, f".{number}.crc")]
        assert offsets in synced[max(content) :], "the names are synced after what they name"


# In short rows are cut in three on the session that all tests share, without a third core.
@pytest.mark.parametrize("cores", [None, pytest.param(3, marks=pytest.mark.slow)])
def test_rows_are_cut_as_before_where_the_broker_forgot_the_ledger(
    cores: int | None, settings: Settings, tmp_path: Path, event_log: str
) -> None:
    to, read = _topic(tmp_path, event_log)
    pipeline, where = ps.Pipeline("forgetful", _rows(tmp_path).to(to)), tmp_path / "checkpoint"
    _feed(tmp_path, 0)
    pipeline.run(until="drained", checkpoint=where, settings=settings)
    _forget_groups(event_log)
    _feed(tmp_path, 1)
    more = at_parallelism(settings, 3) if cores is None else replace(settings, parallelism=cores)
    pipeline.run(until="drained", checkpoint=where, settings=more)
    assert sorted(read()) == list(range(2 * ROWS))
    kept = json.loads((where / "parted-final.json").read_text())
    assert list(kept.values()) == [settings.cores]


def _forget_groups(address: str) -> None:
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": address})
    groups = [one.group_id for one in admin.list_consumer_groups().result().valid]
    for done in admin.delete_consumer_groups([name for name in groups if name.startswith("penstock.")]).values():
        done.result()
