"""A step of the state machine while a rule writes it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from penstock.control.machine.failure import Failure
from penstock.control.machine.instructions import (
    FinishCommand,
    Instruction,
    Kill,
    Launch,
    RecordException,
    RequestSlots,
    WakeAt,
)
from penstock.control.machine.job import Job
from penstock.control.machine.restart_policies import MOST_FAILURES
from penstock.control.machine.states import JobState

_FINISHED_COMMANDS = 32


@dataclass(frozen=True, slots=True)
class Timeouts:
    """After how many seconds a driver that does not start, stop or cancel is killed, and killed again."""

    start: float = 600.0
    stop: float = 300.0
    cancel: float = 30.0
    kill: float = 10.0


@dataclass(frozen=True, slots=True)
class Transition:
    """The result of a step.

    `states` are the states that were entered, in order: a failure goes through FAILING even if it is known at once
    that the job is restarted. Empty: the state is the same. `cause` is one line for the job's history.
    """

    job: Job
    instructions: tuple[Instruction, ...] = ()
    cause: str = ""
    states: tuple[JobState, ...] = ()


@dataclass
class Draft:
    """The job as changed so far, and the instructions so far."""

    job: Job
    now: float
    jitter: float = 0.0
    timeouts: Timeouts = field(default_factory=Timeouts)
    instructions: list[Instruction] = field(default_factory=list)
    states: list[JobState] = field(default_factory=list)

    def transition(self, cause: str) -> Transition:
        """Return the finished step."""
        return Transition(self.job, tuple(self.instructions), cause, tuple(self.states))

    def set(self, **changes: Any) -> None:
        """Change fields of the job."""
        self.job = replace(self.job, **changes)

    def change_request(self, **changes: Any) -> None:
        """Change fields of the request in progress."""
        if self.job.request:
            self.set(request=replace(self.job.request, **changes))

    def enter(self, state: JobState, **changes: Any) -> None:
        """Enter a state; timers of the last one end."""
        self.states.append(state)
        self.set(**{"state": state, "restart_at": None, "deadline": None, "waiting": None} | changes)

    def add(self, *instructions: Instruction) -> None:
        """Add instructions."""
        self.instructions += instructions

    def set_deadline(self, seconds: float) -> None:
        """Kill the driver if nothing happens until then."""
        self.set(deadline=self.now + seconds)
        self.add(WakeAt(self.now + seconds))

    def finish_command(self, command: str, ok: bool, message: str) -> None:
        """Finish a command; its id is remembered."""
        remembered = (*self.job.finished_commands, command)[-_FINISHED_COMMANDS:]
        self.set(finished_commands=remembered)
        self.add(FinishCommand(command, ok, message))

    def finish_request(self, ok: bool, message: str) -> None:
        """End the request in progress, and finish its command."""
        request = self.job.request
        self.set(request=None)
        if request and request.command is not None:
            self.finish_command(request.command, ok, message)

    def record(self, failure: Failure) -> None:
        """Record a failure of the current run."""
        self.set(error=failure, failures=(*self.job.failures, self.now)[-MOST_FAILURES:])
        if self.job.run:
            self.add(RecordException(self.job.run, failure))

    def end_run(self) -> None:
        """The run is over: there is no driver any more, and what was asked of it fails."""
        savepoint = self.job.savepoint
        self.set(run=None, killing=None, savepoint=None)
        if savepoint:
            self.finish_command(
                savepoint.command, False, f"the run ended before savepoint {savepoint.name} was created"
            )

    def queue(self) -> None:
        """Wait in CREATED until the job fits."""
        if self.job.state is not JobState.CREATED:
            self.enter(JobState.CREATED)
        self.set(waiting=None)
        self.add(RequestSlots(self.job.parallelism))

    def launch(self) -> None:
        """Start the next run."""
        attempt = self.job.attempt + 1
        run = f"{self.job.id}-{attempt}"
        self.enter(JobState.STARTING, run=run, attempt=attempt)
        self.add(Launch(run, attempt, self.job.version, self.job.parallelism, self.job.restore_from))
        self.set_deadline(self.timeouts.start)

    def kill(self, failure: Failure) -> None:
        """End the processes of the run, and again until they are gone."""
        if self.job.run is None:
            return
        self.set(killing=self.job.killing or failure)
        self.add(Kill(self.job.run, (self.job.killing or failure).message))
        self.set_deadline(self.timeouts.kill)
