from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.control.autoscaling.decisions import decide
from penstock.control.autoscaling.expressions import NotMeasured, check_expression, evaluate
from penstock.control.autoscaling.figures import Sample, measure
from penstock.control.autoscaling.policies import (
    POLICIES,
    AutoscalingPolicy,
    CustomPolicy,
    LagPolicy,
    LatencyPolicy,
    ThroughputPolicy,
    UtilisationPolicy,
    autoscaling_policy,
)
from penstock.control.autoscaling.state import FORGET_AFTER, NotEnough, ScalingState
from penstock.errors import BadValue

NUMBERS = st.none() | st.floats(0, 1e9)
SAMPLES = st.lists(
    st.builds(
        Sample,
        at=st.floats(0, 1e4),
        parallelism=st.integers(1, 64),
        lag=NUMBERS,
        rows=NUMBERS,
        busy=st.none() | st.floats(0, 1.5),
        latency=NUMBERS,
    ),
    max_size=20,
).map(lambda samples: sorted(samples, key=lambda sample: sample.at))


def steady(count: int = 6, parallelism: int = 4, growth: float = 0.0, **values: float | None) -> list[Sample]:
    """Samples every 10 s up to second 60."""
    lag = values.pop("lag", 0.0)
    ats = [10.0 * number for number in range(7 - count, 7)]
    lags = [None if lag is None else lag + growth * at for at in ats]
    return [Sample(at=at, parallelism=parallelism, lag=lag, **values) for at, lag in zip(ats, lags, strict=True)]


def wanted(policy: AutoscalingPolicy, samples: list[Sample], state: ScalingState | None = None) -> tuple[int, str]:
    decision = decide(policy, samples, state or ScalingState(4), now=60.0)
    return decision.parallelism, decision.reason


def test_a_growing_lag_asks_for_what_the_arriving_rows_need() -> None:
    samples = steady(lag=50_000, growth=400, rows=4_000, busy=1.0)
    assert wanted(LagPolicy(), samples) == (7, "lag 52,000 > 10,000")


def test_a_job_that_needs_less_than_one_core_is_not_said_to_have_had_none() -> None:
    parallelism, reason = wanted(LagPolicy(), steady(lag=0, rows=1, busy=0.01, parallelism=2), ScalingState(2))
    assert parallelism == 1
    assert "not enough" not in reason


def test_a_lag_between_the_thresholds_changes_nothing() -> None:
    assert wanted(LagPolicy(), steady(lag=5_000, rows=100, busy=0.1))[0] == 4


def test_a_lag_that_is_worked_off_soon_changes_nothing() -> None:
    parallelism, reason = wanted(LagPolicy(), steady(lag=80_000, growth=-1_000, rows=500, busy=1.0))
    assert (parallelism, reason) == (4, "lag 20,000 > 10,000, worked off in 20 s")


def test_no_lag_gives_cores_back_only_if_less_is_enough() -> None:
    assert wanted(LagPolicy(), steady(rows=1_000, busy=0.25))[0] == 2
    parallelism, reason = wanted(LagPolicy(), steady(rows=2_500, busy=0.62))
    assert (parallelism, reason) == (4, "lag 0 < 100, but less would use more than 0.7 of its capacity")


def test_the_default_target_is_seven_tenths_of_the_time() -> None:
    assert wanted(UtilisationPolicy(), steady(busy=0.95))[0] == 6
    assert wanted(UtilisationPolicy(), steady(busy=0.7))[0] == 4
    assert wanted(UtilisationPolicy(), steady(busy=0.35, rows=1_000))[0] == 3


def test_throughput_is_compared_with_what_a_core_can_do() -> None:
    assert wanted(ThroughputPolicy(rows_per_core=1_000), steady(rows=3_900, busy=0.5))[0] == 6
    assert wanted(ThroughputPolicy(), steady(rows=3_900, busy=0.975))[0] == 6


def test_a_high_latency_asks_for_more_in_proportion() -> None:
    assert wanted(LatencyPolicy(), steady(latency=6.0)) == (5, "latency 6 s > 5 s")
    assert wanted(LatencyPolicy(), steady(latency=100.0))[0] == 8


def test_a_user_s_function_returns_the_parallelism() -> None:
    assert wanted(CustomPolicy(expression="ceil(lag / 5000)"), steady(lag=26_000)) == (6, "ceil(lag / 5000) = 6")
    assert wanted(CustomPolicy(expression="latency * 2"), steady()) == (4, "latency is not measured")
    assert wanted(CustomPolicy(expression="1 / lag"), steady())[0] == 4


@pytest.mark.parametrize("policy", [LagPolicy(), LatencyPolicy(), UtilisationPolicy(), ThroughputPolicy()])
def test_what_is_not_measured_changes_nothing(policy: AutoscalingPolicy) -> None:
    parallelism, reason = wanted(policy, steady(lag=None))
    assert parallelism == 4
    assert "is not measured" in reason


def test_samples_of_another_parallelism_do_not_count() -> None:
    assert wanted(LagPolicy(), steady(parallelism=2, lag=1e6))[1] == "only 0 samples since the last change"
    assert wanted(LagPolicy(), steady(lag=1e6), ScalingState(4, changed_at=45))[1].startswith("only 2 samples")


def test_a_cooldown_holds_a_change_back() -> None:
    samples = steady(lag=1e6, growth=1.0, rows=4_000, busy=1.0)
    assert wanted(LagPolicy(), samples, ScalingState(4, changed_at=5.0)) == (
        4,
        "lag 980,055 > 10,000, but the cooldown lasts 5 s more",
    )
    assert wanted(LagPolicy(), samples, ScalingState(4, changed_at=0.0))[0] == 8


def test_bounds_hold_even_without_samples() -> None:
    assert wanted(LagPolicy(minimum=6), []) == (6, "only 0 samples since the last change, minimum 6")
    assert wanted(LagPolicy(maximum=3), steady(lag=1e6))[0] == 3


def test_a_parallelism_that_was_not_enough_is_remembered_and_forgotten() -> None:
    samples = steady(lag=50_000, growth=400, rows=4_000, busy=1.0)
    state = decide(LagPolicy(), samples, ScalingState(4), now=60.0).state
    assert state == ScalingState(7, 60.0, (NotEnough(4, pytest.approx(4_400), 60.0),))
    assert state.least_for(4_300, now=100.0) == 5
    assert state.least_for(1_000, now=100.0) == 1, "a smaller load may need less"
    assert state.least_for(4_300, now=60.0 + FORGET_AFTER) == 1
    quiet = [Sample(at=200.0 + at, parallelism=7, lag=0, rows=4_200, busy=0.1) for at in range(0, 60, 10)]
    decision = decide(LagPolicy(), quiet, state, now=260.0)
    assert (decision.parallelism, decision.reason) == (5, "lag 0 < 100, but 4 was not enough for this load")


def test_a_decision_has_the_figures_that_it_was_made_from() -> None:
    figures = decide(LagPolicy(), steady(lag=50_000, rows=4_000, busy=1.0), ScalingState(4), now=60.0).figures
    assert (figures["lag"], figures["rows"], figures["capacity"], figures["samples"]) == (50_000, 4_000, 1_000, 6)


@given(st.sampled_from(sorted(POLICIES)), SAMPLES, st.integers(1, 64), st.none() | st.floats(0, 1e4))
def test_a_decision_stays_within_bounds_and_steps(
    kind: str, samples: list[Sample], parallelism: int, changed_at: float | None
) -> None:
    policy = autoscaling_policy(kind)
    decision = decide(policy, samples, ScalingState(parallelism, changed_at), now=1e4)
    assert 1 <= decision.parallelism <= 64
    assert parallelism / 2 <= decision.parallelism <= parallelism * 2
    assert decision.changes == (decision.parallelism != parallelism)
    assert decision.reason
    json.dumps(decision.figures)
    assert ScalingState.from_json(json.loads(json.dumps(decision.state.to_json()))) == decision.state


@given(SAMPLES, st.integers(1, 64))
def test_figures_are_never_negative_and_never_missing_by_error(samples: list[Sample], parallelism: int) -> None:
    figures = measure(samples, parallelism, since=0.0)
    assert all(value >= 0 for name, value in figures.named().items() if name != "growth")


# Policies as users write them.


@pytest.mark.parametrize(
    "policy",
    [
        LagPolicy(up=5_000, maximum=8),
        ThroughputPolicy(rows_per_core=12.5),
        LatencyPolicy(up=0.5, down=0.1),
        UtilisationPolicy(target=0.8, tolerance=0.05),
        CustomPolicy(expression="max(2, lag / 5000 if lag > 100 else 1)", minimum=2),
    ],
)
def test_a_policy_survives_json_and_text(policy: AutoscalingPolicy) -> None:
    assert autoscaling_policy(json.loads(json.dumps(policy.to_json()))) == policy
    assert autoscaling_policy(str(policy)) == policy


def test_the_defaults_are_those_of_the_seeds() -> None:
    policy = autoscaling_policy("lag")
    assert isinstance(policy, LagPolicy)
    assert (policy.up, policy.down, policy.minimum, policy.maximum) == (10_000, 100, 1, 64)
    assert (policy.target, policy.up_cooldown, policy.down_cooldown) == (0.7, 60, 120)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lagg", "did you mean 'lag'"),
        ("lag:upp=3", "did you mean 'up'"),
        ("lag:up=10,down=20", "up=10 is not more than down=20"),
        ("lag:minimum=0", "minimum=0 is not a whole number from 1 to 64"),
        ("lag:minimum=8,maximum=4", "maximum=4 is not a whole number from 8 to 64"),
        ("lag:target=0", "target=0 is not between 0.1 and 1"),
        ("utilisation:tolerance=0.9", "tolerance=0.9 is not less than target=0.7"),
        ("throughput:rows_per_core=0", "rows_per_core=0.0 is not a number"),
        ("custom:expression=lagg / 2", "did you mean 'lag'"),
        ("custom:expression=__import__('os')", "unknown f"),
        ("custom:expression=lag.real", "Attribute is not allowed"),
        ("custom:expression=lag ** 9", "Pow is not allowed"),
        ("custom:expression=lag +", "is not an expression"),
        ("custom:expression=[lag]", "List is not allowed"),
        ("custom:expression='lag'", "only numbers"),
        ("custom:expression=1 < lag < 3", "one comparison at a time"),
    ],
)
def test_a_wrong_policy_is_refused_with_what_is_right(text: str, message: str) -> None:
    with pytest.raises(BadValue, match=message):
        autoscaling_policy(text)


@given(st.text(max_size=30))
def test_any_text_is_an_expression_or_is_refused(text: str) -> None:
    try:
        check_expression(text, {"lag"})
    except BadValue:
        return
    with suppress(NotMeasured):
        assert isinstance(evaluate(text, {"lag": 1.0}), float)


def test_a_window_that_is_too_short_for_a_decision_is_refused() -> None:
    with pytest.raises(BadValue, match="window=30"):
        autoscaling_policy("lag:window=30s")
