"""A job that exits, loops, forks, prints without end or meets a full disk harms only itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.control.api.jobs import Submission
from penstock.control.machine.states import JobState
from penstock.control.rest.manager import Source
from penstock.control.supervisor.drivers.processes import identify
from penstock.control.supervisor.requests import plan_checks
from penstock.driver.output import FILES, MAX_BYTES
from penstock.errors import BadEntry, DiskFull
from tests.control.supervisor.running_manager import CALLER, RunningManager, running_manager
from tests.crash.disk import SmallDisk
from tests.waiting import wait_for

ONCE = {"kind": "none"}
DISK_MB = 40


@pytest.fixture(scope="module")
def manager(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningManager]:
    """One manager with a job that nothing may disturb; it is looked at again after all tests."""
    with running_manager(tmp_path_factory.mktemp("data"), stall_seconds=1.0) as running:
        steady = running.add("steady")
        pid = running.wait_for_state(steady, JobState.RUNNING).pid
        yield running
        seen = running.epochs(steady)
        wait_for(lambda: running.epochs(steady) > seen, "the other job does not go on")
        assert (running.get(steady).pid, len(running.starts(steady))) == (pid, 1)


def failure_of(manager: RunningManager, job: str) -> str:
    error = manager.wait_for_state(job, JobState.FAILED).error
    assert error is not None
    return str(error["message"])


def test_a_job_that_exits_fails_with_its_exit_code(manager: RunningManager) -> None:
    assert "exit code 7" in failure_of(manager, manager.add("exits", "exit", policy=ONCE))


def test_a_job_that_loops_is_ended_once_it_stalls(manager: RunningManager) -> None:
    assert "no epoch" in failure_of(manager, manager.add("loops", "loop", policy=ONCE))


def test_what_a_job_forked_ends_with_it(manager: RunningManager) -> None:
    job = manager.add("forks", "fork")
    wait_for(lambda: (manager.checkpoint(job) / "forked").exists(), "nothing was forked")
    manager.wait_for_state(job, JobState.RUNNING)
    child = int((manager.checkpoint(job) / "forked").read_text())
    assert identify(child) is not None
    assert manager.wait_for_command(manager.request(job, "stop")) == "done"
    wait_for(lambda: identify(child) is None, "what it forked still runs")


def test_a_job_that_prints_much_has_a_bounded_log(manager: RunningManager) -> None:
    job = manager.add("prints", "print")
    wait_for(lambda: manager.epochs(job) > 1, "it does not go on")
    sizes = [path.stat().st_size for path in manager.data.run(f"{job}-1").glob("driver.log*")]
    assert MAX_BYTES < sum(sizes) <= FILES * MAX_BYTES
    assert manager.manager.logs("prints", 1)
    manager.request(job, "cancel")


def test_a_file_that_prints_much_while_its_plan_is_built_is_refused(manager: RunningManager) -> None:
    target = manager.data.path / "prints.py"
    target.write_text("while True: print('x' * 2**20)")
    with pytest.raises(BadEntry):
        plan_checks.check_plan({"job": "j", "target": str(target), "checkpoint": "c"}, 30.0)


@pytest.mark.skipif(not SmallDisk.can_be_had(), reason="only root may mount a small disk")
def test_a_full_disk_refuses_submissions_and_loses_no_job(tmp_path: Path) -> None:
    disk = SmallDisk.mounted(tmp_path / "disk", DISK_MB)
    checkpoint = tmp_path / "checkpoint"
    try:
        with running_manager(disk.folder) as manager:
            job = manager.add("steady", checkpoint=str(checkpoint))
            pid = manager.wait_for_state(job, JobState.RUNNING).pid
            disk.fill()
            with pytest.raises(DiskFull, match="are free") as refused:
                manager.manager.submit(Submission(), Source("job.py", b""), CALLER, None)
            assert "running jobs go on" in (refused.value.hint or "")
            committed = int((checkpoint / "epoch").read_text())
            wait_for(lambda: int((checkpoint / "epoch").read_text()) > committed + 20, "the job does not go on")
            disk.free()
            seen = manager.epochs(job)
            wait_for(lambda: manager.epochs(job) > seen, "epochs are not recorded again")
            assert (manager.get(job).pid, manager.get(job).restarts) == (pid, 0)
            assert manager.wait_for_command(manager.request(job, "stop")) == "done"
    finally:
        disk.end()
