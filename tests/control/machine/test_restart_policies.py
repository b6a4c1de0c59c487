from __future__ import annotations

import json
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.control.machine.restart_policies import (
    DEFAULT,
    POLICIES,
    Exponential,
    FailureRate,
    FixedDelay,
    NoRestart,
    RestartPolicy,
    restart_policy,
)
from penstock.errors import BadValue

SPANS = st.floats(0, 1e6)
COUNTS = st.integers(1, 99)
ALL = st.one_of(
    st.just(NoRestart()),
    st.builds(FixedDelay, SPANS, st.none() | COUNTS),
    st.builds(
        Exponential,
        st.floats(0, 60),
        st.floats(60, 1e6),
        st.floats(1, 10),
        st.floats(0, 1),
        SPANS,
        st.none() | COUNTS,
    ),
    st.builds(FailureRate, COUNTS, SPANS, SPANS),
)
FAILURES = st.lists(st.floats(0, 1e5), min_size=1, max_size=100).map(lambda gaps: list(accumulate(gaps)))


def delays(policy: RestartPolicy, count: int, gap: float = 0.0) -> list[float | None]:
    """The delays after each of so many failures; the job runs for `gap` seconds between them."""
    failures: list[float] = []
    now, result = 0.0, []
    for _ in range(count):
        failures.append(now)
        delay = policy.next_delay(failures, now)
        result.append(delay)
        now += gap + (delay or 0.0)
    return result


def test_no_restart_gives_up_at_once() -> None:
    assert delays(NoRestart(), 1) == [None]


def test_a_fixed_delay_has_so_many_attempts_in_all() -> None:
    assert delays(FixedDelay(5, attempts=2), 3, gap=1e6) == [5, 5, None]
    assert delays(FixedDelay(5, attempts=None), 100)[-1] == 5


def test_the_exponential_delay_doubles_up_to_its_maximum_and_ends_after_ten_attempts() -> None:
    assert delays(DEFAULT, 11) == [1, 2, 4, 8, 16, 32, 60, 60, 60, 60, None]


def test_a_job_that_ran_long_enough_starts_over() -> None:
    assert delays(Exponential(reset_after=600), 4, gap=600) == [1, 1, 1, 1]
    assert delays(Exponential(reset_after=600), 4, gap=599) == [1, 2, 4, 8]


def test_jitter_is_a_share_of_the_delay() -> None:
    assert Exponential(jitter=0.1).next_delay([0.0], 0.0, jitter=1.0) == pytest.approx(1.1)
    assert Exponential(jitter=0.1).next_delay([0.0], 0.0, jitter=-1.0) == pytest.approx(0.9)


def test_the_failure_rate_counts_the_interval_only() -> None:
    assert delays(FailureRate(failures=2, interval=60, delay=1), 4) == [1, 1, None, None]
    assert delays(FailureRate(failures=2, interval=60, delay=1), 4, gap=30) == [1, 1, 1, 1]


@given(ALL)
def test_a_policy_survives_json_and_text(policy: RestartPolicy) -> None:
    assert restart_policy(json.loads(json.dumps(policy.to_json()))) == policy
    assert restart_policy(str(policy)) == policy


@given(ALL, FAILURES, st.floats(-1, 1))
def test_a_delay_is_never_negative_nor_above_its_maximum(
    policy: RestartPolicy, failures: list[float], jitter: float
) -> None:
    delay = policy.next_delay(failures, failures[-1], jitter)
    assert delay is None or 0 <= delay <= 2e6


@given(FAILURES)
def test_the_exponential_delay_is_that_of_a_row_no_longer_than_all_failures(failures: list[float]) -> None:
    policy = Exponential(jitter=0, attempts=None)
    longest = delays(policy, len(failures))[-1]
    delay = policy.next_delay(failures, failures[-1])
    assert delay is not None
    assert longest is not None
    assert 1 <= delay <= longest


def test_all_kinds_can_be_read_by_name_alone() -> None:
    assert {restart_policy(kind).kind for kind in POLICIES} == {"none", "fixed_delay", "exponential", "failure_rate"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("exponental", "did you mean 'exponential'"),
        ("fixed_delay:dely=5s", "did you mean 'delay'"),
        ("fixed_delay:delay", "is not name=value"),
        ("fixed_delay:delay=5 parsecs", "is not a span of time"),
        ("fixed_delay:delay=-5", "delay=-5.0 is not a number of 0 or more"),
        ("fixed_delay:attempts=0", "attempts=0 is not a whole number from 1 to 99"),
        ("fixed_delay:attempts=2.5", "attempts=2.5 is not a whole number"),
        ("fixed_delay:attempts=many", "attempts='many' is not a number"),
        ("fixed_delay:delay=unlimited", "delay=None is not a number"),
        ("exponential:multiplier=0.5", "pass multiplier=1 or more"),
        ("exponential:initial=10s,max_delay=1s", "pass max_delay=10 or more"),
        ("exponential:jitter=2", "jitter=2 is more than 1"),
        ("failure_rate:failures=unlimited", "failures=None is not a whole number"),
        ("exponential:initial=nan", "is not a"),
        ("", "unknown policy ''"),
        ({"delay": 5}, "policies: none, fixed_delay"),
        ({"kind": "fixed_delay", "delay": True}, "delay=True is not a number"),
        ([1], "is neither text nor an object"),
    ],
)
def test_a_wrong_policy_is_refused_with_what_is_right(text: str, message: str) -> None:
    with pytest.raises(BadValue, match=message):
        restart_policy(text)
