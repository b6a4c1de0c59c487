"""Autoscaling policies, as values that are written as JSON or as text.

lag:up=10000,down=100,maximum=8
throughput:rows_per_core=5000          utilisation:target=0.7
latency:up=5s,down=1s                  custom:expression=ceil(lag / 5000)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar

from penstock.control.autoscaling.expressions import check_expression
from penstock.control.autoscaling.figures import Figures
from penstock.control.policy_options import COUNT, NUMBER, SPAN, at_least, policy_text, read_policy, whole_from
from penstock.errors import BadValue

NODE = "autoscaling policy"
MOST_PARALLELISM = 64
# Figures are measured every ten seconds, and a few are needed for a decision.
LEAST_WINDOW = 60
FIGURES = {field.name for field in fields(Figures)} | {"utilisation"}


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoscalingPolicy:
    """What all policies have: bounds, the utilisation to aim at, and cooldowns in seconds after the last change.

    Figures are taken over the last `window` seconds. A lag that is worked off within `catch_up` seconds is no reason
    for more parallelism: each change stops the job for some seconds, which itself causes lag.
    """

    kind: ClassVar[str]
    minimum: int = 1
    maximum: int = MOST_PARALLELISM
    target: float = 0.7
    up_cooldown: float = 60.0
    down_cooldown: float = 120.0
    window: float = 120.0
    catch_up: float = 120.0

    def __post_init__(self) -> None:
        whole_from(NODE, 1, MOST_PARALLELISM, minimum=self.minimum)
        whole_from(NODE, self.minimum, MOST_PARALLELISM, maximum=self.maximum)
        at_least(NODE, 0, target=self.target, up_cooldown=self.up_cooldown, down_cooldown=self.down_cooldown)
        at_least(NODE, LEAST_WINDOW, window=self.window)
        at_least(NODE, 1, catch_up=self.catch_up)
        if not 0.1 <= self.target <= 1:
            message = f"target={self.target:g} is not between 0.1 and 1"
            raise BadValue(message, node=NODE, hint="pass target=0.7, the share of its capacity that a job should use")

    def to_json(self) -> dict[str, Any]:
        """Return the policy as JSON."""
        return {"kind": self.kind} | asdict(self)

    def __str__(self) -> str:
        defaults = {field.name: field.default for field in fields(self)}
        return policy_text(self.kind, {name: value for name, value in asdict(self).items() if value != defaults[name]})


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds(AutoscalingPolicy):
    """More parallelism above `up`, less below `down`, and nothing between them."""

    up: float = 10_000.0
    down: float = 100.0

    def __post_init__(self) -> None:
        AutoscalingPolicy.__post_init__(self)
        at_least(NODE, 0, down=self.down)
        if not self.up > self.down:
            message = f"up={self.up:g} is not more than down={self.down:g}"
            raise BadValue(message, node=NODE, hint="between them the parallelism stays as it is")


@dataclass(frozen=True, slots=True, kw_only=True)
class LagPolicy(Thresholds):
    """By rows that wait in the sources, without those that arrived in the last `in_flight` seconds.

    A fast job always has the rows of the next epoch to process: 100,000 rows/s are no reason for more cores.
    """

    kind: ClassVar[str] = "lag"
    in_flight: float = 5.0

    def __post_init__(self) -> None:
        Thresholds.__post_init__(self)
        at_least(NODE, 0, in_flight=self.in_flight)


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyPolicy(Thresholds):
    """By the time that rows take, in seconds."""

    kind: ClassVar[str] = "latency"
    up: float = 5.0
    down: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Banded(AutoscalingPolicy):
    """Aims at `target`; within `tolerance` around it, the parallelism stays as it is."""

    tolerance: float = 0.15

    def __post_init__(self) -> None:
        AutoscalingPolicy.__post_init__(self)
        at_least(NODE, 0, tolerance=self.tolerance)
        if self.tolerance >= self.target:
            message = f"tolerance={self.tolerance:g} is not less than target={self.target:g}"
            raise BadValue(message, node=NODE, hint="pass tolerance=0.15, for example")


@dataclass(frozen=True, slots=True, kw_only=True)
class UtilisationPolicy(Banded):
    """By the share of time in which epochs are processed."""

    kind: ClassVar[str] = "utilisation"


@dataclass(frozen=True, slots=True, kw_only=True)
class ThroughputPolicy(Banded):
    """By rows that arrive per second, against what a core can process: given, or measured while it is busy."""

    kind: ClassVar[str] = "throughput"
    rows_per_core: float | None = None

    def __post_init__(self) -> None:
        Banded.__post_init__(self)
        if self.rows_per_core is not None:
            at_least(NODE, 0.001, rows_per_core=self.rows_per_core)


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomPolicy(AutoscalingPolicy):
    """By a user's function of the figures, which returns the parallelism: `ceil(lag / 5000)`.

    Names are those of `Figures`. It is an expression, because the job manager runs no code of users.
    """

    kind: ClassVar[str] = "custom"
    expression: str = "parallelism"

    def __post_init__(self) -> None:
        AutoscalingPolicy.__post_init__(self)
        check_expression(self.expression, FIGURES)


POLICIES: dict[str, type[AutoscalingPolicy]] = {
    policy.kind: policy for policy in (LagPolicy, ThroughputPolicy, LatencyPolicy, UtilisationPolicy, CustomPolicy)
}
_TYPES = {
    **dict.fromkeys(("minimum", "maximum"), COUNT),
    **dict.fromkeys(("target", "tolerance", "rows_per_core"), NUMBER),
    # For a latency they are spans; a plain number, as for a lag, is read in the same way.
    **dict.fromkeys(("up", "down"), SPAN),
    **dict.fromkeys(("up_cooldown", "down_cooldown", "window", "catch_up", "in_flight"), SPAN),
}


def autoscaling_policy(value: str | Mapping[str, Any]) -> AutoscalingPolicy:
    """Read a policy from JSON or text.

    >>> autoscaling_policy("lag:up=5000,maximum=8").maximum
    8
    >>> autoscaling_policy({"kind": "latency", "up": "500ms", "down": 0.1}).to_json()["up"]
    0.5
    """
    return read_policy(value, POLICIES, _TYPES, NODE)
