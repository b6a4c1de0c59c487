"""Killing the job manager stops no job: the next one adopts what runs, and learns how the rest ended."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.control.machine.states import JobState
from penstock.control.store.repositories.leases import MANAGER
from penstock.control.supervisor.drivers.connection import DriverConnection, TokenRefused
from penstock.control.supervisor.drivers.processes import identify
from tests.control.supervisor.running_manager import RunningManager, end_drivers, running_manager
from tests.waiting import wait_for

RUNNING = JobState.RUNNING


@pytest.fixture
def data(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    end_drivers(tmp_path)


def test_the_next_manager_adopts_a_running_driver(data: Path) -> None:
    first = RunningManager(data).start()
    job = first.add("prices")
    pid = first.wait_for_state(job, RUNNING).pid
    first.kill()
    with running_manager(data) as second:
        known = second.epochs(job)
        wait_for(lambda: second.epochs(job) > known, "the new manager gets no epochs")
        assert second.wait_for_state(job, RUNNING).pid == pid
        command = second.request(job, "stop")
        assert second.wait_for_command(command) == "done"
        assert len(second.starts(job)) == 1


def test_a_job_that_finished_without_a_manager_is_finished(data: Path) -> None:
    first = RunningManager(data).start()
    job = first.add("prices", "finish", until="ended")
    wait_for(lambda: first.starts(job), "the job did not start")
    first.kill()
    (pid,) = first.starts(job)
    wait_for(lambda: identify(pid) is None, "the driver did not end")
    with running_manager(data) as second:
        second.wait_for_state(job, JobState.FINISHED)
        assert len(second.starts(job)) == 1


def test_a_driver_that_was_killed_without_a_manager_is_restarted(data: Path) -> None:
    first = RunningManager(data).start()
    job = first.add("prices")
    pid = first.wait_for_state(job, RUNNING).pid
    assert pid is not None
    first.kill()
    os.kill(pid, signal.SIGKILL)
    with running_manager(data) as second:
        wait_for(lambda: len(second.starts(job)) == 2, "the job was not restarted")
        second.wait_for_state(job, RUNNING)
        assert not second.ran_twice(job)


def test_a_command_that_was_stored_before_the_crash_is_carried_out(data: Path) -> None:
    first = RunningManager(data).start()
    job = first.add("prices")
    first.wait_for_state(job, RUNNING)
    first.kill()
    command = first.store.commands.add(job, "stop", {})
    with running_manager(data) as second:
        assert second.wait_for_command(command.id) == "done"
        second.wait_for_state(job, JobState.STOPPED)


def test_a_standby_takes_over_and_the_old_token_is_refused(data: Path) -> None:
    first = RunningManager(data).start()
    job = first.add("prices")
    pid = first.wait_for_state(job, RUNNING).pid
    with running_manager(data, holder="standby") as second:
        assert not second.leadership.is_active
        first.kill()
        wait_for(lambda: second.leadership.is_active, "the standby did not take over", seconds=10)
        known = second.epochs(job)
        wait_for(lambda: second.epochs(job) > known, "the standby gets no epochs")
        assert second.wait_for_state(job, RUNNING).pid == pid
        with pytest.raises(TokenRefused):
            asyncio.run(DriverConnection.open(second.data.run(f"{job}-1"), token=1))


def test_drivers_of_no_job_are_ended(data: Path) -> None:
    first = RunningManager(data, spares=1).start()

    def spares() -> list[int]:
        term = first.leadership.term
        return [driver.process.pid for driver in term.drivers] if term else []

    wait_for(spares, "no spare was started")
    (spare,) = spares()
    first.kill()
    with running_manager(data) as second:
        wait_for(lambda: second.leadership.is_active, "the manager is not active")
        wait_for(lambda: identify(spare) is None, "the spare of the dead manager still runs")


def test_a_manager_whose_lease_was_taken_does_not_refuse_commands(data: Path) -> None:
    """Promise: every write that follows from the role of the active manager is fenced."""
    with running_manager(data, lease_seconds=60.0) as old:
        job = old.add("prices", "idle")
        old.wait_for_state(job, RUNNING)
        term = old.leadership.term
        assert term is not None
        assert old.store.leases.acquire(MANAGER, "the next one", 60, replaces=term.token) is not None
        command = old.store.commands.add(job, "no such command")
        old.leadership.wake()
        wait_for(lambda: old.leadership.term is None, "the old manager still acts")
        assert old.store.commands.get(command.id).state == "open"
