"""A deleted job leaves no files: neither on this disk nor in an object store; what fails is tried again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.control.store.repositories.jobs import Job
from penstock.control.store.store import Store
from penstock.control.supervisor.data_folder import DataFolder
from penstock.control.supervisor.leader.file_removal import remove_files_of_deleted_jobs
from tests.control.supervisor.running_manager import running_manager
from tests.s3 import BUCKET
from tests.waiting import wait_for


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    data = DataFolder(tmp_path)
    data.create()
    with Store(data.store_url) as opened:
        opened.migrate()
        yield opened


def delete(store: Store, job: str, checkpoint: str) -> None:
    store.jobs.create(Job(id=job, name=job, checkpoint=checkpoint))
    store.jobs.delete(job)


@pytest.mark.slow
def test_a_checkpoint_in_an_object_store_is_deleted_with_its_job(
    s3: dict[str, str], store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from penstock.storage.object_folders import ObjectFolder

    for name, value in s3.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    below = ObjectFolder.at(f"s3://{BUCKET}/{tmp_path.name}/checkpoints", s3)
    for name in ("j1/offsets/0", "j1/offsets/1", "j10/offsets/0"):
        below.write(name, b"x")
    delete(store, "j1", f"{below.url}/j1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    remove_files_of_deleted_jobs(DataFolder(tmp_path), store)
    assert [job.id for job in store.jobs.deleted()] == ["j1"], "the store did not answer, so it is tried again"
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3["AWS_ENDPOINT_URL"])
    remove_files_of_deleted_jobs(DataFolder(tmp_path), store)
    assert store.jobs.deleted() == []
    assert list(below.files()) == ["j10/offsets/0"]


def test_files_of_a_job_that_was_deleted_right_before_a_crash_are_removed_at_the_next_start(
    store: Store, tmp_path: Path
) -> None:
    data = DataFolder(tmp_path)
    left = [data.version("j1", 1), data.run("j1-1"), Path(data.checkpoint("j1"))]
    for folder in left:
        folder.mkdir(parents=True)
    delete(store, "j1", data.checkpoint("j1"))
    with running_manager(tmp_path):
        wait_for(lambda: not any(folder.exists() for folder in left), "the files are still there")
        wait_for(lambda: store.jobs.deleted() == [], "it is not noted")


def test_a_checkpoint_that_is_not_the_jobs_own_stays(store: Store, tmp_path: Path) -> None:
    shared = tmp_path / "elsewhere"
    shared.mkdir()
    delete(store, "j1", str(shared))
    remove_files_of_deleted_jobs(DataFolder(tmp_path), store)
    assert shared.exists()
    assert store.jobs.deleted() == []
