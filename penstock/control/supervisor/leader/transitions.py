"""Transitions of jobs: an event goes through the state machine, and what follows is stored in one transaction."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass

from penstock.control.machine.draft import Transition
from penstock.control.machine.events import DriverEnded, DriverGone, Event, LaunchFailed, RunReport
from penstock.control.machine.instructions import (
    FinishCommand,
    Instruction,
    Launch,
    RecordException,
    RemoveFiles,
)
from penstock.control.machine.job import Job
from penstock.control.machine.restart_policies import DEFAULT, restart_policy
from penstock.control.machine.rules import step
from penstock.control.machine.states import JobState
from penstock.control.store.repositories.jobs import Job as StoredJob
from penstock.control.store.repositories.jobs import JobChanges
from penstock.control.store.repositories.runs import Run
from penstock.control.store.store import Store, Transaction
from penstock.errors import UnknownJob


@dataclass(frozen=True)
class Applied:
    """What an event has done: the job as it is stored now, and what has to be carried out."""

    job: StoredJob
    machine: Job
    before: JobState
    states: tuple[JobState, ...]
    cause: str
    instructions: tuple[Instruction, ...]


class Transitions:
    """Applies events with the fencing token of this manager. Blocks: call it in a thread."""

    def __init__(
        self,
        store: Store,
        token: int,
        clock: Callable[[], float],
        jitter: Callable[[], float],
        launcher: str = "local",
    ) -> None:
        self._store, self._token, self._clock, self._jitter = store, token, clock, jitter
        self._launcher = launcher

    def apply(self, job: str, event: Event) -> Applied | None:
        """Apply an event; None if it changes nothing, or the job is deleted. Raises Fenced after a newer manager."""
        with self._store.begin(self._token) as write:
            stored = write.jobs.find(job)
            if stored is None:
                return None
            before = machine_job(stored)
            made = step(before, event, self._clock(), self._jitter())
            if made.job == before and not made.instructions:
                return None
            self._record(write, before, made, event)
            after = write.jobs.find(job) or stored
        return Applied(after, made.job, before.state, made.states, made.cause, made.instructions)

    def _record(self, write: Transaction, before: Job, made: Transition, event: Event) -> None:
        write.jobs.update(before.id, **self._changes(made.job, made.states))
        if made.job.version != before.version:
            _record_version(write, made.job)
        last: JobState | None = before.state
        for state in made.states:
            write.transitions.add(before.id, last, state, made.cause, self._clock())
            last = state
        for instruction in made.instructions:
            self._record_instruction(write, made.job, instruction)
        if isinstance(event, RunReport) and made.job.run != before.run:
            _record_end(write, event, self._clock())

    def _record_instruction(self, write: Transaction, job: Job, instruction: Instruction) -> None:
        match instruction:
            case FinishCommand(command, ok, message):
                write.commands.finish(command, failed=not ok, message=message)
            case RecordException(run, error):
                write.exceptions.add(job.id, error.type, error.message, hint=error.hint, run=run)
            case Launch(run, attempt, version):
                # The intent: a manager that takes over looks for this run before it starts it.
                write.runs.add(
                    Run(
                        id=run,
                        job=job.id,
                        version=version,
                        attempt=attempt,
                        launcher=self._launcher,
                        token=self._token,
                    )
                )
            case RemoveFiles():
                write.jobs.delete(job.id)
            case _:
                pass

    def _changes(self, job: Job, states: tuple[JobState, ...]) -> JobChanges:
        changes: JobChanges = {
            "state": job.state.value,
            "reason": job.waiting,
            "version": job.version,
            "run": job.run,
            "attempt": job.attempt,
            "restarts": job.restarts,
            "parallelism": job.parallelism,
            "error": job.error.to_json() if job.error else None,
            "machine": job.to_json(),
        }
        if job.run is None:
            changes["pid"] = None
        if JobState.STARTING in states:
            changes["started_at"] = self._clock()
            changes["ended_at"] = None
        if states and job.state.is_final:
            changes["ended_at"] = self._clock()
        return changes


def _record_version(write: Transaction, job: Job) -> None:
    """A job shows the source, settings and arguments of its version, which a rollback changes back."""
    with contextlib.suppress(UnknownJob):  # its launch fails, and says so
        version = write.versions.get(job.id, job.version)
        write.jobs.update(job.id, entry=version.entry, settings=version.settings, arguments=version.arguments)


def machine_job(stored: StoredJob) -> Job:
    """Return a stored job as the state machine knows it."""
    if stored.machine:
        return Job.from_json(stored.machine)
    policy = restart_policy(stored.policy) if stored.policy else DEFAULT
    return Job(
        id=stored.id,
        name=stored.name,
        version=stored.version,
        parallelism=stored.parallelism,
        policy=policy,
    )


def _record_end(write: Transaction, event: RunReport, now: float) -> None:
    match event:
        case DriverEnded(run, outcome, error):
            failed = error.to_json() if error else None
            code = error.exit_code if error else 0
            write.runs.update(run, ended_at=now, outcome=outcome.value, error=failed, exit_code=code)
        case DriverGone(run, why, exit_code):
            lost = {"type": "DriverGone", "message": why}
            write.runs.update(run, ended_at=now, outcome="lost", error=lost, exit_code=exit_code)
        case LaunchFailed(run, error):
            write.runs.update(run, ended_at=now, outcome="failed", error=error.to_json())
        case _:
            pass
