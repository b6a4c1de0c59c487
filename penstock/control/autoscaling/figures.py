"""Samples of a job's metrics, and what they show together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from math import isfinite

# Without `busy`: with so many seconds of rows in the lag, the cores have always had something to do.
_SATURATED_SECONDS = 10.0
# Below this share of busy time, rows per busy second are mostly the fixed costs of an epoch.
_LEAST_BUSY = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The metrics of a job over a few seconds up to `at`. None is "not measured".

    `lag` is in rows, `rows` are rows processed per second, `busy` is the share of time in which an epoch was being
    processed, `latency` is in seconds.
    """

    at: float
    parallelism: int
    lag: float | None = None
    rows: float | None = None
    busy: float | None = None
    latency: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What the samples since the last change show. `arrival` and `rows` are per second, `capacity` also per core."""

    parallelism: int
    samples: int
    lag: float | None = None
    growth: float | None = None  # of the lag, rows per second
    rows: float | None = None
    arrival: float | None = None
    peak: float | None = None  # the highest arrival between two samples
    busy: float | None = None
    latency: float | None = None
    capacity: float | None = None

    @property
    def utilisation(self) -> float | None:
        """The share of the capacity that the arriving rows need; above 1 the lag grows."""
        if self.capacity and self.arrival is not None:
            return self.arrival / (self.capacity * self.parallelism)
        return self.busy

    def backlog(self, in_flight: float) -> float | None:
        """The lag without the rows that arrive in so many seconds: those wait for the next epoch, not for a core."""
        return None if self.lag is None else max(0.0, self.lag - in_flight * (self.arrival or 0.0))

    def named(self) -> dict[str, float]:
        """Return all figures that were measured, by name, for logs and expressions."""
        values = asdict(self) | {"utilisation": self.utilisation}
        return {name: round(float(value), 4) for name, value in values.items() if value is not None and isfinite(value)}


def measure(samples: Sequence[Sample], parallelism: int, since: float) -> Figures:
    """Return the figures of the samples after `since` with this parallelism.

    The capacity comes from all samples: it changes slowly, and shows itself best when there is much to do. Without
    `busy`, only samples with much lag show it.
    """
    recent = [sample for sample in samples if sample.at > since and sample.parallelism == parallelism]
    growth = _growth(recent)
    rows = _mean([sample.rows for sample in recent])
    return Figures(
        parallelism=parallelism,
        samples=len(recent),
        lag=recent[-1].lag if recent else None,
        growth=growth,
        rows=rows,
        arrival=None if rows is None else max(0.0, rows + (growth or 0.0)),
        peak=_peak(recent),
        busy=_mean([sample.busy for sample in recent]),
        latency=_mean([sample.latency for sample in recent]),
        capacity=_capacity(samples),
    )


def _mean(values: Sequence[float | None]) -> float | None:
    measured = [value for value in values if value is not None]
    return sum(measured) / len(measured) if measured else None


def _growth(samples: Sequence[Sample]) -> float | None:
    lags = [(sample.at, sample.lag) for sample in samples if sample.lag is not None]
    if len(lags) < 2 or lags[-1][0] - lags[0][0] < 1.0:
        return None
    return (lags[-1][1] - lags[0][1]) / (lags[-1][0] - lags[0][0])


def _peak(samples: Sequence[Sample]) -> float | None:
    """Return the highest arrival, as the mean over two neighbouring intervals: one alone is mostly noise."""
    arrivals = []
    for before, sample in pairwise(samples):
        if sample.rows is not None and sample.at > before.at:
            growth = _growth((before, sample)) or 0.0
            arrivals.append(max(0.0, sample.rows + growth))
    pairs = [(first + second) / 2 for first, second in pairwise(arrivals)]
    return max(pairs or arrivals, default=None)


def _capacity(samples: Sequence[Sample]) -> float | None:
    """Return rows per second and core when busy: the upper quartile, so that small epochs do not hide it."""
    shown = sorted(rate for sample in samples if (rate := _rate_when_busy(sample)))
    return shown[(3 * (len(shown) - 1)) // 4] if shown else None


def _rate_when_busy(sample: Sample) -> float | None:
    if not sample.rows:
        return None
    if sample.busy is not None:
        return sample.rows / min(1.0, sample.busy) / sample.parallelism if sample.busy >= _LEAST_BUSY else None
    is_saturated = (sample.lag or 0.0) > _SATURATED_SECONDS * sample.rows
    return sample.rows / sample.parallelism if is_saturated else None
