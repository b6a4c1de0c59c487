"""What reports of the supervisor do while a run goes on. Each function writes one step, and returns its cause."""

from __future__ import annotations

from penstock.control.machine.draft import Draft
from penstock.control.machine.endings import reach_running, revert_change
from penstock.control.machine.events import (
    DoesNotFit,
    DriverLost,
    DriverRunning,
    EpochStalled,
    FitsNow,
    SavepointCreated,
    SavepointFailed,
    Submitted,
    TimerDue,
)
from penstock.control.machine.failure import Failure
from penstock.control.machine.job import Request, RequestKind
from penstock.control.machine.states import JobState


def submitted(draft: Draft, event: Submitted) -> str:
    """The job is new: find cores and memory for it."""
    draft.queue()
    return "submitted"


def launch(draft: Draft, event: FitsNow) -> str:
    """Start the job."""
    draft.launch()
    return "the job fits"


def wait_for_slots(draft: Draft, event: DoesNotFit) -> str:
    """Stay CREATED, and say why."""
    draft.set(waiting=event.reason)
    return event.reason


def roll_back_rescale(draft: Draft, event: DoesNotFit) -> str:
    """The new parallelism does not fit: start with the old one."""
    request = draft.job.request
    revert_change(draft)
    if request:
        draft.finish_request(False, f"{request.target} does not fit: {event.reason}; rolled back to {request.origin}")
    draft.queue()
    draft.set(waiting=event.reason)
    return event.reason


def running(draft: Draft, event: DriverRunning) -> str:
    """The driver processes epochs."""
    reach_running(draft)
    return "the driver runs"


def running_while_stopping(draft: Draft, event: DriverRunning) -> str:
    """A change on trial has succeeded, although the job manager shuts down."""
    request = draft.job.request
    draft.set(running_version=draft.job.version, restore_from=None)
    if request:
        draft.finish_request(True, f"RUNNING with {request.target}; the job manager shuts down")
    draft.set(request=Request(kind=RequestKind.SHUTDOWN))
    return "the driver runs"


def kill(draft: Draft, event: DriverLost | EpochStalled) -> str:
    """End the run, and treat that as a failure."""
    draft.enter(JobState.FAILING)
    draft.kill(Failure(type(event).__name__, event.why, transient=True))
    return event.why


def kill_in_place(draft: Draft, event: DriverLost | EpochStalled) -> str:
    """End the run on its way to the state that was asked for."""
    draft.kill(Failure(type(event).__name__, event.why, transient=True))
    return event.why


def restart(draft: Draft, event: TimerDue) -> str:
    """The delay of the policy is over."""
    draft.set(restarts=draft.job.restarts + 1)
    draft.launch()
    return "the delay is over"


def start_timed_out(draft: Draft, event: TimerDue) -> str:
    """The driver was launched, but does not run."""
    why = f"the driver did not run within {draft.timeouts.start:g} s"
    draft.enter(JobState.FAILING)
    draft.kill(Failure("StartTimeout", why, transient=True))
    return why


def end_timed_out(draft: Draft, event: TimerDue) -> str:
    """The driver does not stop, cancel or end: kill it, again if that was done before."""
    verb = {JobState.STOPPING: "stop", JobState.CANCELLING: "cancel"}.get(draft.job.state, "end")
    seconds = draft.timeouts.stop if draft.job.state is JobState.STOPPING else draft.timeouts.cancel
    draft.kill(Failure("StopTimeout", f"the driver did not {verb} within {seconds:g} s", transient=True))
    return draft.job.killing.message if draft.job.killing else ""


def savepoint_reported(draft: Draft, event: SavepointCreated | SavepointFailed) -> str:
    """A savepoint of the running job, which goes on; or that of a stop."""
    path = event.path if isinstance(event, SavepointCreated) else None
    error = event.error.summary if isinstance(event, SavepointFailed) else None
    savepoint = draft.job.savepoint
    if savepoint and savepoint.name == event.name:
        draft.set(savepoint=None)
        how = f"failed: {error}" if error else f"created at {path}"
        draft.finish_command(savepoint.command, error is None, f"savepoint {event.name} {how}")
    elif isinstance(event, SavepointFailed) and event.error.is_nothing_to_save and _saves_for_change(draft):
        draft.change_request(savepoint=None)
        return "no epoch is committed yet: the change needs no savepoint"
    else:
        draft.change_request(savepoint_path=path, savepoint_error=error)
    return f"savepoint {event.name} " + ("failed" if error else "created")


def _saves_for_change(draft: Draft) -> bool:
    return draft.job.request is not None and draft.job.request.is_change
