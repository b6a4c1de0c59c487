"""The life of a job, told by examples."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.control.machine.draft import Timeouts
from penstock.control.machine.events import (
    DoesNotFit,
    DriverEnded,
    DriverGone,
    DriverLost,
    DriverRunning,
    EpochStalled,
    FitsNow,
    Outcome,
    ShutdownRequested,
    Submitted,
    TimerDue,
    command_event,
)
from penstock.control.machine.failure import Failure
from penstock.control.machine.instructions import (
    AskCancel,
    AskStop,
    Kill,
    Launch,
    RecordException,
    RemoveFiles,
    RequestSlots,
    WakeAt,
)
from penstock.control.machine.job import Job
from penstock.control.machine.restart_policies import FixedDelay
from penstock.control.machine.rules import possible_commands
from penstock.control.machine.states import JobState
from penstock.errors import BadValue
from tests.control.machine.world import MISTAKE, NO_BROKER, World

RUN = "j1-1"
NOTHING_TO_SAVE = Failure("CheckpointMissing", "no epoch is committed yet", transient=True, exit_code=2)


def test_a_submitted_job_waits_until_it_fits_and_says_why(world: World) -> None:
    assert world.deliver(Submitted()).instructions == (RequestSlots(None),)
    world.deliver(DoesNotFit("needs 4 cores, and 2 of 4 are free"))
    assert (world.job.state, world.job.waiting) == (JobState.CREATED, "needs 4 cores, and 2 of 4 are free")
    transition = world.deliver(FitsNow())
    assert transition.instructions == (Launch(RUN, 1, 1, None), WakeAt(world.now + Timeouts().start))
    assert world.job.waiting is None


def test_a_job_that_reaches_its_end_is_finished(running: World) -> None:
    running.end(Outcome.FINISHED)
    assert (running.job.state, running.job.run) == (JobState.FINISHED, None)


def test_a_job_that_finishes_before_it_was_seen_running_was_running_in_its_history(world: World) -> None:
    world.deliver(FitsNow())
    world.drivers.clear()
    transition = world.deliver(DriverEnded(RUN, Outcome.FINISHED))
    assert transition.states == (JobState.RUNNING, JobState.FINISHED)


def test_a_failure_goes_through_failing_and_restarts_after_the_delay_of_the_policy(running: World) -> None:
    running.drivers.clear()
    transition = running.deliver(DriverEnded(RUN, Outcome.FAILED, NO_BROKER))
    assert transition.states == (JobState.FAILING, JobState.RESTARTING)
    assert transition.instructions == (RecordException(RUN, NO_BROKER), WakeAt(running.now + 1))
    assert transition.cause == "NoBroker: no broker at localhost:9092"
    running.deliver(TimerDue())
    assert running.job.state is JobState.RESTARTING, "it is too early"
    running.wait()
    running.runs()
    assert (running.job.state, running.job.restarts, running.job.run) == (JobState.RUNNING, 1, "j1-2")
    assert running.job.error is None


def test_a_mistake_in_the_plan_fails_at_once(world: World) -> None:
    world.deliver(FitsNow())
    world.end(Outcome.FAILED, MISTAKE)
    assert (world.job.state, world.job.error) == (JobState.FAILED, MISTAKE)


def test_an_error_of_a_running_job_is_retried_even_if_it_looks_final(running: World) -> None:
    running.end(Outcome.FAILED, MISTAKE)
    assert running.job.state is JobState.RESTARTING


def test_a_job_that_always_fails_ends_failed_with_its_cause(world: World) -> None:
    world.job = replace(world.job, policy=FixedDelay(delay=1, attempts=2))
    world.start()
    for _ in range(2):
        world.end(Outcome.FAILED, NO_BROKER)
        world.wait()
        world.runs()
    world.end(Outcome.FAILED, NO_BROKER)
    assert (world.job.state, world.job.restarts) == (JobState.FAILED, 2)
    assert world.causes[-1] == "NoBroker: no broker at localhost:9092"


def test_a_lost_driver_is_killed_and_gone_before_the_job_starts_again(running: World) -> None:
    transition = running.deliver(DriverLost(RUN, "no heartbeat for 15 s"))
    assert transition.instructions[0] == Kill(RUN, "no heartbeat for 15 s")
    assert running.job.state is JobState.FAILING
    running.wait()
    assert (running.job.state, running.job.run) == (JobState.FAILING, RUN), "it is killed again, and not replaced"
    running.deliver(DriverGone(RUN))
    assert (running.job.state, running.job.run) == (JobState.RESTARTING, None)
    assert running.job.error == Failure("DriverLost", "no heartbeat for 15 s", transient=True)


def test_a_stalled_epoch_is_a_failure(running: World) -> None:
    running.deliver(EpochStalled(RUN))
    running.deliver(DriverGone(RUN))
    assert running.job.error is not None
    assert running.job.error.type == "EpochStalled"


def test_a_crashed_driver_is_restarted(running: World) -> None:
    running.gone()
    assert running.job.state is JobState.RESTARTING
    assert running.causes[-1] == "DriverGone: the driver's process ended without an outcome (exit code -9)"


def test_a_driver_that_does_not_start_in_time_is_killed(world: World) -> None:
    world.deliver(FitsNow())
    world.wait()
    assert world.job.state is JobState.FAILING
    assert world.causes[-1] == "the driver did not run within 600 s"


def test_a_driver_that_could_not_be_launched_is_retried(world: World) -> None:
    world.deliver(FitsNow())
    world.launch_fails()
    assert world.job.state is JobState.RESTARTING


def test_a_driver_that_was_stopped_by_a_signal_is_started_again(running: World) -> None:
    running.end(Outcome.STOPPED)
    assert running.job.state is JobState.RESTARTING


def test_an_event_of_an_earlier_run_is_ignored(running: World) -> None:
    running.gone()
    running.wait()
    for event in (DriverRunning(RUN), DriverLost(RUN, "late"), DriverEnded(RUN, Outcome.FINISHED), DriverGone(RUN)):
        assert running.deliver(event).states == ()
    assert (running.job.state, running.job.run) == (JobState.STARTING, "j1-2")


# Stop and cancel.


def test_a_stop_finishes_when_the_driver_has_ended(running: World) -> None:
    command = running.send("stop")
    assert (running.job.state, running.done) == (JobState.STOPPING, {})
    running.obey()
    assert (running.job.state, running.done[command].ok) == (JobState.STOPPED, True)


def test_a_stop_creates_its_savepoint(running: World) -> None:
    command = running.send("stop", savepoint="monday")
    assert running.driver
    assert running.driver.savepoint == "monday"
    running.obey()
    assert running.done[command].message == "stopped, with savepoint /savepoints/monday"


def test_a_stop_whose_savepoint_fails_stops_and_reports_it(running: World) -> None:
    command = running.send("stop", savepoint="monday")
    running.obey(with_savepoint=False)
    assert running.job.state is JobState.STOPPED
    assert not running.done[command].ok
    assert running.done[command].message.startswith("stopped, but without savepoint monday: NoBroker")


def test_a_job_that_fails_while_it_is_stopped_is_failed(running: World) -> None:
    command = running.send("stop")
    running.end(Outcome.FAILED, NO_BROKER)
    assert (running.job.state, running.done[command].ok) == (JobState.FAILED, False)


def test_a_driver_that_crashes_while_it_is_stopped_is_stopped(running: World) -> None:
    command = running.send("stop")
    running.gone()
    assert (running.job.state, running.done[command].ok) == (JobState.STOPPED, True)
    assert "the next start repeats" in running.done[command].message


def test_a_driver_that_does_not_stop_is_killed(running: World) -> None:
    running.send("stop")
    running.wait()
    assert running.driver is None
    running.gone()
    assert running.job.state is JobState.STOPPED


def test_a_job_without_a_driver_stops_at_once(running: World) -> None:
    running.gone()
    command = running.send("stop")
    assert (running.job.state, running.done[command].ok) == (JobState.STOPPED, True)


def test_a_stop_with_a_savepoint_is_refused_while_no_driver_runs(running: World) -> None:
    running.gone()
    command = running.send("stop", savepoint="monday")
    assert (running.job.state, running.done[command].ok) == (JobState.RESTARTING, False)
    assert "stop without a savepoint" in running.done[command].message


def test_a_cancel_is_possible_while_the_job_stops_and_ends_the_stop(running: World) -> None:
    stop = running.send("stop")
    cancel = running.send("cancel")
    assert running.done[stop].message == "the stop was ended by a cancel"
    running.obey()
    assert (running.job.state, running.done[cancel].ok) == (JobState.CANCELED, True)


def test_a_driver_that_does_not_cancel_is_killed(running: World) -> None:
    assert running.deliver(command_event("cancel", "c1")).instructions[0] == AskCancel(RUN)
    running.wait()
    assert running.driver is None
    running.gone()
    assert running.job.state is JobState.CANCELED


@pytest.mark.parametrize("outcome", list(Outcome))
def test_a_cancel_ends_the_job_however_its_driver_ends(running: World, outcome: Outcome) -> None:
    running.send("cancel")
    running.end(outcome, NO_BROKER if outcome is Outcome.FAILED else None)
    assert running.job.state is (JobState.FINISHED if outcome is Outcome.FINISHED else JobState.CANCELED)


def test_a_command_that_is_not_possible_says_what_is(running: World) -> None:
    running.end(Outcome.FINISHED)
    command = running.send("stop")
    assert not running.done[command].ok
    expected = "cannot stop: the job is FINISHED; possible: restart, rescale, update, delete"
    assert running.done[command].message == expected
    assert possible_commands(running.job) == ("restart", "rescale", "update", "delete")


def test_a_command_that_is_delivered_again_has_no_effect(running: World) -> None:
    running.send("stop")
    running.deliver(running.sent[0])
    running.obey()
    running.deliver(running.sent[0])
    assert len(running.done) == 1


def test_an_unknown_command_is_refused_with_the_known_ones() -> None:
    with pytest.raises(BadValue, match="did you mean 'stop'"):
        command_event("stpo", "c1")
    with pytest.raises(BadValue, match="wrong arguments"):
        command_event("rescale", "c1", {"parallel": 2})


# Savepoints, deletion, shutdown.


@pytest.mark.parametrize("ok", [True, False])
def test_a_savepoint_leaves_the_job_running(running: World, ok: bool) -> None:
    command = running.send("savepoint", name="monday")
    second = running.send("savepoint", name="tuesday")
    assert "savepoint monday is in progress" in running.done[second].message
    running.savepoint(ok)
    assert (running.job.state, running.done[command].ok) == (JobState.RUNNING, ok)


def test_a_savepoint_of_a_driver_that_crashes_fails(running: World) -> None:
    command = running.send("savepoint", name="monday")
    running.gone()
    assert not running.done[command].ok


def test_a_deleted_job_does_nothing_any_more(running: World) -> None:
    running.send("delete")
    assert not running.job.deleted, "it must be stopped first"
    running.end(Outcome.FINISHED)
    assert RemoveFiles() in running.deliver(command_event("delete", "c9")).instructions
    command = running.send("restart")
    assert running.done[command].message == "cannot restart: the job is deleted; possible: nothing"


def test_a_shutdown_stops_the_job_and_leaves_it_to_be_resumed(running: World) -> None:
    assert AskStop(RUN) in running.deliver(ShutdownRequested()).instructions
    running.obey()
    assert running.job.state is JobState.CREATED
    running.start()
    assert (running.job.state, running.job.restarts) == (JobState.RUNNING, 0)


def test_an_update_on_trial_goes_on_after_a_shutdown(running: World) -> None:
    command = running.send("update", version=2)
    running.obey()
    running.deliver(FitsNow())
    assert AskStop("j1-2") in running.deliver(ShutdownRequested()).instructions, "its savepoint exists already"
    running.obey()
    assert (running.job.state, command in running.done) == (JobState.CREATED, False)
    running.deliver(FitsNow())
    running.end(Outcome.FAILED, MISTAKE)
    assert (running.job.version, running.done[command].ok) == (1, False)


def test_an_update_that_runs_while_the_manager_shuts_down_has_succeeded(running: World) -> None:
    command = running.send("update", version=2)
    running.obey()
    running.deliver(FitsNow())
    running.deliver(ShutdownRequested())
    running.runs()
    assert running.done[command].ok
    running.obey()
    assert (running.job.state, running.job.version) == (JobState.CREATED, 2)


def test_a_job_survives_json() -> None:
    job = Job(id="j1", name="prices", policy=FixedDelay(5, None), error=MISTAKE, failures=(1.0, 2.5))
    assert Job.from_json(job.to_json()) == job
