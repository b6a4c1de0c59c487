"""A submission is checked before it is accepted; a mistake is the error that `penstock explain` prints."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.control.api.jobs import Submission, Update
from penstock.control.api.pages import Paging
from penstock.control.machine.states import JobState
from penstock.control.rest.manager import IdempotencyKey, Source
from penstock.control.supervisor.requests import plan_checks
from penstock.errors import BadArchive, BadEntry, BadValue, JobExists, PenstockError, RequestRefused, UnknownColumn
from tests.control.supervisor.running_manager import CALLER, RunningManager, running_manager

GOOD = b"""
import penstock as ps
rows = ps.datagen("trades", rate=10)
pipeline = ps.Pipeline("prices", rows.filter("size > 0").to(ps.collect()))
"""
WRONG = GOOD.replace(b"size > 0", b"sise > 0")
LOOPS = b"while True: pass"
SQL = b"""
CREATE TABLE trade (id BIGINT, size BIGINT) WITH (connector = 'datagen', rows = 10);
CREATE SINK large WITH (connector = 'console');
INSERT INTO large SELECT id FROM trade WHERE size > 0;
"""
FORKS = (
    b"""
import subprocess, sys
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
"""
    + GOOD
)


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[RunningManager]:
    with running_manager(tmp_path, check_seconds=60.0) as running:
        yield running


def submit(manager: RunningManager, content: bytes, file: str = "job.py", **fields: object) -> str:
    submission = Submission.model_validate(fields)
    return manager.manager.submit(submission, Source(file, content), CALLER, None).job.id


def files(manager: RunningManager) -> list[Path]:
    return [path for path in (manager.data.path / "versions").rglob("*") if path.is_file()]


def test_a_submitted_pipeline_gets_its_name_and_its_plan_and_runs(manager: RunningManager) -> None:
    key = IdempotencyKey("k1", "digest")
    first = manager.manager.submit(Submission(), Source("job.py", GOOD), CALLER, key)
    again = manager.manager.submit(Submission(), Source("job.py", GOOD), CALLER, key)
    assert (first.created, again.created, again.job.id) == (True, False, first.job.id)
    with pytest.raises(RequestRefused, match="another request"):
        manager.manager.submit(Submission(), Source("job.py", GOOD), CALLER, IdempotencyKey("k1", "other"))
    assert first.job.name == "prices"
    assert manager.manager.plan("prices", None).plan
    manager.wait_for_state(first.job.id, JobState.RUNNING)
    with pytest.raises(JobExists):
        submit(manager, GOOD)
    with pytest.raises(RequestRefused, match="cannot delete job 'prices': it is RUNNING"):
        manager.request(first.job.id, "delete")


def test_a_mistake_is_the_error_of_explain_and_leaves_nothing(manager: RunningManager) -> None:
    with pytest.raises(UnknownColumn, match="sise") as raised:
        submit(manager, WRONG)
    assert "did you mean 'size'?" in (raised.value.hint or "")
    assert (raised.value.hint or "").endswith("\n  at job.py:4")
    assert files(manager) == []
    assert manager.store.jobs.all() == []


def test_a_pipeline_that_never_returns_is_ended(manager: RunningManager) -> None:
    assignment = {"job": "j", "target": _file(manager, LOOPS), "checkpoint": "c"}
    with pytest.raises(BadEntry, match="more than 1 s"):
        plan_checks.check_plan(assignment, 1.0)


def test_what_a_check_started_and_left_is_killed(manager: RunningManager, monkeypatch: pytest.MonkeyPatch) -> None:
    killed: list[int] = []
    real = plan_checks.kill_all
    monkeypatch.setattr(plan_checks, "kill_all", lambda mark: killed.append(real(mark)))
    plan_checks.check_plan({"job": "j", "target": _file(manager, FORKS), "checkpoint": "c"}, 60.0)
    assert killed == [1]


def test_secrets_of_the_manager_are_not_in_the_environment_of_a_check(
    manager: RunningManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_SECRET_DB", "hunter2")
    code = b"import os\nassert 'PENSTOCK_SECRET_DB' not in os.environ\n" + GOOD
    assert plan_checks.check_plan({"job": "j", "target": _file(manager, code), "checkpoint": "c"}, 60.0).plan


@pytest.mark.parametrize(
    ("name", "content", "fields", "error"),
    [
        ("job.sh", GOOD, {}, BadEntry),
        ("../job.py", GOOD, {}, BadEntry),
        ("job.zip", b"not a zip", {}, BadArchive),
        ("job.py", GOOD, {"memory": "lots"}, BadValue),
        ("job.py", GOOD, {"restart_policy": "sometimes"}, BadValue),
        ("job.py", GOOD, {"autoscaling": "by:feel=1"}, BadValue),
        ("job.py", GOOD, {"entry": "other.py"}, BadEntry),
    ],
)
def test_bad_input_is_refused_before_a_process_is_started(
    manager: RunningManager, name: str, content: bytes, fields: dict[str, object], error: type[PenstockError]
) -> None:
    with pytest.raises(error):
        submit(manager, content, name, **fields)
    assert files(manager) == []


def test_a_zip_of_a_folder_is_a_source_too(manager: RunningManager) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("main.py", b"import names\n" + GOOD.replace(b'"trades"', b"names.SOURCE"))
        archive.writestr("names.py", 'SOURCE = "trades"')
    job = submit(manager, packed.getvalue(), "folder.zip", name="zipped")
    assert manager.get(job).entry == "main.py"
    update = manager.manager.update("zipped", Update(), Source("job.py", GOOD), CALLER)
    assert manager.wait_for_command(update.id) == "done"
    assert [one.number for one in manager.manager.versions(job, Paging()).items] == [2, 1]


def test_an_sql_file_is_a_source_too(manager: RunningManager) -> None:
    job = manager.get(submit(manager, SQL, "prices.sql"))
    assert (job.name, job.entry) == ("prices", "prices.sql")
    assert any(node["kind"] == "view" for node in manager.manager.plan("prices", None).plan["nodes"])
    with pytest.raises(UnknownColumn, match="sise") as raised:
        submit(manager, SQL.replace(b"size > 0", b"sise > 0"), "wrong.sql")
    assert (raised.value.hint or "").endswith("\n  at wrong.sql:4")
    with pytest.raises(BadEntry, match="takes no --set rows"):
        submit(manager, SQL, "wrong.sql", arguments={"rows": 5})


def _file(manager: RunningManager, content: bytes) -> str:
    path = manager.data.path / "checked.py"
    path.write_bytes(content)
    return str(path)
