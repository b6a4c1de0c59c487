from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

# After so long, a parallelism that was not enough may be tried again: rows, code or machine may have changed.
FORGET_AFTER = 3_600.0


@dataclass(frozen=True, slots=True)
class NotEnough:
    """At this time the lag grew with this parallelism, while so many rows arrived per second."""

    parallelism: int
    arrival: float
    at: float


@dataclass(frozen=True, slots=True)
class ScalingState:
    """What the autoscaler remembers of a job between decisions."""

    parallelism: int
    changed_at: float | None = None
    not_enough: tuple[NotEnough, ...] = ()

    def changed(self, parallelism: int, now: float) -> ScalingState:
        """Return the state after a change; also use it when someone else has rescaled or restarted the job."""
        kept = tuple(item for item in self.not_enough if now - item.at < FORGET_AFTER)
        return replace(self, parallelism=parallelism, changed_at=now, not_enough=kept)

    def remember(self, arrival: float, now: float) -> ScalingState:
        """Note that the present parallelism is not enough for this arrival; one entry for each parallelism."""
        others = tuple(item for item in self.not_enough if item.parallelism != self.parallelism)
        return replace(self, not_enough=(*others, NotEnough(self.parallelism, arrival, now)))

    def least_for(self, arrival: float, now: float) -> int:
        """Return the least parallelism that is not known to be too little for this arrival."""
        known = [item for item in self.not_enough if now - item.at < FORGET_AFTER and arrival >= 0.9 * item.arrival]
        return max((item.parallelism for item in known), default=0) + 1

    def to_json(self) -> dict[str, Any]:
        """Return the state as JSON."""
        return asdict(self) | {"not_enough": [asdict(item) for item in self.not_enough]}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> ScalingState:
        """Read what `to_json` wrote."""
        not_enough = tuple(NotEnough(**item) for item in value.get("not_enough", ()))
        return cls(value["parallelism"], value.get("changed_at"), not_enough)
