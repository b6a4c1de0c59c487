"""Promise: keyed state in runs is restored, copied, migrated, shown and checked like all other state."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest

import penstock as ps
from penstock.errors import CheckpointDamaged, CheckpointMismatch
from penstock.keyed.store.run_folder import epoch_of
from penstock.native.key_buckets import KeyBuckets
from penstock.plan.operators.node import BUCKETS
from penstock.report import Progress
from penstock.settings import Settings
from penstock.spark.checkpoints import checkpoint
from penstock.spark.checkpoints.history import History
from penstock.spark.checkpoints.inspect import inspect
from penstock.spark.checkpoints.savepoints import create_savepoint, restore_savepoint
from penstock.spark.checkpoints.state.manifests import runs_named
from penstock.spark.checkpoints.state.reader import read_state
from penstock.spark.lowering.buckets import TAIL_VARIABLE
from penstock.storage.folders import folder
from tests.spark.stateful_jobs import on, snapshots_soon

KEYS, ROWS, RETENTION, FED = 40, 60, 2, 8


class Running(ps.Process):
    output = "k bigint, n bigint"
    n = ps.state.value(int)

    def on_row(self, row: dict[str, Any], ctx: ps.Context) -> Iterator[dict[str, Any]]:
        self.n.set(self.n.get(0) + 1)
        yield {"k": row["k"], "n": self.n.get()}


class Job:
    """A process function whose every epoch writes runs, over files of one epoch each."""

    def __init__(self, home: Path, settings: Settings) -> None:
        self.home, self.settings, self.fed = home, settings, 0

    @property
    def checkpoint(self) -> Path:
        return self.home / "checkpoint"

    def feed(self, files: int) -> None:
        (self.home / "in").mkdir(parents=True, exist_ok=True)
        for number in range(self.fed, self.fed + files):
            keys = "".join(f"{row * 7 % KEYS}\n" for row in range(number * ROWS, (number + 1) * ROWS))
            (self.home / "in" / f"{number:04}.csv").write_text("k\n" + keys)
        self.fed += files

    def run(self, *, changed: bool = False, checkpoint: Path | None = None) -> Progress:
        rows = ps.read_files(str(self.home / "in"), format="csv", schema="k bigint")
        rows = rows.filter("k >= 0") if changed else rows
        made = rows.key_by("k").process(Running()).named("running").to(ps.files(str(self.home / "out")))
        pipeline = ps.Pipeline("runs", made)
        run = pipeline.start(until="drained", checkpoint=checkpoint or self.checkpoint, settings=self.settings)
        run.wait()
        return run.progress()

    def written(self) -> Counter[tuple[int, int]]:
        found = duckdb.sql(f"SELECT k, n FROM read_parquet('{self.home}/out/*.parquet')").fetchall()
        return Counter((k, n) for k, n in found)

    def expected(self) -> Counter[tuple[int, int]]:
        seen: Counter[int] = Counter()
        rows: Counter[tuple[int, int]] = Counter()
        for row in range(self.fed * ROWS):
            seen[row * 7 % KEYS] += 1
            rows[row * 7 % KEYS, seen[row * 7 % KEYS]] += 1
        return rows

    def runs(self) -> list[Path]:
        return sorted(self.checkpoint.rglob("*.run"), key=lambda path: epoch_of(path.name))


@pytest.fixture(scope="module")
def first(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Job]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(TAIL_VARIABLE, "0")
        small = replace(on(settings, "memory"), epoch_rows=ROWS, checkpoint_retention=RETENTION)
        job = Job(tmp_path_factory.mktemp("keyed"), small)
        job.feed(FED)
        job.run()
        yield job


@pytest.fixture
def job(first: Job, tmp_path: Path) -> Iterator[Job]:
    """The job, to be changed and damaged: its files are put back."""
    fed = first.fed
    shutil.copytree(first.home, tmp_path / "copy")
    yield first
    shutil.rmtree(first.home)
    shutil.copytree(tmp_path / "copy", first.home)
    first.fed = fed


def test_epochs_leave_runs_and_old_ones_are_deleted(first: Job) -> None:
    assert first.written() == first.expected()
    assert first.runs()
    assert max(Counter(path.parent for path in first.runs()).values()) <= RETENTION + 8
    assert inspect(folder(first.checkpoint)).all_damaged == {}


@pytest.mark.parametrize("buckets", [3, pytest.param(40, marks=pytest.mark.slow)])
def test_a_checkpoint_keeps_the_number_of_buckets_that_it_started_with(
    first: Job, tmp_path: Path, buckets: int
) -> None:
    job = Job(tmp_path, replace(first.settings, state_buckets=buckets))
    job.feed(1)
    job.run()
    used = {path.parent.name for path in job.runs()}
    numbers = set(map(str, KeyBuckets(buckets).numbers.tolist()))
    assert used <= numbers
    assert len(used) > 1
    job.feed(1)
    job.settings = first.settings
    job.run()
    assert job.written() == job.expected()
    assert {path.parent.name for path in job.runs()} <= numbers
    job.settings = replace(first.settings, state_buckets=buckets + 1)
    with pytest.raises(CheckpointMismatch, match=f"state_buckets = {buckets + 1}: .* has {buckets}"):
        job.run()


def test_an_older_checkpoint_keeps_the_numbers_of_its_buckets(
    first: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job(tmp_path, first.settings)
    job.feed(1)
    with monkeypatch.context() as older:
        made = checkpoint.new_identity
        older.setattr(checkpoint, "new_identity", lambda *given: replace(made(*given), even_buckets=False))
        job.run()
    job.feed(1)
    job.run(changed=True)
    assert job.written() == job.expected()
    assert {path.parent.name for path in job.runs()} <= {str(number) for number in range(BUCKETS)}


def test_a_single_key_is_read_without_the_others(first: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    (found,) = read_state(folder(first.checkpoint), first.settings, key="7").rows
    assert found == {"k": 7, "n": first.fed * ROWS // KEYS, "timers": {}}
    assert len(read_state(folder(first.checkpoint), first.settings).rows) == KEYS
    assert read_state(folder(first.checkpoint), first.settings, key="77").rows == []


def test_a_changed_plan_goes_on_from_the_runs(job: Job) -> None:
    job.feed(1)
    assert job.run(changed=True).state_rows == KEYS
    assert (job.checkpoint / "current").read_text() == "2"
    assert any("generations" in path.parts for path in job.runs())
    assert job.written() == job.expected()
    assert inspect(folder(job.checkpoint)).all_damaged == {}


def test_a_savepoint_has_the_runs_and_a_job_restored_from_it_goes_on(job: Job) -> None:
    savepoints, restored = folder(job.home / "savepoints"), job.home / "restored"
    create_savepoint(folder(job.checkpoint), savepoints, "a")
    shutil.rmtree(job.checkpoint)
    restore_savepoint(savepoints / "a", folder(restored))
    shutil.rmtree(job.home / "savepoints")
    shutil.rmtree(job.home / "out")
    job.feed(1)
    assert inspect(folder(restored)).all_damaged == {}
    job.run(checkpoint=restored)
    assert inspect(folder(restored)).all_damaged == {}
    before = Counter({row: 1 for row in job.expected() if row[1] <= FED * ROWS // KEYS})
    assert job.written() == job.expected() - before


def test_a_damaged_run_is_found_and_named(job: Job) -> None:
    damaged = job.runs()[-1]
    data = bytearray(damaged.read_bytes())
    data[len(data) // 2] ^= 1
    damaged.write_bytes(data)
    name = str(damaged.relative_to(job.checkpoint))
    assert inspect(folder(job.checkpoint)).all_damaged == {name: "does not match its checksum"}
    with pytest.raises(CheckpointDamaged, match="no savepoint was created"):
        create_savepoint(folder(job.checkpoint), folder(job.home / "savepoints"))
    job.feed(1)
    with pytest.raises(CheckpointDamaged, match=damaged.name):
        job.run()
    data[len(data) // 2] ^= 1
    damaged.write_bytes(data)
    job.run()
    assert job.written() == job.expected()


def test_the_size_of_state_is_that_of_its_keys_and_files_also_after_a_restart(job: Job) -> None:
    # After the test of damage: workers have runs mapped that they read once, and do not look at the files again.
    job.feed(1)
    now = job.run()
    files = {path.name: path.stat().st_size for path in job.runs()}
    assert now.state_rows == KEYS
    assert 0 < now.state_bytes <= sum(files.values()) + KEYS * 1000
    assert (now.nodes["running"].state_rows, now.nodes["running"].state_bytes) == (KEYS, now.state_bytes)


def missing(job: Job) -> set[str]:
    return {name for name, why in inspect(folder(job.checkpoint)).all_damaged.items() if "is missing" in why}


def test_every_run_that_the_newest_state_needs_is_missed(job: Job) -> None:
    needed, kept = set(), 0
    for path in job.runs():
        data = path.read_bytes()
        path.unlink()
        name = str(path.relative_to(job.checkpoint))
        reported = missing(job)
        needed |= reported
        kept += name not in reported
        assert reported <= {name}
        path.write_bytes(data)
    buckets = {path.parent for path in job.runs()}
    assert {job.checkpoint / Path(name).parent for name in needed} == buckets
    # Runs that only earlier epochs need are not missed.
    assert kept < len(job.runs()) - len(buckets) + 1


@pytest.mark.parametrize("what", ["keyed", "keyed/final/running/{bucket}"])
def test_keyed_state_that_is_deleted_is_reported_and_not_saved(job: Job, what: str) -> None:
    bucket = job.runs()[-1].parent
    gone = job.checkpoint / what.format(bucket=bucket.name)
    shutil.rmtree(gone)
    assert any(name.startswith(f"keyed/final/running/{bucket.name}/") for name in missing(job))
    with pytest.raises(CheckpointDamaged, match=r"no savepoint was created: keyed/final/.* is missing"):
        create_savepoint(folder(job.checkpoint), folder(job.home / "savepoints"))


def test_keyed_state_is_missed_where_the_manifests_are_in_rocksdb(first: Job, tmp_path: Path) -> None:
    """The newest manifests are in a changelog after a snapshot, and in tables that have older ones too."""
    job = Job(tmp_path, replace(first.settings, state="rocksdb"))
    with snapshots_soon(job.settings):
        for _ in range(3):
            job.feed(1)
            job.run()
    data = folder(job.checkpoint)
    assert list(job.checkpoint.rglob("*.zip"))
    assert inspect(data).all_damaged == {}
    history = History(data / "queries" / "final", 1)
    there = {str(path.relative_to(job.checkpoint / "keyed/final/running")) for path in job.runs()}
    for epoch in history.committed:
        named = runs_named(history, 0, epoch)
        assert named
        assert named <= there
        assert max(epoch_of(Path(name).name) for name in named) == epoch
    shutil.rmtree(job.checkpoint / "keyed")
    newest = runs_named(history, 0, max(history.committed)) or set()
    assert missing(job) == {f"keyed/final/running/{name}" for name in newest}
    with pytest.raises(CheckpointDamaged, match=r"no savepoint was created: keyed/final/.* is missing"):
        create_savepoint(data, folder(tmp_path / "savepoints"))
