"""Restart, update and rescale of a job, and how they are rolled back: by examples."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from penstock.control.machine.events import (
    DoesNotFit,
    FitsNow,
    Outcome,
)
from penstock.control.machine.failure import Failure
from penstock.control.machine.instructions import (
    Launch,
    RequestSlots,
)
from penstock.control.machine.restart_policies import NoRestart
from penstock.control.machine.states import JobState
from tests.control.machine.world import MISTAKE, NO_BROKER, World

RUN = "j1-1"
NOTHING_TO_SAVE = Failure("CheckpointMissing", "no epoch is committed yet", transient=True, exit_code=2)


def test_a_restart_of_a_job_that_has_ended_starts_it_from_its_checkpoint(running: World) -> None:
    running.end(Outcome.FAILED, NO_BROKER)
    running.send("stop")
    command = running.send("restart")
    assert running.job.state is JobState.CREATED
    running.start()
    assert (running.done[command].ok, running.job.restarts) == (True, 0)


def test_a_restart_of_a_running_job_stops_it_first(running: World) -> None:
    command = running.send("restart")
    running.obey()
    assert running.job.state is JobState.CREATED
    running.start()
    assert (running.job.run, running.done[command].ok) == ("j1-2", True)


def test_a_restart_skips_the_delay_of_the_policy(running: World) -> None:
    running.gone()
    running.send("restart")
    assert (running.job.state, running.job.failures) == (JobState.STARTING, ())


def test_a_restart_that_never_runs_is_reported(running: World) -> None:
    running.job = replace(running.job, policy=NoRestart())
    running.gone()
    command = running.send("restart")
    running.deliver(FitsNow())
    running.end(Outcome.FAILED, NO_BROKER)
    assert (running.job.state, running.done[command].ok) == (JobState.FAILED, False)


def test_an_update_stops_with_a_savepoint_and_starts_the_new_version_from_the_checkpoint(running: World) -> None:
    command = running.send("update", version=2)
    assert running.driver
    assert running.driver.savepoint == "j1-before-update-1"
    running.obey()
    assert running.deliver(FitsNow()).instructions[0] == Launch("j1-2", 2, 2, None, restore_from=None)
    assert command not in running.done
    running.runs()
    assert (running.job.version, running.job.running_version) == (2, 2)
    assert running.done[command].message == "RUNNING with version 2"


def test_an_update_that_does_not_run_rolls_back_to_the_old_version_with_its_savepoint(running: World) -> None:
    command = running.send("update", version=2)
    running.obey()
    running.deliver(FitsNow())
    running.end(Outcome.FAILED, MISTAKE)
    assert not running.done[command].ok
    assert running.done[command].message == (
        "version 2 did not reach RUNNING: UnknownColumn: unknown column 'pirce'; rolled back to version 1"
    )
    assert (running.job.state, running.job.version) == (JobState.RESTARTING, 1)
    running.wait()
    assert running.driver
    assert running.driver.version == 1
    assert running.job.restore_from == "/savepoints/j1-before-update-1"
    running.runs()
    assert (running.job.state, running.job.running_version, running.job.restore_from) == (JobState.RUNNING, 1, None)


def test_an_update_whose_savepoint_fails_starts_the_old_version_again(running: World) -> None:
    command = running.send("update", version=2)
    running.obey(with_savepoint=False)
    assert not running.done[command].ok
    running.start()
    assert (running.job.version, running.job.running_version) == (1, 1)


@pytest.mark.parametrize("change", [{"kind": "update", "version": 2}, {"kind": "rescale", "parallelism": 4}])
def test_a_change_before_the_first_epoch_needs_no_savepoint(running: World, change: dict[str, Any]) -> None:
    command = running.send(**change)
    running.obey(with_savepoint=False, why=NOTHING_TO_SAVE)
    running.start()
    assert running.done[command].ok
    assert running.job.restore_from is None


def test_a_stop_before_the_first_epoch_says_that_there_is_no_savepoint(running: World) -> None:
    command = running.send("stop", savepoint="monday")
    running.obey(with_savepoint=False, why=NOTHING_TO_SAVE)
    assert not running.done[command].ok
    assert running.job.state is JobState.STOPPED


def test_an_update_of_a_job_that_crashes_while_it_stops_restarts_the_old_version(running: World) -> None:
    command = running.send("update", version=2)
    running.gone()
    assert not running.done[command].ok
    assert (running.job.state, running.job.version) == (JobState.RESTARTING, 1)


def test_an_update_of_a_stopped_job_starts_it_and_a_mistake_leaves_it_failed_with_the_old_version(
    running: World,
) -> None:
    running.send("stop")
    running.obey()
    command = running.send("update", version=2)
    running.deliver(FitsNow())
    running.end(Outcome.FAILED, MISTAKE)
    assert not running.done[command].ok
    assert (running.job.state, running.job.version, running.job.error) == (JobState.FAILED, 1, MISTAKE)


def test_an_update_repairs_a_job_that_fails_again_and_again(running: World) -> None:
    running.gone()
    command = running.send("update", version=2)
    running.start()
    assert (running.job.running_version, running.done[command].ok) == (2, True)


def test_a_second_change_is_refused_while_one_is_in_progress(running: World) -> None:
    running.send("update", version=2)
    command = running.send("rescale", parallelism=4)
    assert running.done[command].message == (
        "cannot rescale: the job is STOPPING, with the update in progress; possible: cancel"
    )


def test_a_cancel_during_an_update_keeps_the_old_version(running: World) -> None:
    update = running.send("update", version=2)
    running.obey()
    running.deliver(FitsNow())
    running.send("cancel")
    running.obey()
    assert (running.job.state, running.job.version) == (JobState.CANCELED, 1)
    assert running.job.restore_from == "/savepoints/j1-before-update-1"
    assert running.done[update].message == "the update was ended by a cancel"


def test_a_rescale_starts_with_the_new_parallelism(running: World) -> None:
    command = running.send("rescale", parallelism=4)
    running.obey()
    assert running.deliver(FitsNow()).instructions[0] == Launch("j1-2", 2, 1, 4, None)
    running.runs()
    assert running.done[command].message == "RUNNING with parallelism 4"


def test_a_rescale_that_does_not_fit_rolls_back(running: World) -> None:
    command = running.send("rescale", parallelism=400)
    running.obey()
    transition = running.deliver(DoesNotFit("needs 400 cores, and 4 of 4 are free"))
    assert RequestSlots(None) in transition.instructions
    assert not running.done[command].ok
    running.start()
    assert running.job.parallelism is None


def test_a_rescale_of_a_job_that_has_ended_is_used_at_its_next_start(running: World) -> None:
    running.end(Outcome.FINISHED)
    command = running.send("rescale", parallelism=4)
    assert (running.job.state, running.done[command].ok) == (JobState.FINISHED, True)
    running.send("restart")
    assert running.deliver(FitsNow()).instructions[0] == Launch("j1-2", 2, 1, 4, None)


def test_a_rescale_to_the_same_parallelism_changes_nothing(running: World) -> None:
    running.job = replace(running.job, parallelism=4)
    command = running.send("rescale", parallelism=4)
    assert (running.job.state, running.done[command].ok) == (JobState.RUNNING, True)
