"""Decisions of the autoscaler, as a pure function of a policy, samples of metrics, and the time.

Four things keep it from oscillating: a band in which nothing happens, cooldowns, figures of the present parallelism
only, and a memory of what was not enough.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.control.autoscaling.expressions import NotMeasured, evaluate
from penstock.control.autoscaling.figures import Figures, Sample, measure
from penstock.control.autoscaling.policies import (
    AutoscalingPolicy,
    Banded,
    CustomPolicy,
    LagPolicy,
    LatencyPolicy,
    ThroughputPolicy,
    UtilisationPolicy,
)
from penstock.control.autoscaling.state import ScalingState

_LEAST_SAMPLES = 3
_LARGEST_STEP = 2  # at most twice or half as much in one decision
_DOWN_MARGIN = 1.1  # less parallelism must be enough for so much more than arrived


@dataclass(frozen=True, slots=True)
class Wish:
    """The parallelism that a policy wants, and why."""

    parallelism: int
    reason: str


@dataclass(frozen=True, slots=True)
class Decision:
    """The parallelism that the job should have. `state` is what to remember if the decision is carried out."""

    parallelism: int
    reason: str
    figures: dict[str, float] = field(default_factory=dict)
    state: ScalingState = field(default_factory=lambda: ScalingState(1))
    changes: bool = False


def decide(policy: AutoscalingPolicy, samples: Sequence[Sample], state: ScalingState, now: float) -> Decision:
    """Decide the parallelism of a job.

    `samples` are in order of time, best of the last ten minutes or more; `now` is in seconds since 1970.

    >>> samples = [Sample(at=t, parallelism=2, lag=50_000 + 100 * t, rows=1000, busy=1) for t in range(0, 60, 10)]
    >>> decide(LagPolicy(), samples, ScalingState(2), now=60).parallelism
    4
    """
    since = max(now - policy.window, -math.inf if state.changed_at is None else state.changed_at)
    figures = measure(samples, state.parallelism, since)
    if figures.samples < _LEAST_SAMPLES:
        wish = _within(policy, Wish(state.parallelism, f"only {figures.samples} samples since the last change"))
    else:
        wish = _limited(policy, _WISHES[type(policy)](policy, figures), figures, state, now)
    return _decision(wish, figures, state, now)


def _decision(wish: Wish, figures: Figures, state: ScalingState, now: float) -> Decision:
    changes = wish.parallelism != state.parallelism
    after = state
    if changes:
        grew = wish.parallelism > state.parallelism and (figures.growth or 0.0) > 0 and figures.arrival
        after = state.remember(figures.arrival or 0.0, now) if grew else state
        after = after.changed(wish.parallelism, now)
    return Decision(wish.parallelism, wish.reason, figures.named(), after, changes)


# What each policy wants, without limits.


def _by_lag(policy: LagPolicy, figures: Figures) -> Wish:
    backlog = figures.backlog(policy.in_flight)
    if backlog is None:
        return Wish(figures.parallelism, "the lag is not measured")
    if backlog > policy.up:
        return _catch_up(policy, figures, backlog, f"lag {backlog:,.0f} > {policy.up:,.0f}")
    if backlog < policy.down:
        return _less(policy, figures, f"lag {backlog:,.0f} < {policy.down:,.0f}")
    return Wish(figures.parallelism, f"lag {backlog:,.0f} is between {policy.down:,.0f} and {policy.up:,.0f}")


def _by_latency(policy: LatencyPolicy, figures: Figures) -> Wish:
    if figures.latency is None:
        return Wish(figures.parallelism, "the latency is not measured")
    if figures.latency > policy.up:
        if seconds := _worked_off_in(policy, figures, figures.lag):
            return Wish(figures.parallelism, f"latency {figures.latency:.3g} s, the lag is worked off in {seconds} s")
        factor = min(_LARGEST_STEP, figures.latency / policy.up)
        wanted = max(figures.parallelism + 1, math.ceil(figures.parallelism * factor))
        return Wish(wanted, f"latency {figures.latency:.3g} s > {policy.up:g} s")
    if figures.latency < policy.down:
        return _less(policy, figures, f"latency {figures.latency:.3g} s < {policy.down:g} s")
    return Wish(figures.parallelism, f"latency {figures.latency:.3g} s is between {policy.down:g} and {policy.up:g} s")


def _by_utilisation(policy: UtilisationPolicy, figures: Figures) -> Wish:
    # A job that is always busy may need much more than all of its time; the arriving rows show how much.
    share = None if figures.busy is None else max(figures.busy, figures.utilisation or 0.0)
    if share and share > policy.target and (seconds := _worked_off_in(policy, figures, figures.lag)):
        return Wish(figures.parallelism, f"utilisation {share:.2f}, and the lag is worked off in {seconds} s")
    return _by_share(policy, figures, share)


def _by_throughput(policy: ThroughputPolicy, figures: Figures) -> Wish:
    if policy.rows_per_core is not None:
        figures = replace(figures, capacity=policy.rows_per_core)
    return _by_share(policy, figures, figures.utilisation)


def _by_share(policy: Banded, figures: Figures, share: float | None) -> Wish:
    if share is None:
        return Wish(figures.parallelism, "the utilisation is not measured")
    text = f"utilisation {share:.2f}"
    if share > policy.target + policy.tolerance:
        return Wish(max(figures.parallelism + 1, _for(policy, figures.parallelism * share)), f"{text} > target")
    if share < policy.target - policy.tolerance:
        return _less(policy, figures, f"{text} < target")
    return Wish(figures.parallelism, f"{text} is near the target {policy.target:g}")


def _by_expression(policy: CustomPolicy, figures: Figures) -> Wish:
    try:
        value = evaluate(policy.expression, figures.named())
    except NotMeasured as reason:
        return Wish(figures.parallelism, str(reason))
    return Wish(math.ceil(min(value, policy.maximum)), f"{policy.expression} = {value:g}")


def _catch_up(policy: AutoscalingPolicy, figures: Figures, lag: float, text: str) -> Wish:
    """Want enough to process what arrives and to work the lag off in time, unless that happens already."""
    if seconds := _worked_off_in(policy, figures, lag):
        return Wish(figures.parallelism, f"{text}, worked off in {seconds} s")
    wanted = figures.parallelism + 1
    if figures.capacity and figures.arrival is not None:
        needed = figures.arrival / policy.target + lag / policy.catch_up
        wanted = max(wanted, _whole(needed / figures.capacity))
    else:
        wanted = max(wanted, figures.parallelism * _LARGEST_STEP)
    return Wish(wanted, text)


def _worked_off_in(policy: AutoscalingPolicy, figures: Figures, lag: float | None) -> str | None:
    """Return the seconds until the lag is worked off, if it shrinks fast enough."""
    if not lag or not figures.growth or figures.growth > 0:
        return None
    seconds = lag / -figures.growth
    return f"{seconds:.0f}" if seconds <= policy.catch_up else None


def _less(policy: AutoscalingPolicy, figures: Figures, text: str) -> Wish:
    """Want as little as is enough for the highest arrival in the window; one less if the capacity is not known."""
    if not figures.rows and not figures.lag:
        return Wish(policy.minimum, f"{text}, and no rows arrive")
    if figures.capacity and figures.peak is not None:
        wanted = _for(policy, figures.peak * _DOWN_MARGIN / figures.capacity)
    elif figures.busy is not None:
        wanted = _for(policy, figures.parallelism * figures.busy * _DOWN_MARGIN)
    else:
        wanted = figures.parallelism - 1
    if wanted >= figures.parallelism:
        return Wish(figures.parallelism, f"{text}, but less would use more than {policy.target:g} of its capacity")
    return Wish(wanted, text)


def _for(policy: AutoscalingPolicy, cores: float) -> int:
    """Return the parallelism in which so many busy cores are the target utilisation."""
    return _whole(cores / policy.target)


def _whole(cores: float) -> int:
    # Rounded, because 2.1 / 0.7 is a little more than 3; bounded, because a tiny capacity asks for infinitely many.
    return math.ceil(min(round(cores, 6), 1e6))


_WISHES: dict[type[AutoscalingPolicy], Callable[[Any, Figures], Wish]] = {
    LagPolicy: _by_lag,
    LatencyPolicy: _by_latency,
    UtilisationPolicy: _by_utilisation,
    ThroughputPolicy: _by_throughput,
    CustomPolicy: _by_expression,
}

# Limits, in this order.


def _limited(policy: AutoscalingPolicy, wish: Wish, figures: Figures, state: ScalingState, now: float) -> Wish:
    wish = _within(policy, _above_what_was_not_enough(wish, figures, state, now))
    steps = _in_steps(wish, state)
    return _cooled_down(policy, _within(policy, steps), state, now)


def _above_what_was_not_enough(wish: Wish, figures: Figures, state: ScalingState, now: float) -> Wish:
    if wish.parallelism >= state.parallelism or figures.arrival is None:
        return wish
    least = min(state.least_for(figures.arrival, now), state.parallelism)
    if wish.parallelism >= least or least <= 1:
        return wish
    return Wish(least, f"{wish.reason}, but {least - 1} was not enough for this load")


def _within(policy: AutoscalingPolicy, wish: Wish) -> Wish:
    allowed = min(max(wish.parallelism, policy.minimum), policy.maximum)
    if allowed == wish.parallelism:
        return wish
    bound = f"maximum {policy.maximum}" if wish.parallelism > allowed else f"minimum {policy.minimum}"
    return Wish(allowed, f"{wish.reason}, {bound}")


def _in_steps(wish: Wish, state: ScalingState) -> Wish:
    most, least = state.parallelism * _LARGEST_STEP, math.ceil(state.parallelism / _LARGEST_STEP)
    return replace(wish, parallelism=min(max(wish.parallelism, least), most))


def _cooled_down(policy: AutoscalingPolicy, wish: Wish, state: ScalingState, now: float) -> Wish:
    if wish.parallelism == state.parallelism or state.changed_at is None:
        return wish
    cooldown = policy.up_cooldown if wish.parallelism > state.parallelism else policy.down_cooldown
    left = state.changed_at + cooldown - now
    if left <= 0:
        return wish
    return Wish(state.parallelism, f"{wish.reason}, but the cooldown lasts {left:.0f} s more")
