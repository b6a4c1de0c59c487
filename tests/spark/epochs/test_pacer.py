"""The limit on what an epoch reads, in a world where an epoch costs a fixed time and so much per row."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.spark.tasks.admission import FIRST, LARGEST, LEAST, UTILISATION, RateEstimator, RateLimits

TARGET = 5.0


@dataclass
class World:
    """A source that rows come into, and a job that reads them; time is what epochs take."""

    fixed: float
    per_row: float
    pacer: RateEstimator = field(default_factory=RateEstimator)
    waiting: float = 0.0
    epochs: list[tuple[int, float]] = field(default_factory=list)

    def epoch(self, rate: float, noise: float = 1.0) -> None:
        """Read what is there and may be read, while more comes."""
        rows = min(int(self.waiting), self.pacer.rows())
        took = (self.fixed + rows * self.per_row) * noise
        self.waiting += rate * took - rows
        self.pacer.done(rows, took)
        self.epochs.append((rows, took))


@given(
    fixed=st.floats(0.05, 1.5),
    capacity=st.floats(2 * LEAST, 5e6),
    load=st.floats(0.01, 0.4),
    burst=st.integers(1, 200),
)
def test_a_burst_of_twenty_times_the_steady_rate_never_makes_an_epoch_longer_than_its_bound(
    fixed: float, capacity: float, load: float, burst: int
) -> None:
    """Promise: whatever the job can do, a burst waits in the source, and an epoch ends within the target."""
    world = World(fixed, 1 / capacity)
    steady = capacity * load
    world.waiting = steady * fixed
    for _ in range(50):
        world.epoch(steady)
    for _ in range(burst):
        world.epoch(20 * steady)
    come = world.waiting
    for _ in range(50):
        world.epoch(0)
    assert max(took for _, took in world.epochs[1:]) <= TARGET * 1.001
    assert world.waiting < max(1, come)
    while world.waiting >= 1:
        before = world.waiting
        world.epoch(0)
        assert world.waiting < before


@given(fixed=st.floats(0.1, 1.0), capacity=st.floats(1e4, 5e6), seed=st.integers(0, 1000))
def test_a_backlog_is_read_in_epochs_that_fill_most_of_the_target(fixed: float, capacity: float, seed: int) -> None:
    world, noise = World(fixed, 1 / capacity), random.Random(seed)
    world.waiting = capacity * 200
    for _ in range(20):
        world.epoch(0, noise.uniform(0.9, 1.1))
    late = [took for _, took in world.epochs[8:]]
    assert max(late) <= TARGET
    # Rows per second are then at least two thirds of all that the job can do without any fixed cost.
    assert sum(rows for rows, _ in world.epochs[8:]) / sum(late) > 0.66 * capacity * (1 - fixed / (0.5 * TARGET))


def test_six_million_rows_that_a_warm_job_reads_at_two_million_a_second_need_four_epochs() -> None:
    world = World(fixed=0.3, per_row=1 / 2e6)
    world.waiting = 6e6
    while world.waiting:
        world.epoch(0)
    assert [rows for rows, _ in world.epochs][:2] == [FIRST, 2_000_000]
    assert len(world.epochs) <= 4


def test_a_small_epoch_says_nothing_against_a_limit_that_held() -> None:
    pacer = RateEstimator()
    pacer.done(1_000_000, 1.0)
    held = pacer.rows()
    pacer.done(10, 0.2)
    assert pacer.rows() == held == 3_500_000


def test_between_the_marks_the_limit_stays_and_above_the_high_one_it_falls_at_once() -> None:
    pacer = RateEstimator(RateLimits(first=1_000))
    pacer.done(1_000, TARGET * 0.6)
    pacer.done(1_000, TARGET * 0.8)
    assert pacer.rows() == 1_000
    pacer.done(1_000, TARGET * 7)
    assert pacer.rows() == round(1_000 * UTILISATION / 7)


def test_the_first_epoch_is_cold_so_a_slow_one_says_less() -> None:
    pacer = RateEstimator()
    pacer.done(FIRST, TARGET * 2)
    assert pacer.rows() == FIRST
    pacer.done(FIRST, TARGET * 2)
    assert pacer.rows() == FIRST * UTILISATION / 2
    slow = RateEstimator()
    slow.done(FIRST, TARGET * 100)
    assert slow.rows() == 3 * FIRST * UTILISATION / 100


def test_where_time_does_not_go_by_rows_smaller_epochs_are_given_up() -> None:
    """Promise: a cluster whose epochs are slow in any case still drains a backlog."""
    world = World(fixed=TARGET, per_row=1e-7)
    world.waiting = 1e9
    for _ in range(30):
        world.epoch(0)
    assert min(rows for rows, _ in world.epochs) > FIRST / 2


def test_a_fixed_number_of_rows_is_kept_and_nothing_grows_past_the_largest() -> None:
    fixed = RateEstimator(RateLimits(epoch_rows=12))
    fixed.done(12, 100.0)
    assert fixed.rows() == 12
    pacer = RateEstimator()
    for _ in range(20):
        pacer.done(pacer.rows(), 0.001)
    assert pacer.rows() == LARGEST


def test_an_epoch_without_rows_teaches_nothing() -> None:
    pacer = RateEstimator(RateLimits(first=7))
    pacer.done(0, 100.0)
    assert pacer.rows() == 7


@pytest.mark.parametrize("seconds", [1.0, 60.0])
def test_the_target_is_a_setting(seconds: float) -> None:
    pacer = RateEstimator(RateLimits(seconds=seconds))
    pacer.done(1_000, 0.4 * seconds)
    assert pacer.rows() == 1_750
