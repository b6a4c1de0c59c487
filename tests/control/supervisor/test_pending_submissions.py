"""A manager that is killed during a submission leaves a folder: the next one removes it, and no other."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from penstock.control.store.repositories.jobs import Job
from penstock.control.store.repositories.versions import Version
from penstock.control.store.store import Store
from penstock.control.supervisor.data_folder import DataFolder
from penstock.control.supervisor.pending_submissions import pending, remove_abandoned
from penstock.errors import BadEntry, StoreUnavailable
from tests.control.supervisor.running_manager import running_manager
from tests.waiting import wait_for

SUBMITTING = """
import sys
from pathlib import Path
from penstock.control.api.jobs import Submission
from penstock.control.rest.manager import Caller, Source
from penstock.control.store.store import Store
from penstock.control.supervisor.data_folder import DataFolder
from penstock.control.supervisor.options import Options
from penstock.control.supervisor.requests.submissions import Submissions

data = DataFolder(Path(sys.argv[1]))
source = Source("job.py", b"import time; time.sleep(600)")
Submissions(Store(data.store_url), Options(data)).submit(Submission(), source, Caller("ada", "operator"), None)
"""


@pytest.fixture
def data(tmp_path: Path) -> DataFolder:
    folder = DataFolder(tmp_path)
    folder.create()
    return folder


@pytest.fixture
def store(data: DataFolder) -> Iterator[Store]:
    with Store(data.store_url) as opened:
        opened.migrate()
        yield opened


def folder_of(data: DataFolder, job: str, number: int) -> Path:
    folder = data.version(job, number)
    folder.mkdir(parents=True)
    (folder / "job.py").touch()
    return folder


def test_the_folder_of_a_killed_submission_is_removed_at_the_next_start(data: DataFolder, store: Store) -> None:
    with subprocess.Popen([sys.executable, "-c", SUBMITTING, str(data.path)]) as manager:
        files = lambda: [*(data.path / "versions").rglob("job.py")]  # noqa: E731 - a name for what is waited for
        checks = psutil.Process(manager.pid).children
        wait_for(lambda: files() and checks(), "nothing was submitted", while_=lambda: manager.poll() is None)
        assert remove_abandoned(data, store) == []
        left = checks()
        manager.kill()
    for check in left:
        check.kill()
    with running_manager(data.path):
        wait_for(lambda: not files(), "the folder is still there")
    assert [*(data.path / "versions").iterdir()] == []
    assert [*data.submissions.iterdir()] == []


def test_a_version_that_is_stored_keeps_its_folder(data: DataFolder, store: Store) -> None:
    with store.begin() as write:
        write.jobs.create(Job(id="j1", name="prices"))
        write.versions.add(Version(job="j1", number=1, entry="job.py", digest=""))
    first, second = folder_of(data, "j1", 1), folder_of(data, "j1", 2)
    for number in (1, 2):
        with pytest.raises(StoreUnavailable):
            fail(data, number, StoreUnavailable("no answer to the commit"))
        assert os.listdir(data.submissions) == ["j1"]
        remove_abandoned(data, store)
    assert (first.exists(), second.exists()) == (True, False)
    assert [*data.submissions.iterdir()] == []


def test_a_refused_submission_leaves_no_mark(data: DataFolder) -> None:
    with pytest.raises(BadEntry):
        fail(data, 1, BadEntry("no pipeline"))
    assert os.listdir(data.submissions) == []


def fail(data: DataFolder, number: int, error: Exception) -> None:
    with pending(data, "j1") as mark:
        mark.version(number)
        raise error
