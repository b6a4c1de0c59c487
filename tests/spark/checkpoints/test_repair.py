"""Promise: damage to a checkpoint is detected, and the job continues from the newest intact state."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest

import penstock as ps
from penstock.errors import CheckpointDamaged
from penstock.settings import Settings
from penstock.spark.checkpoints.inspect import inspect
from penstock.spark.checkpoints.repair import repair
from penstock.spark.checkpoints.savepoints import create_savepoint
from penstock.storage.folders import folder
from tests.spark.checkpoints.damaged_jobs import uncommit_newest
from tests.spark.stateful_jobs import expected, feed, job, on, snapshots_soon, written
from tests.waiting import wait_for

FED = 4


@pytest.fixture(scope="module")
def settings(shared_settings: Settings) -> Settings:
    """Settings with two partitions: tests damage the state of one."""
    return shared_settings


@pytest.fixture(scope="module")
def stopped(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A job that read four files in epochs of their own and was stopped, its windows open; by the kind of state."""

    @cache
    def job_on(state: str) -> Path:
        data: Path = tmp_path_factory.mktemp(state)
        with snapshots_soon(settings):
            run = job(data).start(checkpoint=data / "checkpoint", settings=on(settings, state))
            for number in range(FED):
                feed(data / "in", number)
                run.process_available()
            wait_for(lambda: len({path.parent for path in _snapshots(data)}) == 2)
            run.stop()
            run.wait()
        shutil.copytree(data, _backup(data))
        return data

    return job_on


def _backup(data: Path) -> Path:
    return data.with_name(f"{data.name}-whole")


def _as_it_was(data: Path) -> Path:
    """The same job as it was when it was stopped, in the same place: its plan has the paths in it."""
    shutil.rmtree(data)
    shutil.copytree(_backup(data), data)
    return data


def _snapshots(data: Path) -> list[Path]:
    state = data / "checkpoint" / "queries" / "final" / "state"
    found = [*state.rglob("*.snapshot"), *state.rglob("*.zip")]
    return [path for path in found if not path.name.startswith(".")]


def _query(data: Path) -> Path:
    return data / "checkpoint" / "queries" / "final"


def _newest(data: Path, *patterns: str) -> Path:
    found = [path for pattern in patterns for path in _query(data).glob(pattern) if path.stem.isdigit()]
    return max(found, key=lambda path: int(path.stem))


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)


def _damage(data: Path, what: str) -> None:
    if what == "newest state":
        newest = _newest(data, "state/0/0/*.delta", "state/0/0/*.changelog")
        for path in newest.parent.glob(f"{newest.stem}.*"):
            _flip(path)
    elif what == "state of several epochs":
        for path in _query(data).glob("state/0/1/*.*"):
            if path.stem.isdigit() and int(path.stem) > 3:
                _cut(path)
    elif what == "snapshot":
        for path in _snapshots(data):
            _cut(path)
    elif what == "commit":
        _cut(_newest(data, "commits/*"))
    elif what == "offsets":
        _newest(data, "offsets/*").write_bytes(b"")
    else:
        _newest(data, "offsets/*").unlink()


STATE = ["newest state", "state of several epochs", "snapshot"]
# In short, damage to state and to offsets; snapshots, commits and a run on RocksDB are in test_damaged_runs.py too.
ALWAYS = [("memory", what) for what in ("newest state", "state of several epochs", "offsets are gone")]
OTHERS = [
    ("memory", "snapshot"),
    ("memory", "commit"),
    ("memory", "offsets"),
    ("rocksdb", "state of several epochs"),
    ("rocksdb", "newest state"),
    ("rocksdb", "snapshot"),
]
CASES = [*ALWAYS, *(pytest.param(*case, marks=pytest.mark.slow) for case in OTHERS)]


@pytest.mark.parametrize(("state", "what"), CASES)
def test_a_damaged_checkpoint_gives_the_results_of_an_intact_one(
    state: str, what: str, stopped: Callable[[str], Path], settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    data = _as_it_was(stopped(state))
    _damage(data, what)
    assert inspect(folder(data / "checkpoint")).queries["final"].damaged
    feed(data / "in", FED)
    job(data).run(until="ended", checkpoint=data / "checkpoint", settings=on(settings, state))
    assert written(data / "out") == expected(FED + 1)
    (said,) = (record.message for record in caplog.records if record.name == "penstock.spark.checkpoints.repair")
    assert "set-aside" in said
    assert not inspect(folder(data / "checkpoint")).queries["final"].damaged


def test_a_checkpoint_without_intact_state_names_the_damaged_file(
    stopped: Callable[[str], Path], settings: Settings
) -> None:
    data = _as_it_was(stopped("memory"))
    for path in [*_query(data).glob("state/0/0/*.*"), _query(data) / "offsets" / "2"]:
        if path.is_file():
            _cut(path)
    with pytest.raises(CheckpointDamaged, match=r"offsets/2 .* is lost") as error:
        job(data).run(until="drained", checkpoint=data / "checkpoint", settings=settings)
    assert "savepoint" in str(error.value)


def test_lost_offsets_that_no_source_has_stored_are_named(stopped: Callable[[str], Path], settings: Settings) -> None:
    data = _as_it_was(stopped("memory"))
    newest = _newest(data, "offsets/*")
    lost = newest.with_name(str(int(newest.name) - 1))
    lost.unlink()
    assert inspect(folder(data / "checkpoint")).queries["final"].damaged == {f"offsets/{lost.name}": "is missing"}
    with pytest.raises(CheckpointDamaged, match=rf"offsets/{lost.name} is missing, .* is lost"):
        job(data).run(until="drained", checkpoint=data / "checkpoint", settings=settings)

    with pytest.raises(CheckpointDamaged, match=rf"queries/final/offsets/{lost.name} is missing"):
        create_savepoint(folder(data / "checkpoint"), folder(data / "savepoints"), "a")


def test_epochs_with_processing_time_windows_are_not_repeated_at_another_time(stopped: Callable[[str], Path]) -> None:
    data = _as_it_was(stopped("memory"))
    _damage(data, "state of several epochs")
    with pytest.raises(CheckpointDamaged, match="windows use processing time"):
        repair(folder(data / "checkpoint"), replayable=True, processing_time=True)
    repair(folder(data / "checkpoint"), replayable=True)


class Sum(ps.Process):
    """Adds up answers in state."""

    output = "answer bigint, total bigint"
    total = ps.state.value(int)

    def on_row(self, row: dict[str, Any], ctx: ps.Context) -> Iterator[Any]:
        self.total.set(self.total.get(0) + row["answer"])
        yield {"answer": row["answer"], "total": self.total.get()}


def _asking(data: Path) -> ps.Pipeline:
    (data / "in").mkdir(parents=True, exist_ok=True)
    rows = ps.read_files(str(data / "in"), schema="k string, v bigint, ts timestamp", format="json")
    answered = rows.map(
        lambda row: {"k": "a", "answer": 1 + random.getrandbits(20)}, "k string, answer bigint", deterministic=False
    )
    return ps.Pipeline("asking", answered.key_by("k").process(Sum()).to(ps.files(str(data / "out"))))


@pytest.mark.parametrize("epochs", [1, 2])
def test_epochs_whose_answers_are_deleted_are_not_repeated(epochs: int, settings: Settings, tmp_path: Path) -> None:
    where = tmp_path / "checkpoint"
    run = _asking(tmp_path).start(checkpoint=where, settings=on(settings, "memory"))
    for number in range(3):
        feed(tmp_path / "in", number)
        run.process_available()
    run.stop()
    run.wait()
    for path in _query(tmp_path).glob(f"state/**/{4 - epochs}.delta"):
        _flip(path)
    feed(tmp_path / "in", 3)
    if epochs > 1:
        with pytest.raises(CheckpointDamaged, match=r"2\.delta .*, and functions that are not deterministic gave"):
            _asking(tmp_path).run(until="drained", checkpoint=where, settings=on(settings, "memory"))
        return
    _asking(tmp_path).run(until="drained", checkpoint=where, settings=on(settings, "memory"))
    assert _totals(tmp_path) == (4 * 60, True)


def test_an_epoch_whose_answers_and_commit_are_lost_is_not_rolled_back_so_the_commit_can_be_put_back(
    settings: Settings, tmp_path: Path
) -> None:
    where, memory = tmp_path / "checkpoint", on(settings, "memory")
    run = _asking(tmp_path).start(checkpoint=where, settings=memory)
    for number in range(3):
        feed(tmp_path / "in", number)
        run.process_available()
    run.stop()
    run.wait()
    uncommit_newest(where)
    commits = _query(tmp_path) / "commits"
    shutil.copytree(commits, tmp_path / "kept")
    for name in ("1", ".1.crc"):
        (commits / name).unlink()
    said = inspect(folder(where)).queries["final"].next_run
    assert "a function that is not deterministic is upstream of a sink" in said
    with pytest.raises(CheckpointDamaged, match="functions that are not deterministic gave answers"):
        _asking(tmp_path).run(until="drained", checkpoint=where, settings=memory)
    assert not (where / "set-aside").exists()
    shutil.rmtree(commits)
    shutil.copytree(tmp_path / "kept", commits)
    _asking(tmp_path).run(until="drained", checkpoint=where, settings=memory)
    assert _totals(tmp_path) == (3 * 60, True)


def _totals(data: Path) -> tuple[int, bool]:
    """How many rows there are, and whether each total is the sum of the answers so far."""
    files = [str(path) for path in (data / "out").rglob("*.parquet") if "_penstock" not in path.parts]
    rows = sorted(ds.dataset(files).to_table().to_pylist(), key=lambda row: row["total"])
    return len(rows), [row["total"] for row in rows] == [*accumulate(row["answer"] for row in rows)]


def test_temporary_files_of_spark_are_not_damage(stopped: Callable[[str], Path]) -> None:
    data = _as_it_was(stopped("memory"))
    (_query(data) / "offsets" / ".9.0c1d.tmp").write_text("")
    (_query(data) / "state" / "0" / "0" / ".9.delta.0c1d.TID9.tmp").write_text("")
    assert not inspect(folder(data / "checkpoint")).queries["final"].damaged


def test_a_checkpoint_without_its_identity_or_newest_generation_is_not_started_over(
    stopped: Callable[[str], Path], settings: Settings
) -> None:
    data = _as_it_was(stopped("memory"))
    where = data / "checkpoint"
    (where / "generations" / "2").mkdir(parents=True)
    (where / "generations" / "2" / "counted").write_bytes(b"")
    with pytest.raises(CheckpointDamaged, match="current is lost or old: generation 2 has run"):
        job(data).run(until="drained", checkpoint=where, settings=settings)
    shutil.rmtree(where / "generations")
    (where / "penstock.json").unlink()
    with pytest.raises(CheckpointDamaged, match=r"penstock\.json is missing"):
        job(data).run(until="drained", checkpoint=where, settings=settings)
