"""Run files: damage is found and named, and a cache that is missing or torn is filled again."""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from penstock.errors import CheckpointDamaged
from penstock.keyed.store import run_folder
from penstock.keyed.store.bucket_store import BucketStore, RunSettings
from penstock.keyed.store.groups import Groups, StateRows, grouped
from penstock.keyed.store.run_folder import RunFolder, about, damage
from penstock.storage.folders import Folder, LocalFolder
from penstock.storage.object_folders import ObjectFolder
from tests.s3 import BUCKET


@pytest.fixture
def store(request: pytest.FixtureRequest) -> Folder:
    """A folder on S3."""
    return ObjectFolder.at(f"s3://{BUCKET}/{uuid.uuid4().hex}", request.getfixturevalue("s3"))


@pytest.fixture(params=["disk", "s3"])
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> Folder:
    return LocalFolder(tmp_path) if request.param == "disk" else request.getfixturevalue("store")


@pytest.fixture(autouse=True)
def _nothing_is_mapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_folder, "cache_root", lambda: tmp_path / "tmp")
    run_folder._mapped.clear()


def some_groups() -> Groups:
    hashes = np.array([3, 1, 2, 1])
    return grouped([StateRows(pa.table({"v": ["c", "a", "b", "aa"]}), hashes, event=np.array([5, 9, 7, 4]))], hashes)


def test_a_run_is_read_as_it_was_written(tmp_path: Path) -> None:
    folder = RunFolder(LocalFolder(tmp_path))
    first = folder.write(some_groups(), 3, [])
    entry = folder.write(some_groups(), 4, [first])
    read = folder.read(entry)
    assert read.tables[0].column("v").to_pylist() == ["a", "aa", "b", "c"]
    assert read.event.tolist() == [4, 7, 5]
    assert read.hashes[read.event_index.positions].tolist() == [1, 3, 2]
    header = about(pa.py_buffer((tmp_path / entry.name).read_bytes()))
    assert (header["epoch"], header["beside"]) == (4, [[first.name, first.size, first.checksum]])


@pytest.mark.parametrize(("change", "reason"), [("missing", "is missing"), ("flipped", "checksum"), ("cut", "bytes")])
def test_a_damaged_run_is_named(tmp_path: Path, stored: Folder, change: str, reason: str) -> None:
    folder = RunFolder(stored)
    entry = folder.write(some_groups(), 3, [])
    shutil.rmtree(tmp_path / "tmp", ignore_errors=True)
    data = bytearray(stored.read(entry.name) or b"")
    if change == "flipped":
        data[200] ^= 1
    stored.remove(entry.name)
    if change != "missing":
        stored.write(entry.name, bytes(data[: -10 if change == "cut" else None]))
    with pytest.raises(CheckpointDamaged, match=reason) as raised:
        folder.read(entry)
    assert entry.name in str(raised.value)


def test_another_run_under_the_same_name_is_noticed(tmp_path: Path) -> None:
    folder = RunFolder(LocalFolder(tmp_path))
    entry, other = folder.write(some_groups(), 3, []), folder.write(some_groups(), 5, [])
    (tmp_path / other.name).rename(tmp_path / entry.name)
    with pytest.raises(CheckpointDamaged, match="checksum in its manifest"):
        folder.read(entry)
    assert damage(pa.py_buffer((tmp_path / entry.name).read_bytes())) is None


@pytest.mark.parametrize("torn", [None, 0, 10, -1])
def test_a_cached_copy_that_is_missing_or_torn_is_fetched_again(
    tmp_path: Path, store: Folder, torn: int | None
) -> None:
    folder = RunFolder(store)
    entry = folder.write(some_groups(), 3, [])
    (cached,) = (tmp_path / "tmp").rglob("*.run")
    data = cached.read_bytes()
    cached.unlink()
    if torn is not None:
        cached.write_bytes(data[:torn])
    assert len(folder.read(entry)) == 3
    assert cached.read_bytes() == data
    folder.remove([entry.name])
    assert (cached.exists(), folder.names()) == (False, [])


def test_an_epoch_writes_one_object_at_most(store: Folder) -> None:
    runs, state = RunSettings(RunFolder(store), 2, tail_bytes=2_000), None
    for epoch in range(12):
        before = {*store.names()}
        bucket = BucketStore.of(state, runs)
        hashes = np.arange(epoch * 10, epoch * 10 + 40)
        rows = StateRows(pa.table({"v": [str(epoch)] * 40}), hashes)
        state = bucket.replaced(bucket.read(hashes), [rows]).finished(epoch)
        assert len({*store.names()} - before) <= 1
    assert len(BucketStore.of(state, runs).everything()) == 150
