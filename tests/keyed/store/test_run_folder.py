"""Run files: damage is found and named, and a cache that is missing or torn is filled again."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from penstock.errors import CheckpointDamaged
from penstock.keyed.store import run_folder
from penstock.keyed.store.groups import Groups, StateRows, grouped
from penstock.keyed.store.run_folder import RunFolder, about, damage
from penstock.storage.folders import LocalFolder


class RemoteFolder(LocalFolder):
    """A folder that is not local, as far as anyone can tell."""

    local = None  # type: ignore[assignment]

    def __init__(self, path: Path) -> None:
        object.__setattr__(self, "disk", LocalFolder(path))

    url = property(lambda self: f"remote://{self.disk.url}")  # type: ignore[assignment]

    def read(self, name: str) -> bytes | None:
        return self.disk.read(name)

    def write(self, name: str, data: bytes, *, once: bool = False, sync: bool = True) -> None:
        self.disk.write(name, data)

    def names(self) -> list[str]:
        return self.disk.names()

    def remove(self, name: str) -> None:
        self.disk.remove(name)


@pytest.fixture(autouse=True)
def _nothing_is_mapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_folder.tempfile, "gettempdir", lambda: str(tmp_path / "tmp"))
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
@pytest.mark.parametrize("remote", [False, True])
def test_a_damaged_run_is_named(tmp_path: Path, change: str, reason: str, remote: bool) -> None:
    folder = RunFolder(RemoteFolder(tmp_path) if remote else LocalFolder(tmp_path))
    entry = folder.write(some_groups(), 3, [])
    shutil.rmtree(tmp_path / "tmp", ignore_errors=True)
    path = tmp_path / entry.name
    data = bytearray(path.read_bytes())
    if change == "flipped":
        data[200] ^= 1
    path.unlink()
    if change != "missing":
        path.write_bytes(data[: -10 if change == "cut" else None])
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
def test_a_cached_copy_that_is_missing_or_torn_is_fetched_again(tmp_path: Path, torn: int | None) -> None:
    folder = RunFolder(RemoteFolder(tmp_path))
    entry = folder.write(some_groups(), 3, [])
    assert len(folder.read(entry)) == 3
    (cached,) = (tmp_path / "tmp").rglob("*.run")
    data = cached.read_bytes()
    cached.unlink()
    if torn is not None:
        cached.write_bytes(data[:torn])
    run_folder._mapped.clear()
    assert len(folder.read(entry)) == 3
    assert cached.read_bytes() == data
    folder.remove([entry.name])
    assert not cached.exists()
