"""Restart policies: after which delay a failed job is started again, and when it is given up. Flink's strategies.

A policy is a value, written as JSON or as text; spans are seconds or texts such as "10s":

    none
    fixed_delay:delay=5s,attempts=3
    exponential:initial=1s,max_delay=1m,multiplier=2,jitter=0.1,reset_after=10m,attempts=10
    failure_rate:failures=3,interval=5m,delay=1s

`attempts=unlimited` (null in JSON) never gives up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from penstock.control.policy_options import COUNT, NUMBER, SPAN, at_least, policy_text, read_policy, whole_from
from penstock.errors import BadValue

NODE = "restart policy"
# A job remembers so many times of failures, so no policy may count further.
MOST_FAILURES = 100


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """After which delay a failed job is started again. The base class; use one of its subclasses."""

    kind: ClassVar[str]

    def next_delay(self, failures: Sequence[float], now: float, jitter: float = 0.0) -> float | None:
        """Return the seconds to wait, or None to give up.

        `failures` are the times of all failures so far, the present one last; `jitter` is random, from -1 to 1.
        """
        raise NotImplementedError

    def to_json(self) -> dict[str, Any]:
        """Return the policy as JSON."""
        return {"kind": self.kind} | asdict(self)

    def __str__(self) -> str:
        return policy_text(self.kind, asdict(self))


@dataclass(frozen=True, slots=True)
class NoRestart(RestartPolicy):
    """The first failure is final."""

    kind: ClassVar[str] = "none"

    def next_delay(self, failures: Sequence[float], now: float, jitter: float = 0.0) -> float | None:
        """Return None."""
        return None


@dataclass(frozen=True, slots=True)
class FixedDelay(RestartPolicy):
    """So many restarts in all, each after the same delay; attempts=None is without limit."""

    kind: ClassVar[str] = "fixed_delay"
    delay: float = 10.0
    attempts: int | None = 3

    def __post_init__(self) -> None:
        at_least(NODE, 0, delay=self.delay)
        _attempts(self.attempts)

    def next_delay(self, failures: Sequence[float], now: float, jitter: float = 0.0) -> float | None:
        """Return the delay while attempts are left."""
        return None if self.attempts is not None and len(failures) > self.attempts else self.delay


@dataclass(frozen=True, slots=True)
class Exponential(RestartPolicy):
    """The delay grows with each failure, up to `max_delay`; a job that ran for `reset_after` starts over.

    `attempts` are the restarts in a row, None is without limit. Jitter keeps jobs that failed together from
    starting together: 0.1 is up to a tenth more or less.
    """

    kind: ClassVar[str] = "exponential"
    initial: float = 1.0
    max_delay: float = 60.0
    multiplier: float = 2.0
    jitter: float = 0.1
    reset_after: float = 600.0
    attempts: int | None = 10

    def __post_init__(self) -> None:
        at_least(NODE, 0, initial=self.initial, jitter=self.jitter, reset_after=self.reset_after)
        at_least(NODE, 1, multiplier=self.multiplier)
        at_least(NODE, self.initial, max_delay=self.max_delay)
        if self.jitter > 1:
            message = f"jitter={self.jitter:g} is more than 1"
            raise BadValue(message, node=NODE, hint="jitter is a share of the delay, from 0 to 1")
        _attempts(self.attempts)

    def next_delay(self, failures: Sequence[float], now: float, jitter: float = 0.0) -> float | None:
        """Return a delay that depends on the number of failures in a row."""
        in_a_row = self._in_a_row(failures)
        if self.attempts is not None and in_a_row > self.attempts:
            return None
        return self._delay(in_a_row) * (1 + self.jitter * jitter)

    def _delay(self, in_a_row: int) -> float:
        delay = self.initial
        for _ in range(in_a_row - 1):
            delay = min(self.max_delay, delay * self.multiplier)
        return delay

    def _in_a_row(self, failures: Sequence[float]) -> int:
        count, previous = 0, None
        for failure in failures:
            # The time between two failures contains the delay, in which the job did not run.
            if previous is not None and failure - previous >= self.reset_after + self._delay(count):
                count = 0
            count, previous = count + 1, failure
        return count


@dataclass(frozen=True, slots=True)
class FailureRate(RestartPolicy):
    """Restart after the same delay, unless there were more than so many failures in the interval."""

    kind: ClassVar[str] = "failure_rate"
    failures: int = 3
    interval: float = 300.0
    delay: float = 1.0

    def __post_init__(self) -> None:
        at_least(NODE, 0, interval=self.interval, delay=self.delay)
        whole_from(NODE, 1, MOST_FAILURES - 1, failures=self.failures)

    def next_delay(self, failures: Sequence[float], now: float, jitter: float = 0.0) -> float | None:
        """Return the delay while the rate is not exceeded."""
        recent = sum(1 for failure in failures if failure > now - self.interval)
        return None if recent > self.failures else self.delay


def _attempts(attempts: int | None) -> None:
    if attempts is not None:
        whole_from(NODE, 1, MOST_FAILURES - 1, attempts=attempts)


DEFAULT = Exponential()
POLICIES: dict[str, type[RestartPolicy]] = {
    policy.kind: policy for policy in (NoRestart, FixedDelay, Exponential, FailureRate)
}
_TYPES = {
    **dict.fromkeys(("delay", "initial", "max_delay", "reset_after", "interval"), SPAN),
    **dict.fromkeys(("multiplier", "jitter"), NUMBER),
    **dict.fromkeys(("attempts", "failures"), COUNT),
}


def restart_policy(value: str | Mapping[str, Any]) -> RestartPolicy:
    """Read a policy from JSON or text.

    >>> restart_policy("fixed_delay:delay=5s,attempts=3")
    FixedDelay(delay=5.0, attempts=3)
    >>> restart_policy({"kind": "exponential", "max_delay": "5m"}).to_json()["max_delay"]
    300.0
    """
    return read_policy(value, POLICIES, _TYPES, NODE)
