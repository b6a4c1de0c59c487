"""Jobs are started, watched, restarted and stopped, each in a process of its own. Spark is replaced by scripts."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.control.machine.states import JobState
from penstock.control.supervisor.capacity import GIB, Capacity
from penstock.control.supervisor.drivers.processes import identify
from tests.control.supervisor.running_manager import RunningManager, end_drivers, running_manager
from tests.waiting import wait_for

RUNNING, FAILED, STOPPED, FINISHED = JobState.RUNNING, JobState.FAILED, JobState.STOPPED, JobState.FINISHED


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[RunningManager]:
    with running_manager(tmp_path) as running:
        yield running


def test_a_job_runs_commits_epochs_and_stops_with_a_savepoint(manager: RunningManager) -> None:
    job = manager.add("prices")
    running = manager.wait_for_state(job, RUNNING)
    assert running.pid == manager.starts(job)[0]
    wait_for(lambda: manager.epochs(job) > 2, "no epoch was stored")
    command = manager.request(job, "stop", savepoint="before-lunch")
    assert manager.wait_for_command(command) == "done"
    stopped = manager.wait_for_state(job, STOPPED)
    assert stopped.pid is None
    assert stopped.ended_at is not None
    wait_for(lambda: manager.store.savepoints.find(job, "before-lunch"), "the savepoint was not stored")
    history = [(one.from_state, one.to_state) for one in manager.store.transitions.page(job).items]
    assert history[0] == ("STOPPING", "STOPPED")
    assert history[-1][1] == "STARTING"


def test_a_killed_driver_is_restarted_once_with_its_cause(manager: RunningManager) -> None:
    job = manager.add("prices")
    first = manager.wait_for_state(job, RUNNING).pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    wait_for(lambda: len(manager.starts(job)) == 2, "the job was not restarted")
    after = manager.wait_for_state(job, RUNNING)
    assert (after.restarts, after.pid) == (1, manager.starts(job)[1])
    assert not manager.ran_twice(job)
    (error,) = manager.store.exceptions.page(job).items
    assert "SIGKILL" in error.message


def test_a_failure_that_may_pass_is_restarted(manager: RunningManager) -> None:
    job = manager.add("prices", "fail_once")
    wait_for(lambda: len(manager.starts(job)) == 2, "the job was not restarted")
    manager.wait_for_state(job, RUNNING)
    assert manager.store.exceptions.page(job).items[0].type == "SourceFailed"


def test_a_job_that_always_fails_ends_failed_with_its_cause(manager: RunningManager) -> None:
    job = manager.add("prices", "fail", policy={"kind": "fixed_delay", "delay": 0.01, "attempts": 2})
    failed = manager.wait_for_state(job, FAILED)
    assert failed.error is not None
    assert failed.error["message"].startswith("the source is away")
    assert len(manager.starts(job)) == 3


def test_a_mistake_in_the_pipeline_is_not_tried_again(manager: RunningManager) -> None:
    job = manager.add("prices", "mistake")
    failed = manager.wait_for_state(job, FAILED)
    assert failed.error is not None
    assert failed.error["type"] == "BadEntry"
    assert failed.attempt == 1


def test_a_job_that_reaches_its_end_is_finished(manager: RunningManager) -> None:
    job = manager.add("prices", "finish", until="ended")
    finished = manager.wait_for_state(job, FINISHED)
    assert finished.error is None
    wait_for(lambda: manager.epochs(job) == 3, "epochs are missing")


def test_a_canceled_job_ends_even_if_it_does_not_stop_when_asked(manager: RunningManager) -> None:
    job = manager.add("prices", "deaf")
    manager.wait_for_state(job, RUNNING)
    command = manager.request(job, "cancel")
    assert manager.wait_for_command(command) == "done"
    manager.wait_for_state(job, JobState.CANCELED)


def test_a_stopped_job_continues_from_its_checkpoint_when_it_is_restarted(manager: RunningManager) -> None:
    job = manager.add("prices")
    wait_for(lambda: manager.epochs(job) > 0, "it has no epoch")
    manager.request(job, "stop")
    manager.wait_for_state(job, STOPPED)
    last = int((manager.checkpoint(job) / "epoch").read_text())
    manager.request(job, "restart")
    manager.wait_for_state(job, RUNNING)
    wait_for(lambda: int((manager.checkpoint(job) / "epoch").read_text()) > last, "it does not go on")


def test_an_update_that_does_not_run_is_rolled_back(manager: RunningManager) -> None:
    job = manager.add("prices")
    manager.wait_for_state(job, RUNNING)
    number = manager.add_version(job, "mistake")
    command = manager.store.commands.add(job, "update", {"version": number})
    manager.leadership.wake()
    assert manager.wait_for_command(command.id) == "failed"
    message = manager.store.commands.get(command.id).message
    assert message is not None
    assert "rolled back to version 1" in message
    running = manager.wait_for_state(job, RUNNING)
    assert (running.version, running.arguments) == (1, {"behaviour": "run"})


def test_an_update_runs_the_new_version(manager: RunningManager) -> None:
    job = manager.add("prices")
    manager.wait_for_state(job, RUNNING)
    command = manager.store.commands.add(job, "update", {"version": manager.add_version(job, "idle")})
    manager.leadership.wake()
    assert manager.wait_for_command(command.id) == "done"
    running = manager.wait_for_state(job, RUNNING)
    assert (running.version, running.arguments) == (2, {"behaviour": "idle"})


def test_a_job_is_rescaled_before_its_first_epoch(manager: RunningManager) -> None:
    job = manager.add("prices", "idle")
    manager.wait_for_state(job, RUNNING)
    assert manager.wait_for_command(manager.request(job, "rescale", parallelism=2)) == "done"
    assert manager.wait_for_state(job, RUNNING).parallelism == 2


def test_a_deleted_job_leaves_no_files_and_its_name_is_free(manager: RunningManager) -> None:
    job = manager.add("prices")
    manager.wait_for_state(job, RUNNING)
    manager.request(job, "cancel")
    manager.wait_for_state(job, JobState.CANCELED)
    manager.request(job, "delete")
    wait_for(lambda: manager.store.jobs.find(job) is None, "the job is still there")
    wait_for(lambda: not manager.data.versions(job).exists(), "its source is still there")
    manager.add("prices")


def test_a_driver_that_is_silent_is_killed_and_restarted(tmp_path: Path) -> None:
    with running_manager(tmp_path, lost_seconds=1.0) as manager:
        job = manager.add("prices")
        pid = manager.wait_for_state(job, RUNNING).pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        wait_for(lambda: len(manager.starts(job)) == 2, "the job was not restarted", seconds=30)
        manager.wait_for_state(job, RUNNING)
        assert "no heartbeat" in manager.store.exceptions.page(job).items[0].message
        assert not manager.ran_twice(job)


def test_a_job_above_its_memory_is_killed_with_the_reason(manager: RunningManager) -> None:
    job = manager.add("prices", "eat", memory="256m", policy={"kind": "none"})
    failed = manager.wait_for_state(job, FAILED)
    assert failed.error is not None
    assert "its limit is 0.2 GiB" in failed.error["message"]


def test_a_job_that_does_not_fit_waits_and_says_why(tmp_path: Path) -> None:
    with running_manager(tmp_path, capacity=Capacity(2, 2 * GIB)) as manager:
        first = manager.add("first")
        manager.wait_for_state(first, RUNNING)
        second = manager.add("second")
        wait_for(lambda: manager.get(second).reason, "it does not say why it waits")
        assert manager.get(second).reason == "needs 1.5 GiB of memory, and 0.5 of 2.0 GiB are free"
        manager.request(first, "stop")
        assert manager.wait_for_state(second, RUNNING).reason is None


# A machine that stands still for longer than a lease begins another term, with spares of its own.
ONE_TERM = {"lease_seconds": 60.0}


def test_a_spare_driver_takes_the_next_job(tmp_path: Path) -> None:
    with running_manager(tmp_path, spares=1, **ONE_TERM) as manager:

        def spares() -> list[int]:
            term = manager.leadership.term
            return [one.process.pid for one in term.drivers if one.is_spare and one.is_connected] if term else []

        wait_for(spares, "no spare was started")
        (spare,) = spares()
        job = manager.add("prices")
        assert manager.wait_for_state(job, RUNNING).pid == spare
        wait_for(lambda: spares() and spares() != [spare], "the spare was not replaced")


def test_a_manager_that_leaves_ends_its_spares_and_starts_no_other(tmp_path: Path) -> None:
    with running_manager(tmp_path, spares=1, **ONE_TERM) as manager:
        wait_for(lambda: manager.leadership.term, "no term was started")
        term = manager.leadership.term
        assert term is not None
        wait_for(lambda: any(one.is_connected for one in term.drivers), "no spare was started")
        (spare,) = [one.process.pid for one in term.drivers]
        manager.leave()
        wait_for(lambda: identify(spare) is None, "the spare still runs")
        assert term.shutting_down


def test_jobs_of_a_pool_share_a_driver_and_fail_alone(manager: RunningManager) -> None:
    steady = manager.add("steady", pool="small")
    shaky = manager.add("shaky", "fail_once", pool="small")
    wait_for(lambda: len(manager.starts(shaky)) == 2, "the failed job was not restarted")
    manager.wait_for_state(shaky, RUNNING)
    pid = manager.wait_for_state(steady, RUNNING).pid
    assert {*manager.starts(shaky), *manager.starts(steady)} == {pid}
    assert len(manager.starts(steady)) == 1
    assert [line for line in manager.manager.logs("steady", 99) if "job is" in line] == ["the job is steady"]
    assert [line for line in manager.manager.logs("shaky", 99) if "job is" in line] == ["the job is shaky"] * 2


def test_a_shutdown_stops_jobs_and_the_next_manager_resumes_them(tmp_path: Path) -> None:
    first = RunningManager(tmp_path).start()
    try:
        job = first.add("prices")
        pid = first.wait_for_state(job, RUNNING).pid
        first.shut_down()
        with running_manager(tmp_path) as second:
            assert second.wait_for_state(job, RUNNING).pid != pid
            assert len(second.starts(job)) == 2
            assert not second.ran_twice(job)
    finally:
        end_drivers(tmp_path)
