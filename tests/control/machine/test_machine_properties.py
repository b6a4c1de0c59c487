"""Random lives of a job: users change their minds, drivers crash, the job manager dies and reports everything again."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.control.machine.events import (
    DoesNotFit,
    DriverLost,
    EpochStalled,
    FitsNow,
    Outcome,
    RescaleRequested,
    RestartRequested,
    RunReport,
    ShutdownRequested,
    Submitted,
    TimerDue,
    UpdateRequested,
)
from penstock.control.machine.job import Job
from penstock.control.machine.outstanding import outstanding
from penstock.control.machine.restart_policies import Exponential, FailureRate, FixedDelay, NoRestart
from penstock.control.machine.states import JobState
from tests.control.machine.world import MISTAKE, NO_BROKER, World

POLICIES = st.sampled_from([NoRestart(), FixedDelay(1, 2), Exponential(), FailureRate(2, 60, 1)])
ERRORS = st.sampled_from([MISTAKE, NO_BROKER, None])


class Lives(RuleBasedStateMachine):
    """The laws of a single step are checked by `World.check`."""

    @initialize(policy=POLICIES)
    def submit(self, policy: NoRestart) -> None:
        self.world = World(Job(id="j1", name="prices", policy=policy))
        self.version = 1
        self.final: JobState | None = None
        self.world.deliver(Submitted())

    @property
    def driver_exists(self) -> bool:
        return self.world.driver is not None

    # What users do.

    @rule(with_savepoint=st.booleans())
    def stop(self, with_savepoint: bool) -> None:
        self.world.send("stop", savepoint=self.new_name() if with_savepoint else None)

    @rule()
    def cancel(self) -> None:
        self.world.send("cancel")

    @rule()
    def restart(self) -> None:
        self.final = None
        self.world.send("restart")

    @precondition(lambda self: len(self.world.events) > 30)
    @rule()
    def delete(self) -> None:
        self.world.send("delete")

    @rule()
    def update(self) -> None:
        self.final = None
        self.version += 1
        self.world.send("update", version=self.version)

    @rule(parallelism=st.integers(1, 3))
    def rescale(self, parallelism: int) -> None:
        self.world.send("rescale", parallelism=parallelism)

    @rule()
    def savepoint(self) -> None:
        self.world.send("savepoint", name=self.new_name())

    @rule()
    def shutdown(self) -> None:
        self.world.deliver(ShutdownRequested())

    def new_name(self) -> str:
        """A name that no savepoint has: a driver refuses one that exists."""
        return f"savepoint-{len(self.world.sent)}"

    # Most of the time all goes well; without these two rules few lives get as far as RUNNING.

    @precondition(lambda self: self.world.job.state.is_active and self.world.job.state is not JobState.RUNNING)
    @rule(steps=st.integers(1, 4))
    def all_goes_well(self, steps: int) -> None:
        for _ in range(steps):
            if self.world.job.state.is_active and self.world.job.state is not JobState.RUNNING:
                self.world.advance()

    @precondition(lambda self: self.world.job.state.is_final and not self.world.job.deleted)
    @rule()
    def start_again(self) -> None:
        self.restart()
        self.world.start()

    # What drivers do.

    @precondition(lambda self: self.driver_exists and not self.world.driver.runs)
    @rule()
    def runs(self) -> None:
        self.world.runs()

    @precondition(lambda self: self.driver_exists and self.world.driver.asked)
    @rule(with_savepoint=st.booleans())
    def obey(self, with_savepoint: bool) -> None:
        self.world.obey(with_savepoint)

    @precondition(lambda self: self.driver_exists and self.world.driver.savepoints)
    @rule(ok=st.booleans())
    def saved(self, ok: bool) -> None:
        self.world.savepoint(ok)

    @precondition(lambda self: self.driver_exists)
    @rule(outcome=st.sampled_from(Outcome), error=ERRORS)
    def end(self, outcome: Outcome, error: None) -> None:
        self.world.end(outcome, error if outcome is Outcome.FAILED else None)

    @precondition(lambda self: self.driver_exists)
    @rule()
    def crash(self) -> None:
        self.world.gone()

    @precondition(lambda self: self.driver_exists and not self.world.driver.runs)
    @rule()
    def cannot_be_launched(self) -> None:
        self.world.launch_fails()

    # What the supervisor sees.

    @precondition(lambda self: self.world.job.run)
    @rule(stalled=st.booleans())
    def lost(self, stalled: bool) -> None:
        run = self.world.job.run or ""
        self.world.deliver(EpochStalled(run) if stalled else DriverLost(run, "no heartbeat for 15 s"))

    @precondition(lambda self: self.world.job.run and not self.driver_exists)
    @rule()
    def gone(self) -> None:
        self.world.gone()

    @rule(fits=st.booleans())
    def slots(self, fits: bool) -> None:
        self.world.deliver(FitsNow() if fits else DoesNotFit("needs 4 cores"))

    @precondition(lambda self: self.world.job.wake_at is not None)
    @rule()
    def wait(self) -> None:
        self.world.wait()

    @rule(data=st.data())
    def manager_crashes(self, data: st.DataObject) -> None:
        """The next one carries out what is outstanding, and delivers old commands and reports of runs again."""
        self.world.carry_out(outstanding(self.world.job))
        # A job remembers its newest commands; the store knows which of the older ones are finished.
        reports = [event for event in self.world.events if isinstance(event, RunReport)]
        old = [*self.world.sent[-16:], *reports[-16:]]
        for event in data.draw(st.lists(st.sampled_from(old), max_size=3)) if old else []:
            before = self.world.job
            self.world.deliver(event)
            assert self.world.job == before, f"{event} had an effect when it was delivered again"

    @rule()
    def a_timer_is_early(self) -> None:
        if self.world.job.wake_at is None or self.world.now < self.world.job.wake_at:
            assert self.world.deliver(TimerDue()).states == ()

    # Laws.

    @invariant()
    def at_most_one_driver_runs(self) -> None:
        assert len(self.world.drivers) <= 1

    @invariant()
    def a_final_state_stays_until_a_restart_or_update(self) -> None:
        state = self.world.job.state
        assert self.final in (None, state), f"{self.final} became {state} by {self.world.events[-1]}"
        self.final = state if state.is_final else None

    def teardown(self) -> None:
        """When all respond, each command has exactly one end, and a failed job has its cause."""
        if not hasattr(self, "world"):
            return
        self.world.settle()
        assert set(self.world.done) == {event.command for event in self.world.sent}
        succeeded = {event.command: event for event in self.world.sent if self.world.done[event.command].ok}
        in_order = [succeeded[command] for command in self.world.done if command in succeeded]
        versions = [event.version for event in in_order if isinstance(event, UpdateRequested)]
        levels = [event.parallelism for event in in_order if isinstance(event, RescaleRequested)]
        assert self.world.job.version == (versions or [1])[-1], "it has the version of the last update that succeeded"
        assert self.world.job.parallelism == (levels or [None])[-1]
        if self.world.job.state is JobState.FAILED:
            assert self.world.job.error is not None


TestLives = Lives.TestCase
TestLives.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


@given(
    policy=POLICIES,
    first=st.sampled_from(["mistake", "transient", "gone", "launch", "lost", "timeout"]),
    later=st.lists(st.sampled_from(["mistake", "transient", "gone", "runs"]), max_size=6),
    kind=st.sampled_from(["update", "rescale"]),
)
@settings(deadline=None)
def test_a_rollback_ends_in_the_old_version_running_or_failed_with_its_cause(
    policy: NoRestart, first: str, later: list[str], kind: str
) -> None:
    world = World(Job(id="j1", name="prices", policy=policy, parallelism=1))
    world.start()
    command = world.send("update", version=2) if kind == "update" else world.send("rescale", parallelism=2)
    world.obey()
    world.deliver(FitsNow())
    _fail(world, first)
    assert not world.done[command].ok
    assert world.job.restore_from == f"/savepoints/j1-before-{kind}-1"
    for what in later:
        if world.job.state is JobState.RESTARTING:
            world.wait()
            assert world.driver
            assert world.driver.version == 1
            has_run = world.job.restore_from is None
            assert has_run or world.driver.restore_from == f"/savepoints/j1-before-{kind}-1"
            _fail(world, what)
    world.settle()
    assert (world.job.version, world.job.parallelism) == (1, 1)
    if world.job.state is JobState.FAILED:
        assert world.job.error is not None
    else:
        assert (world.job.state, world.job.running_version) == (JobState.RUNNING, 1)


def _fail(world: World, how: str) -> None:
    run = world.job.run or ""
    if how in ("mistake", "transient"):
        world.end(Outcome.FAILED, MISTAKE if how == "mistake" else NO_BROKER)
    elif how == "gone":
        world.gone()
    elif how == "launch":
        world.launch_fails()
    elif how == "runs":
        world.runs()
    else:
        world.deliver(DriverLost(run, "no heartbeat")) if how == "lost" else world.wait()
        world.gone()


@given(st.integers(0, 3))
def test_only_a_restart_or_an_update_leaves_a_final_state(number: int) -> None:
    state = [JobState.FAILED, JobState.STOPPED, JobState.CANCELED, JobState.FINISHED][number]
    for event in (RestartRequested("c1"), UpdateRequested("c1", 2)):
        world = World(Job(id="j1", name="prices", state=state))
        assert world.deliver(event).states == (JobState.CREATED,)
