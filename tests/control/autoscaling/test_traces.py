"""The autoscaler against traces of load: it converges, works the lag off, and does not oscillate."""

from __future__ import annotations

from itertools import pairwise
from math import ceil, log2

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.control.autoscaling.policies import (
    AutoscalingPolicy,
    CustomPolicy,
    LagPolicy,
    LatencyPolicy,
    ThroughputPolicy,
    UtilisationPolicy,
)
from tests.control.autoscaling.queue_simulator import TICK, Simulation, Trace, bursts, constant, ramp, sine, step

HOUR = 3_600
POLICIES = [
    LagPolicy(),
    ThroughputPolicy(),
    ThroughputPolicy(rows_per_core=1_000),
    LatencyPolicy(),
    UtilisationPolicy(),
]
CUSTOM = CustomPolicy(expression="ceil((arrival + lag / 120) / 700)")


def named(policy: AutoscalingPolicy) -> str:
    return str(policy)


@pytest.mark.parametrize("policy", POLICIES, ids=named)
@pytest.mark.parametrize("start", [1, 8, 64])
def test_a_constant_load_is_reached_in_few_changes_and_then_kept(policy: AutoscalingPolicy, start: int) -> None:
    job = Simulation(policy, constant(5_600), parallelism=start).run(2 * HOUR)
    # At most twice or half as much in one change, and one correction.
    assert len(job.changes) <= ceil(abs(log2(8 / start))) + 2, job.changes
    assert job.changes_after(HOUR) == []
    assert job.queue < 10_000
    assert 6 <= job.parallelism <= 16


def test_a_user_s_function_settles_on_a_constant_load() -> None:
    job = Simulation(CUSTOM, constant(5_600), parallelism=1).run(2 * HOUR)
    assert len(job.changes) <= 8, job.changes
    assert job.changes_after(HOUR) == []
    assert (job.queue, job.parallelism) == (0, 9)


@pytest.mark.parametrize("policy", POLICIES, ids=named)
def test_a_noisy_constant_load_does_not_oscillate(policy: AutoscalingPolicy) -> None:
    job = Simulation(policy, constant(5_600), parallelism=2, noise=0.3, efficiency=0.9).run(3 * HOUR)
    assert len(job.changes) <= 6, job.changes
    assert len(job.changes_after(HOUR)) <= 1, job.changes


@pytest.mark.parametrize("policy", POLICIES, ids=named)
def test_a_step_up_is_followed_and_its_lag_worked_off(policy: AutoscalingPolicy) -> None:
    job = Simulation(policy, step(700, 7_000, at=600), parallelism=1).run(2 * HOUR)
    assert job.parallelism >= 7
    assert job.queue < 10_000
    assert job.reversals <= 2, job.changes


@pytest.mark.parametrize("policy", POLICIES, ids=named)
def test_a_step_down_gives_cores_back(policy: AutoscalingPolicy) -> None:
    job = Simulation(policy, step(7_000, 700, at=HOUR), parallelism=10).run(2 * HOUR)
    assert job.parallelism <= 3, job.changes
    assert job.queue < 10_000


@pytest.mark.parametrize("policy", POLICIES, ids=named)
def test_a_ramp_is_followed_in_one_direction(policy: AutoscalingPolicy) -> None:
    job = Simulation(policy, ramp(500, 20_000, HOUR), parallelism=1).run(2 * HOUR)
    assert job.queue < 10_000
    assert job.parallelism >= 20
    assert job.reversals <= 2, job.changes


@pytest.mark.parametrize("policy", POLICIES, ids=named)
def test_a_day_and_night_cycle_has_few_reversals(policy: AutoscalingPolicy) -> None:
    cycles = 3
    job = Simulation(policy, sine(500, 10_000, 2 * HOUR), parallelism=2).run(cycles * 2 * HOUR)
    assert job.reversals <= 4 * cycles, job.changes
    assert max(job.lags) < 10_000 * 60, "never more than a minute of the highest load"
    assert sum(job.levels) / len(job.levels) < 14, "it does not stay at the top"


@pytest.mark.parametrize("policy", POLICIES, ids=named)
def test_bursts_are_worked_off_within_bounds(policy: AutoscalingPolicy) -> None:
    job = Simulation(policy, bursts(1_000, 8_000, every=1_800, length=120), parallelism=2).run(4 * HOUR)
    quiet = job.lags[1_700 // TICK :: 1_800 // TICK]
    assert max(quiet) < 10_000, quiet
    assert all(1 <= level <= 64 for level in job.levels)
    assert len(job.changes) <= 8 * 8, job.changes


def test_an_idle_job_gives_its_cores_back() -> None:
    job = Simulation(LagPolicy(minimum=2), constant(0), parallelism=64).run(HOUR)
    assert job.parallelism == 2


def test_a_backlog_is_worked_off_and_the_cores_are_given_back() -> None:
    job = Simulation(LagPolicy(), constant(700), parallelism=1, queue=1e6).run(2 * HOUR)
    assert max(job.levels) >= 4
    assert job.queue < 10_000
    assert job.parallelism <= 2, job.changes


def test_a_fast_job_without_a_backlog_is_left_alone() -> None:
    job = Simulation(LagPolicy(), constant(100_000), rows_per_core=18_000, parallelism=8).run(HOUR)
    assert job.changes == [], "the rows of the next epoch are more than 10,000, but no backlog"


def test_a_load_that_the_maximum_cannot_serve_stays_at_the_maximum() -> None:
    job = Simulation(LagPolicy(maximum=4), constant(50_000), parallelism=1).run(HOUR)
    assert job.parallelism == 4
    assert len(job.changes) == 2


@pytest.mark.parametrize("measures_busy", [True, False])
def test_less_that_was_not_enough_is_not_tried_again_and_again(measures_busy: bool) -> None:
    """Cores that help less and less: what one core does alone promises too much for many."""
    policy = LagPolicy()
    job = Simulation(policy, constant(4_000), parallelism=16, efficiency=0.6, measures_busy=measures_busy).run(4 * HOUR)
    assert job.queue < 20_000
    assert job.reversals <= 8, job.changes


@given(
    policy=st.sampled_from(POLICIES),
    load=st.floats(0.1, 30),
    start=st.integers(1, 64),
    efficiency=st.floats(0.8, 1.0),
    noise=st.floats(0, 0.2),
    downtime=st.integers(5, 40),
    seed=st.integers(0, 1_000),
)
@settings(deadline=None, max_examples=30)
def test_any_constant_load_settles_within_bounds_and_cooldowns(
    policy: AutoscalingPolicy, load: float, start: int, efficiency: float, noise: float, downtime: int, seed: int
) -> None:
    trace = constant(load * 1_000)
    job = Simulation(policy, trace, parallelism=start, efficiency=efficiency, noise=noise, downtime=downtime, seed=seed)
    job.run(HOUR * 3 // 2)
    assert all(policy.minimum <= level <= policy.maximum for level in job.levels)
    assert len(job.changes) <= 12, job.changes
    assert len(job.changes_after(HOUR)) <= 2, job.changes
    for earlier, later in pairwise(job.changes):
        cooldown = policy.up_cooldown if later.after > later.before else policy.down_cooldown
        assert later.at - earlier.at >= cooldown


# Load of a day in short, a value a minute, made by hand: night, morning, a peak with two gaps as of a producer that is
# restarted and then sends what it has kept, and the evening.
DAY = [
    *(0.4, 0.4, 0.3, 0.4, 0.5, 0.4, 0.3, 0.3, 0.4, 0.4, 0.5, 0.6, 0.7, 0.9, 1.1, 1.2, 1.6, 1.9, 2.1, 2.0, 2.4, 2.8),
    *(3.1, 3.0, 3.4, 4.1, 5.2, 6.8, 7.9, 8.4, 8.1, 0.0, 0.0, 14.0, 9.1, 8.8, 9.4, 9.0, 8.3, 8.9, 0.0, 12.5, 8.7, 8.2),
    *(7.4, 6.9, 6.1, 5.0, 4.4, 4.1, 3.9, 3.6, 3.7, 3.3, 3.0, 2.7, 2.9, 2.4, 2.2, 1.9, 1.5, 1.6, 1.2, 1.1, 0.9, 0.8),
    *(0.7, 0.6, 0.6, 0.5, 0.4, 0.4, 0.4, 0.3, 0.4, 0.4, 0.3, 0.4, 0.4, 0.5, 0.4, 0.3, 0.4, 0.3, 0.4, 0.4, 0.4, 0.3),
]


def replayed(minutes: list[float], scale: float) -> Trace:
    return lambda time: scale * minutes[min(int(time // 60), len(minutes) - 1)]


@given(
    policy=st.sampled_from(POLICIES),
    scale=st.floats(200, 3_000),
    start=st.integers(1, 32),
    efficiency=st.floats(0.8, 1.0),
    noise=st.floats(0, 0.2),
    downtime=st.integers(5, 40),
    seed=st.integers(0, 1_000),
)
@settings(deadline=None, max_examples=20)
def test_a_day_s_load_is_followed_up_and_down_without_oscillation(
    policy: AutoscalingPolicy, scale: float, start: int, efficiency: float, noise: float, downtime: int, seed: int
) -> None:
    trace = replayed(DAY, scale)
    job = Simulation(policy, trace, parallelism=start, efficiency=efficiency, noise=noise, downtime=downtime, seed=seed)
    job.run(60 * len(DAY) + HOUR)
    # Down to the night, up to noon, down again; and around each of the two gaps, where latency and rates jump.
    assert job.reversals <= 10, job.changes
    assert len(job.changes_after(60 * len(DAY) + HOUR / 2)) <= 1, job.changes
    # Who says how many rows a core can process, and promises too much, has a backlog for longer.
    assert job.queue < 10_000 + 60 * scale or getattr(policy, "rows_per_core", None) is not None


@given(
    policy=st.sampled_from(POLICIES),
    parts=st.lists(st.tuples(st.integers(10, 40), st.floats(0.1, 20)), min_size=1, max_size=4),
    seed=st.integers(0, 1_000),
)
@settings(deadline=None, max_examples=20)
def test_any_steps_are_followed_within_bounds_and_then_it_rests(
    policy: AutoscalingPolicy, parts: list[tuple[int, float]], seed: int
) -> None:
    minutes = [load for length, load in parts for _ in range(length)]
    job = Simulation(policy, replayed(minutes, 1_000), noise=0.1, seed=seed).run(60 * len(minutes) + HOUR)
    assert all(policy.minimum <= level <= policy.maximum for level in job.levels)
    assert job.reversals <= 2 * len(parts) + 1, job.changes
    assert len(job.changes_after(60 * len(minutes) + HOUR * 2 / 3)) <= 1, job.changes
