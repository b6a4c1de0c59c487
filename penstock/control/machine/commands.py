"""What commands do. Each function writes one step, and returns its cause."""

from __future__ import annotations

from penstock.control.machine.draft import Draft
from penstock.control.machine.endings import apply_change, revert_change
from penstock.control.machine.events import (
    KINDS,
    CancelRequested,
    Command,
    DeleteRequested,
    RescaleRequested,
    RestartRequested,
    SavepointRequested,
    ShutdownRequested,
    StopRequested,
    UpdateRequested,
)
from penstock.control.machine.instructions import AskCancel, AskStop, RemoveFiles, TakeSavepoint
from penstock.control.machine.job import Job, Request, RequestKind, SavepointInProgress
from penstock.control.machine.states import JobState

Change = RestartRequested | UpdateRequested | RescaleRequested


def stop_waiting(draft: Draft, event: StopRequested) -> str:
    """No driver runs, so the job is stopped at once."""
    _supersede(draft, "stop")
    draft.enter(JobState.STOPPED)
    draft.finish_command(event.command, True, "stopped; no driver was running")
    return "stop requested"


def stop_killed(draft: Draft, event: StopRequested) -> str:
    """The driver is being killed already: the job stops once it is gone."""
    _supersede(draft, "stop")
    draft.enter(JobState.STOPPING, request=Request(kind=RequestKind.STOP, command=event.command))
    draft.set_deadline(draft.timeouts.kill)
    return "stop requested"


def stop(draft: Draft, event: StopRequested) -> str:
    """Have the driver stop."""
    _supersede(draft, "stop")
    _ask_stop(draft, Request(kind=RequestKind.STOP, command=event.command, savepoint=event.savepoint))
    return "stop requested" + (f", with savepoint {event.savepoint}" if event.savepoint else "")


def refuse_savepoint(draft: Draft, event: StopRequested) -> str:
    """Only a driver can create a savepoint."""
    message = f"no driver runs to create savepoint {event.savepoint}: the job is {draft.job.state}"
    draft.finish_command(event.command, False, f"{message}; stop without a savepoint, or wait until it is RUNNING")
    return "stop with a savepoint refused"


def cancel_waiting(draft: Draft, event: CancelRequested) -> str:
    """No driver runs, so the job is canceled at once."""
    _supersede(draft, "cancel")
    draft.enter(JobState.CANCELED)
    draft.finish_command(event.command, True, "canceled; no driver was running")
    return "cancel requested"


def cancel(draft: Draft, event: CancelRequested) -> str:
    """Have the driver cancel, or wait until it is gone if it is being killed."""
    _supersede(draft, "cancel")
    draft.enter(JobState.CANCELLING, request=Request(kind=RequestKind.CANCEL, command=event.command))
    if draft.job.run and not draft.job.killing:
        draft.add(AskCancel(draft.job.run))
    draft.set_deadline(draft.timeouts.kill if draft.job.killing else draft.timeouts.cancel)
    return "cancel requested"


def change_nothing(draft: Draft, event: UpdateRequested | RescaleRequested) -> str:
    """The job has this version or parallelism already."""
    request = _change(draft.job, event)
    draft.finish_command(event.command, True, f"the job has {request.target} already")
    return f"{request.kind} without a change"


def start_change(draft: Draft, event: Change) -> str:
    """No driver runs, so the change is applied at once. A job that has ended starts again from its checkpoint."""
    request = _change(draft.job, event)
    draft.set(request=request, failures=())
    apply_change(draft)
    return _cause(request)


def restart_now(draft: Draft, event: RestartRequested) -> str:
    """The job waits for the delay of its policy: start it without."""
    draft.set(request=Request(kind=RequestKind.RESTART, command=event.command, applied=True), failures=())
    draft.launch()
    return "restart requested"


def set_parallelism(draft: Draft, event: RescaleRequested) -> str:
    """The job has ended: it has the new parallelism when it is restarted."""
    draft.set(parallelism=event.parallelism)
    message = f"the job is {draft.job.state}; it has parallelism {event.parallelism} when it is restarted"
    draft.finish_command(event.command, True, message)
    return f"rescale to {event.parallelism} requested"


def stop_to_change(draft: Draft, event: Change) -> str:
    """Stop the driver, with a savepoint to roll back to if the job changes; the change follows."""
    request = _change(draft.job, event, with_savepoint=draft.job.state is JobState.RUNNING)
    draft.set(failures=())
    _ask_stop(draft, request)
    return _cause(request)


def take_savepoint(draft: Draft, event: SavepointRequested) -> str:
    """Have the driver create a savepoint."""
    draft.set(savepoint=SavepointInProgress(event.command, event.name))
    if draft.job.run:
        draft.add(TakeSavepoint(draft.job.run, event.name))
    return f"savepoint {event.name} requested"


def delete(draft: Draft, event: DeleteRequested) -> str:
    """Delete the files of a job that has ended."""
    draft.set(deleted=True)
    draft.add(RemoveFiles())
    draft.finish_command(event.command, True, "deleted")
    return "delete requested"


def shut_down(draft: Draft, event: ShutdownRequested) -> str:
    """Have the driver stop; a change on trial goes on with the next job manager."""
    _ask_stop(draft, draft.job.request or Request(kind=RequestKind.SHUTDOWN))
    return "the job manager shuts down"


def refuse(draft: Draft, event: Command, possible: tuple[str, ...]) -> str:
    """Finish a command that is not possible now."""
    job, kind = draft.job, KINDS[type(event)]
    if job.deleted:
        reason = "the job is deleted"
    elif job.request and job.state is not JobState.CANCELLING:
        reason = f"the job is {job.state}, with the {job.request.kind} in progress"
    elif job.savepoint and kind == "savepoint":
        reason = f"savepoint {job.savepoint.name} is in progress"
    else:
        reason = f"the job is {job.state}"
    draft.finish_command(event.command, False, f"cannot {kind}: {reason}; possible: {', '.join(possible) or 'nothing'}")
    return f"{kind} refused"


def _ask_stop(draft: Draft, request: Request) -> None:
    draft.enter(JobState.STOPPING, request=request)
    if draft.job.run:
        draft.add(AskStop(draft.job.run, request.savepoint))
    draft.set_deadline(draft.timeouts.stop)


def _supersede(draft: Draft, by: str) -> None:
    """A stop or cancel ends a change in progress; the job keeps its old version and parallelism."""
    if draft.job.request:
        kind = draft.job.request.kind
        revert_change(draft)
        draft.finish_request(False, f"the {kind} was ended by a {by}")


def _change(job: Job, event: Change, with_savepoint: bool = False) -> Request:
    """Return the request of a restart, update or rescale."""
    kind = RequestKind(KINDS[type(event)])
    saves = with_savepoint and kind is not RequestKind.RESTART
    return Request(
        kind=kind,
        command=event.command,
        savepoint=f"{job.id}-before-{kind}-{job.attempt}" if saves else None,
        version=event.version if isinstance(event, UpdateRequested) else job.version,
        parallelism=event.parallelism if isinstance(event, RescaleRequested) else job.parallelism,
        old_version=job.version,
        old_parallelism=job.parallelism,
        was_final=job.state.is_final,
    )


def _cause(request: Request) -> str:
    return f"{request.kind} requested" + ("" if request.kind is RequestKind.RESTART else f": {request.target}")
