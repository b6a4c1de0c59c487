"""A supervisor and its drivers in miniature: it carries instructions out, and reports what the drivers do."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

from penstock.control.machine.draft import Timeouts, Transition
from penstock.control.machine.events import (
    COMMANDS,
    Command,
    DriverEnded,
    DriverGone,
    DriverRunning,
    Event,
    FitsNow,
    LaunchFailed,
    Outcome,
    SavepointCreated,
    SavepointFailed,
    TimerDue,
)
from penstock.control.machine.failure import Failure
from penstock.control.machine.instructions import (
    AskCancel,
    AskStop,
    FinishCommand,
    Instruction,
    Kill,
    Launch,
    TakeSavepoint,
)
from penstock.control.machine.job import Job
from penstock.control.machine.outstanding import outstanding
from penstock.control.machine.rules import step
from penstock.control.machine.states import ALLOWED, JobState

STORED_WITH_THE_JOB = ("FinishCommand", "RecordException", "RemoveFiles")
NO_BROKER = Failure("NoBroker", "no broker at localhost:9092", transient=True, exit_code=1)
MISTAKE = Failure("UnknownColumn", "unknown column 'pirce'", exit_code=2)
TIMEOUTS = Timeouts()


@dataclass
class Driver:
    """A process."""

    version: int
    restore_from: str | None = None
    runs: bool = False
    asked: str | None = None
    savepoint: str | None = None  # of the stop
    savepoints: list[str] = field(default_factory=list)


@dataclass
class World:
    """One job; every step is checked against the laws of the machine."""

    job: Job = field(default_factory=lambda: Job(id="j1", name="prices"))
    now: float = 1_000.0
    drivers: dict[str, Driver] = field(default_factory=dict)
    launched: set[str] = field(default_factory=set)
    sent: list[Command] = field(default_factory=list)
    done: dict[str, FinishCommand] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    causes: list[str] = field(default_factory=list)
    created: set[str] = field(default_factory=set)  # savepoints of stops

    def send(self, kind: str, **arguments: object) -> str:
        """Send a command, and return its id."""
        command = f"c{len(self.sent) + 1}"
        event = COMMANDS[kind](command, **arguments)
        self.sent.append(event)
        self.deliver(event)
        return command

    def deliver(self, event: Event) -> Transition:
        """Apply an event, check the laws, and carry the instructions out."""
        before = self.job
        transition = step(before, event, self.now)
        self.check(before, event, transition)
        self.job = transition.job
        self.events.append(event)
        self.causes.append(transition.cause)
        self.carry_out(transition.instructions)
        return transition

    def check(self, before: Job, event: Event, transition: Transition) -> None:
        """Check the laws of one step."""
        job = transition.job
        path = (before.state, *transition.states)
        for earlier, later in pairwise(path):
            assert later in ALLOWED[earlier], f"{event} leads from {earlier} to {later}"
        assert path[-1] is job.state
        assert transition.cause or not transition.states, f"{event} changes the state without a cause"
        job.check()
        assert Job.from_json(job.to_json()) == job
        again = step(job, event, self.now)
        assert again.job == job, f"{event} changes the job again when it is delivered again"
        for instruction in again.instructions:
            assert instruction in outstanding(job)
        for instruction in transition.instructions:
            if type(instruction).__name__ not in STORED_WITH_THE_JOB:
                assert instruction in outstanding(job), f"{instruction} would be lost in a crash"

    def carry_out(self, instructions: tuple[Instruction, ...]) -> None:
        """Do what the machine wants; slots and timers are the caller's."""
        for instruction in instructions:
            match instruction:
                case Launch(run=run, version=version, restore_from=restore_from) if run not in self.launched:
                    assert not self.drivers, f"{run} is launched while {list(self.drivers)} run"
                    self.launched.add(run)
                    self.drivers[run] = Driver(version, restore_from)
                case AskStop(run=run, savepoint=savepoint) if run in self.drivers:
                    assert savepoint not in self.created, f"{savepoint} exists already"
                    self.drivers[run].asked, self.drivers[run].savepoint = "stop", savepoint
                case AskCancel(run=run) if run in self.drivers:
                    self.drivers[run].asked = "cancel"
                case TakeSavepoint(run=run, name=name) if run in self.drivers:
                    if name not in self.drivers[run].savepoints:
                        self.drivers[run].savepoints.append(name)
                case Kill(run=run):
                    self.drivers.pop(run, None)
                case FinishCommand(command=command):
                    assert command not in self.done, f"{command} is finished twice"
                    self.done[command] = instruction
                case _:
                    pass

    @property
    def driver(self) -> Driver | None:
        """The driver of the current run, if its process exists."""
        return self.drivers.get(self.job.run or "")

    def end(self, outcome: Outcome, error: Failure | None = None, savepoint: str | None = None) -> None:
        """The driver ends, and reports how."""
        run = self.job.run or ""
        del self.drivers[run]
        self.deliver(DriverEnded(run, outcome, error, savepoint))

    def runs(self) -> None:
        """The driver reports that it runs."""
        assert self.driver
        self.driver.runs = True
        self.deliver(DriverRunning(self.job.run or ""))

    def start(self) -> None:
        """Find slots, and run."""
        self.deliver(FitsNow())
        self.runs()

    def launch_fails(self) -> None:
        """The process could not be started."""
        run = self.job.run or ""
        del self.drivers[run]
        self.deliver(LaunchFailed(run, NO_BROKER))

    def obey(self, with_savepoint: bool = True, why: Failure = NO_BROKER) -> None:
        """The driver does what it was asked."""
        driver, run = self.driver, self.job.run or ""
        assert driver
        assert driver.asked
        if driver.asked == "cancel":
            return self.end(Outcome.CANCELED)
        if driver.savepoint and with_savepoint:
            self.created.add(driver.savepoint)
            self.deliver(SavepointCreated(run, driver.savepoint, f"/savepoints/{driver.savepoint}"))
        elif driver.savepoint:
            self.deliver(SavepointFailed(run, driver.savepoint, why))
        return self.end(Outcome.STOPPED)

    def savepoint(self, ok: bool = True) -> None:
        """The driver creates a savepoint while it runs."""
        assert self.driver
        name = self.driver.savepoints.pop()
        run = self.job.run or ""
        self.deliver(SavepointCreated(run, name, f"/savepoints/{name}") if ok else SavepointFailed(run, name, MISTAKE))

    def gone(self) -> None:
        """The supervisor sees that the process of the run does not exist."""
        run = self.job.run or ""
        self.drivers.pop(run, None)
        self.deliver(DriverGone(run, exit_code=-9))

    def wait(self) -> None:
        """Let the time of the job's timer come."""
        assert self.job.wake_at is not None
        self.now = max(self.now, self.job.wake_at)
        self.deliver(TimerDue())

    def settle(self) -> None:
        """Let all drivers respond until the job is RUNNING or has ended."""
        for _ in range(50):
            if self.job.state is JobState.RUNNING and not self.job.savepoint:
                return
            if self.job.state.is_final:
                return
            self.advance()
        raise AssertionError(f"the job is still {self.job.state}: {self.causes}")

    def advance(self) -> None:
        """One thing that a healthy driver and supervisor do next."""
        if self.job.state is JobState.CREATED:
            self.deliver(FitsNow())
        elif self.job.state is JobState.RESTARTING:
            self.wait()
        elif self.driver is None or self.job.killing:
            self.gone()
        elif self.driver.asked:
            self.obey()
        elif self.driver.savepoints:
            self.savepoint()
        else:
            self.runs()
