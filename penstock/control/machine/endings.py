"""What the end of a run leads to: a final state, a restart, a change, or a rollback."""

from __future__ import annotations

from penstock.control.machine.draft import Draft
from penstock.control.machine.events import DriverEnded, DriverGone, LaunchFailed, Outcome
from penstock.control.machine.failure import Failure
from penstock.control.machine.instructions import RecordException, WakeAt
from penstock.control.machine.job import Job, Request, RequestKind
from penstock.control.machine.states import JobState

Ending = DriverEnded | DriverGone | LaunchFailed


def apply_change(draft: Draft) -> None:
    """Give the job its new version and parallelism, and queue it; it is on trial until it is RUNNING."""
    request = draft.job.request
    if request:
        draft.change_request(applied=True, savepoint=None)  # created; a later stop must not create it again
        draft.set(version=request.version or draft.job.version, parallelism=request.parallelism, error=None)
    draft.queue()


def revert_change(draft: Draft) -> None:
    """Give the job its old version and parallelism, and the state that it had before the change."""
    request = draft.job.request
    if request and request.on_trial:
        draft.set(
            version=request.old_version,
            parallelism=request.old_parallelism,
            restore_from=request.savepoint_path or draft.job.restore_from,
        )


def finished(draft: Draft, event: DriverEnded) -> str:
    """The job has reached the end that it was started with."""
    if draft.job.state is JobState.STARTING:
        # The report that it runs was lost, or is late: a job that has finished has been running.
        reach_running(draft)
    _note_savepoint(draft, event)
    draft.end_run()
    if draft.job.request:
        draft.finish_request(*_verdict_of_finished(draft.job.request))
    draft.enter(JobState.FINISHED, running_version=draft.job.version, restore_from=None, error=None)
    return "the job finished"


def _verdict_of_finished(request: Request) -> tuple[bool, str]:
    if request.is_change:
        message = f"the job finished before the {request.kind}; restart it if it should run again"
        return request.applied, "the job finished" if request.applied else message
    if request.lacks_savepoint:
        return False, f"the job finished before it was stopped, without savepoint {request.savepoint}"
    return True, f"the job finished before the {request.kind}"


def reach_running(draft: Draft) -> None:
    """The job runs: a change that was on trial has succeeded."""
    request = draft.job.request
    draft.enter(JobState.RUNNING, running_version=draft.job.version, restore_from=None, error=None)
    if request:
        is_restart = request.kind is RequestKind.RESTART
        draft.finish_request(True, "RUNNING" if is_restart else f"RUNNING with {request.target}")


def canceled(draft: Draft, event: Ending) -> str:
    """The run has ended, however it did."""
    _record_kill(draft)
    draft.end_run()
    draft.finish_request(True, "canceled")
    draft.enter(JobState.CANCELED)
    return "the driver has ended"


def stopped(draft: Draft, event: Ending) -> str:
    """The run has ended while it was stopped: what happens next depends on the request."""
    _note_savepoint(draft, event)
    request = draft.job.request
    if request is None or request.kind is RequestKind.SHUTDOWN or request.applied:
        return _left_for_the_next_manager(draft, event)
    if request.kind is RequestKind.STOP:
        return _stopped_by_command(draft, event, request)
    return _stopped_to_change(draft, event, request)


def failed(draft: Draft, event: Ending) -> str:
    """The run has failed: roll back, give up, or restart."""
    failure = failure_of(draft.job, event)
    # Before it runs, a mistake is the same at every start; afterwards, the row or the system may be another one.
    is_final = failure.is_mistake and draft.job.state is JobState.STARTING
    _record_and_end(draft, failure)
    if draft.job.request and draft.job.request.on_trial:
        _roll_back(draft, draft.job.request, failure)
    elif is_final:
        _give_up(draft, failure)
    else:
        _restart_by_policy(draft, failure)
    return failure.summary


def failure_of(job: Job, event: Ending) -> Failure:
    """Return why a run ended that was not asked to."""
    if job.killing:
        return job.killing
    if isinstance(event, LaunchFailed):
        return event.error
    if isinstance(event, DriverGone):
        code = "" if event.exit_code is None else f" (exit code {event.exit_code})"
        return Failure("DriverGone", f"{event.why}{code}", transient=True, exit_code=event.exit_code)
    if event.outcome is Outcome.FAILED:
        return event.error or Failure("DriverFailed", "the driver failed and reported no error")
    return Failure("DriverStopped", "the driver was stopped, but not by a command", transient=True)


def _left_for_the_next_manager(draft: Draft, event: Ending) -> str:
    if error := _error(event):
        draft.record(error)
    _record_kill(draft)
    draft.end_run()
    if draft.job.request and draft.job.request.kind is RequestKind.SHUTDOWN:
        draft.finish_request(True, "stopped")
    draft.queue()
    return "the driver has ended; the job waits to be resumed"


def _stopped_by_command(draft: Draft, event: Ending, request: Request) -> str:
    if error := _error(event):
        _record_and_end(draft, error)
        draft.finish_request(False, f"the job failed while it was stopped: {error.summary}")
        draft.enter(JobState.FAILED)
        return error.summary
    _record_kill(draft)
    draft.end_run()
    draft.finish_request(*_verdict_of_stopped(event, request))
    draft.enter(JobState.STOPPED)
    return "the driver has ended"


def _verdict_of_stopped(event: Ending, request: Request) -> tuple[bool, str]:
    if request.lacks_savepoint:
        why = request.savepoint_error or "the driver did not create it"
        return False, f"stopped, but without savepoint {request.savepoint}: {why}"
    if not _is_clean(event):
        return True, "stopped; the driver ended before it finished its epoch, which the next start repeats"
    return True, f"stopped, with savepoint {request.savepoint_path}" if request.savepoint else "stopped"


def _stopped_to_change(draft: Draft, event: Ending, request: Request) -> str:
    if request.kind is not RequestKind.RESTART and not _is_clean(event):
        failure = failure_of(draft.job, event)
        draft.finish_request(False, f"no {request.kind}: the job did not stop cleanly: {failure.summary}")
        return failed(draft, event)
    if error := _error(event):
        draft.record(error)
    draft.end_run()
    if request.lacks_savepoint:
        why = request.savepoint_error or "the driver did not create it"
        draft.finish_request(False, f"no {request.kind}: savepoint {request.savepoint} failed: {why}")
        draft.queue()
        return f"the savepoint failed; the job is started again with {request.origin}"
    apply_change(draft)
    return "the driver has ended" if request.kind is RequestKind.RESTART else f"{request.kind} to {request.target}"


def _record_and_end(draft: Draft, failure: Failure) -> None:
    draft.record(failure)
    if draft.job.state is not JobState.FAILING:
        draft.enter(JobState.FAILING)
    draft.end_run()


def _roll_back(draft: Draft, request: Request, failure: Failure) -> None:
    revert_change(draft)
    message = f"{request.target} did not reach RUNNING: {failure.summary}"
    if request.was_final:
        draft.finish_request(False, f"{message}; rolled back to {request.origin}, which did not run before")
        draft.enter(JobState.FAILED)
        return
    draft.finish_request(False, f"{message}; rolled back to {request.origin}")
    draft.set(failures=())
    _restart_at(draft, draft.now)


def _restart_by_policy(draft: Draft, failure: Failure) -> None:
    delay = draft.job.policy.next_delay(draft.job.failures, draft.now, draft.jitter)
    if delay is None:
        _give_up(draft, failure)
    else:
        _restart_at(draft, draft.now + delay)


def _restart_at(draft: Draft, time: float) -> None:
    draft.enter(JobState.RESTARTING, restart_at=time)
    draft.add(WakeAt(time))


def _give_up(draft: Draft, failure: Failure) -> None:
    draft.finish_request(False, f"the job failed: {failure.summary}")
    draft.enter(JobState.FAILED)


def _record_kill(draft: Draft) -> None:
    """A run that was killed on its way to a state that was asked for: an exception, but not a failure of the job."""
    if draft.job.run and draft.job.killing:
        draft.add(RecordException(draft.job.run, draft.job.killing))


def _note_savepoint(draft: Draft, event: Ending) -> None:
    if isinstance(event, DriverEnded) and event.savepoint:
        draft.change_request(savepoint_path=event.savepoint)


def _is_clean(event: Ending) -> bool:
    return isinstance(event, DriverEnded) and event.outcome is Outcome.STOPPED


def _error(event: Ending) -> Failure | None:
    """Return the error that the driver reported; None if it stopped, or if its process is gone."""
    if isinstance(event, LaunchFailed):
        return event.error
    if isinstance(event, DriverEnded) and event.outcome is Outcome.FAILED:
        return event.error or Failure("DriverFailed", "the driver failed and reported no error")
    return None
