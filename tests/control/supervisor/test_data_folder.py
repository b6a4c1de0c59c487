"""One manager to a data folder, and no submission onto a full disk."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from penstock.control.supervisor.data_folder import DataFolder, FolderLock
from penstock.errors import DiskFull, SettingsError


def test_a_second_manager_on_the_folder_is_refused_with_the_process_id_of_the_first(tmp_path: Path) -> None:
    first = FolderLock(tmp_path)
    first.acquire()
    with pytest.raises(SettingsError, match=f"process id {os.getpid()}"):
        FolderLock(tmp_path).acquire()
    first.release()
    second = FolderLock(tmp_path)
    second.acquire()
    second.release()


def test_a_nearly_full_disk_is_refused_with_what_is_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = DataFolder(tmp_path)
    folder.check_space()
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: shutil._ntuple_diskusage(10**9, 10**9, 10 * 1024**2))
    with pytest.raises(DiskFull, match="10 MiB are free"):
        folder.check_space()


def test_a_file_instead_of_the_folder_is_a_settings_error(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    with pytest.raises(SettingsError, match="cannot use the data folder"):
        DataFolder(tmp_path / "data").create()


def test_checkpoints_may_be_in_an_object_store(tmp_path: Path) -> None:
    assert DataFolder(tmp_path, "s3://bucket/checkpoints").checkpoint("j1") == "s3://bucket/checkpoints/j1"
    assert DataFolder(tmp_path).checkpoint("j1") == str(tmp_path / "checkpoints" / "j1")
