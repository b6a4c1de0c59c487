from __future__ import annotations

from penstock.control.machine.instructions import (
    AskCancel,
    AskStop,
    Instruction,
    Kill,
    Launch,
    RequestSlots,
    TakeSavepoint,
    WakeAt,
)
from penstock.control.machine.job import Job
from penstock.control.machine.states import JobState


def outstanding(job: Job) -> tuple[Instruction, ...]:
    """Return what has to be done for a job as it is, for a job manager that starts or takes over.

    What was carried out already is repeated, which has no further effect. A run without a process, because it was
    stored but never launched, is launched in STARTING and reported as `DriverGone` in any other state.

    >>> outstanding(Job(id="j1", name="prices"))
    (RequestSlots(parallelism=None),)
    """
    timer = () if job.wake_at is None else (WakeAt(job.wake_at),)
    if job.run is None:
        return (RequestSlots(job.parallelism),) if job.state is JobState.CREATED else timer
    return (*_for_run(job, job.run), *timer)


def _for_run(job: Job, run: str) -> tuple[Instruction, ...]:
    if job.killing:
        return (Kill(run, job.killing.message),)
    savepoint = (TakeSavepoint(run, job.savepoint.name),) if job.savepoint else ()
    if job.state is JobState.STARTING:
        return (Launch(run, job.attempt, job.version, job.parallelism, job.restore_from),)
    if job.state is JobState.STOPPING:
        return (*savepoint, AskStop(run, job.request.savepoint if job.request else None))
    return (AskCancel(run),) if job.state is JobState.CANCELLING else savepoint
