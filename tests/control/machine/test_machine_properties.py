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
    RestartRequested,
    ShutdownRequested,
    Submitted,
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

    @rule(savepoint=st.sampled_from([None, "monday"]))
    def stop(self, savepoint: str | None) -> None:
        self.world.send("stop", savepoint=savepoint)

    @rule(kind=st.sampled_from(["cancel", "restart", "delete"]))
    def command(self, kind: str) -> None:
        self.final = None if kind == "restart" else self.final
        self.world.send(kind)

    @rule()
    def update(self) -> None:
        self.final = None
        self.version += 1
        old = self.world.job.request.old_version if self.world.job.request else self.world.job.version
        command = self.world.send("update", version=self.version)
        if command in self.world.done and not self.world.done[command].ok and not self.world.job.request:
            assert self.world.job.version == old

    @rule(parallelism=st.integers(1, 3))
    def rescale(self, parallelism: int) -> None:
        self.world.send("rescale", parallelism=parallelism)

    @rule(name=st.sampled_from(["tuesday", "friday"]))
    def savepoint(self, name: str) -> None:
        self.world.send("savepoint", name=name)

    @rule()
    def shutdown(self) -> None:
        self.world.deliver(ShutdownRequested())

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
        old = self.world.sent[-16:]
        for event in data.draw(st.lists(st.sampled_from(old), max_size=3)) if old else []:
            before = self.world.job
            self.world.deliver(event)
            assert self.world.job == before

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
    for what in later:
        if world.job.state is JobState.RESTARTING:
            world.wait()
            assert world.driver
            assert world.driver.version == 1
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
