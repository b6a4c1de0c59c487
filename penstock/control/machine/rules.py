"""The state machine of a job, as a pure function: event, time and random in, job and instructions out.

The rules are an ordered list; the first that applies decides. An event that no rule names is ignored: that is what
makes it harmless to deliver one again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from penstock.control.machine import commands, endings, reports
from penstock.control.machine.draft import Draft, Timeouts, Transition
from penstock.control.machine.events import (
    COMMANDS,
    CancelRequested,
    Command,
    DeleteRequested,
    DoesNotFit,
    DriverEnded,
    DriverGone,
    DriverLost,
    DriverRunning,
    EpochStalled,
    Event,
    FitsNow,
    LaunchFailed,
    Outcome,
    RescaleRequested,
    RestartRequested,
    RunReport,
    SavepointCreated,
    SavepointFailed,
    SavepointRequested,
    ShutdownRequested,
    StopRequested,
    Submitted,
    TimerDue,
    UpdateRequested,
)
from penstock.control.machine.job import Job, RequestKind
from penstock.control.machine.states import FINAL, LIVE, WAITING, JobState

ANY = frozenset(JobState)
CREATED, STARTING, RUNNING = JobState.CREATED, JobState.STARTING, JobState.RUNNING
FAILING, RESTARTING = JobState.FAILING, JobState.RESTARTING
STOPPING, CANCELLING = JobState.STOPPING, JobState.CANCELLING
_ENDINGS = (DriverEnded, DriverGone, LaunchFailed)
_CHANGES = (RestartRequested, UpdateRequested, RescaleRequested)


@dataclass(frozen=True, slots=True)
class Rule:
    """What an event does in these states, if the condition holds."""

    event: type[Any] | tuple[type[Any], ...]
    states: frozenset[JobState] | set[JobState]
    act: Callable[[Draft, Any], str]
    condition: Callable[[Job, Any, float], bool] | None = None
    accepts: bool = True  # whether it carries a command out; the others ignore or refuse it

    def applies(self, job: Job, event: Event, now: float) -> bool:
        """Whether this rule decides."""
        if job.state not in self.states or not isinstance(event, self.event):
            return False
        return self.condition is None or self.condition(job, event, now)


def step(job: Job, event: Event, now: float, jitter: float = 0.0, timeouts: Timeouts | None = None) -> Transition:
    """Apply an event to a job.

    `now` is in seconds since 1970; `jitter` is random, from -1 to 1.

    >>> job = Job(id="j1", name="prices")
    >>> step(job, FitsNow(), now=0.0).job.state
    <JobState.STARTING: 'STARTING'>
    """
    draft = Draft(job, now, jitter, timeouts or Timeouts())
    for rule in RULES:
        if rule.applies(job, event, now):
            return draft.transition(rule.act(draft, event))
    return Transition(job)


def possible_commands(job: Job) -> tuple[str, ...]:
    """Return the commands that the job accepts now, by kind."""
    if job.deleted:
        return ()
    refused = _CHANGES if job.request else ()
    accepted = {rule.event for rule in RULES if rule.accepts and job.state in rule.states and rule.event not in refused}
    if job.savepoint:
        accepted.discard(SavepointRequested)
    return tuple(kind for kind, event in COMMANDS.items() if event in accepted)


def _ignore(draft: Draft, event: Event) -> str:
    return ""


def _refuse(draft: Draft, event: Command) -> str:
    return commands.refuse(draft, event, possible_commands(draft.job))


def _is_known(job: Job, event: Command, now: float) -> bool:
    return job.knows(event.command)


def _is_deleted(job: Job, event: Event, now: float) -> bool:
    return job.deleted


def _is_of_another_run(job: Job, event: RunReport, now: float) -> bool:
    return event.run != job.run


def _names_savepoint(job: Job, event: StopRequested, now: float) -> bool:
    return event.savepoint is not None


def _has_request(job: Job, event: Command, now: float) -> bool:
    return job.request is not None


def _has_version(job: Job, event: UpdateRequested, now: float) -> bool:
    return event.version == job.version


def _has_parallelism(job: Job, event: RescaleRequested, now: float) -> bool:
    return event.parallelism == job.parallelism


def _no_savepoint_in_progress(job: Job, event: SavepointRequested, now: float) -> bool:
    return job.savepoint is None


def _is_rescale_on_trial(job: Job, event: DoesNotFit, now: float) -> bool:
    return job.request is not None and job.request.on_trial and job.request.kind is RequestKind.RESCALE


def _is_new_reason(job: Job, event: DoesNotFit, now: float) -> bool:
    return event.reason != job.waiting


def _is_due(job: Job, event: TimerDue, now: float) -> bool:
    return job.wake_at is not None and now >= job.wake_at


def _is_change_applied(job: Job, event: DriverRunning, now: float) -> bool:
    return job.request is not None and job.request.applied


def _is_not_killed(job: Job, event: RunReport, now: float) -> bool:
    return job.killing is None


def _has_finished(job: Job, event: DriverEnded, now: float) -> bool:
    return event.outcome is Outcome.FINISHED


def _concerns_savepoint(job: Job, event: SavepointCreated | SavepointFailed, now: float) -> bool:
    in_progress = job.savepoint is not None and job.savepoint.name == event.name
    return in_progress or (job.request is not None and job.request.savepoint == event.name)


RULES: tuple[Rule, ...] = (
    # Delivered again, or too late.
    Rule(Command, ANY, _ignore, _is_known, accepts=False),
    Rule(Command, ANY, _refuse, _is_deleted, accepts=False),
    Rule(RunReport, ANY, _ignore, _is_of_another_run),
    # Commands: stop and cancel end a change in progress, nothing else does.
    Rule(StopRequested, WAITING | {FAILING}, commands.refuse_savepoint, _names_savepoint, accepts=False),
    Rule(StopRequested, WAITING, commands.stop_waiting),
    Rule(StopRequested, {FAILING}, commands.stop_killed),
    Rule(StopRequested, {STARTING, RUNNING}, commands.stop),
    Rule(CancelRequested, WAITING, commands.cancel_waiting),
    Rule(CancelRequested, LIVE - {CANCELLING}, commands.cancel),
    Rule(_CHANGES, ANY, _refuse, _has_request, accepts=False),
    Rule(UpdateRequested, ANY, commands.change_nothing, _has_version, accepts=False),
    Rule(RescaleRequested, ANY, commands.change_nothing, _has_parallelism, accepts=False),
    Rule(RestartRequested, FINAL, commands.start_change),
    Rule(RestartRequested, {RESTARTING}, commands.restart_now),
    Rule(RestartRequested, {STARTING, RUNNING}, commands.stop_to_change),
    Rule(RescaleRequested, FINAL, commands.set_parallelism),
    Rule(RescaleRequested, WAITING, commands.start_change),
    Rule(RescaleRequested, {STARTING, RUNNING}, commands.stop_to_change),
    Rule(UpdateRequested, FINAL | WAITING, commands.start_change),
    Rule(UpdateRequested, {STARTING, RUNNING}, commands.stop_to_change),
    Rule(SavepointRequested, {RUNNING}, commands.take_savepoint, _no_savepoint_in_progress),
    Rule(DeleteRequested, FINAL, commands.delete),
    Rule(Command, ANY, _refuse, accepts=False),
    Rule(ShutdownRequested, {STARTING, RUNNING}, commands.shut_down),
    # Waiting for cores and memory, or for a time.
    Rule(Submitted, {CREATED}, reports.submitted),
    Rule(FitsNow, {CREATED}, reports.launch),
    Rule(DoesNotFit, {CREATED}, reports.roll_back_rescale, _is_rescale_on_trial),
    Rule(DoesNotFit, {CREATED}, reports.wait_for_slots, _is_new_reason),
    Rule(TimerDue, {RESTARTING}, reports.restart, _is_due),
    Rule(TimerDue, {STARTING}, reports.start_timed_out, _is_due),
    Rule(TimerDue, {STOPPING, CANCELLING, FAILING}, reports.end_timed_out, _is_due),
    # The run goes on.
    Rule(DriverRunning, {STARTING}, reports.running),
    Rule(DriverRunning, {STOPPING}, reports.running_while_stopping, _is_change_applied),
    Rule((SavepointCreated, SavepointFailed), LIVE, reports.savepoint_reported, _concerns_savepoint),
    Rule((DriverLost, EpochStalled), {STARTING, RUNNING}, reports.kill),
    Rule((DriverLost, EpochStalled), {STOPPING, CANCELLING}, reports.kill_in_place, _is_not_killed),
    # The run is over.
    Rule(DriverEnded, LIVE, endings.finished, _has_finished),
    Rule(_ENDINGS, {CANCELLING}, endings.canceled),
    Rule(_ENDINGS, {STOPPING}, endings.stopped),
    Rule(_ENDINGS, {STARTING, RUNNING, FAILING}, endings.failed),
)
