"""Rolls samples of metrics up into buckets of time. Pure: laws are tested against a plain recomputation."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

# Length of a bucket in seconds -> how long buckets of this length are kept.
RETENTION: dict[int, int] = {10: 3_600, 60: 86_400, 600: 30 * 86_400}
_LARGEST_TIME = 2**53
_LARGEST_VALUE = 1e300  # so that no total overflows, which PostgreSQL refuses


@dataclass(frozen=True, slots=True)
class Sample:
    """One value of a metric. `job` is '' for the manager's own, `node` '' for a whole job."""

    job: str
    metric: str
    at: float
    value: float
    node: str = ""


class SeriesName(NamedTuple):
    """What a series is of."""

    job: str
    metric: str
    node: str


class BucketKey(NamedTuple):
    """One bucket of a series: `bucket` is the time of its start."""

    name: SeriesName
    resolution: int
    bucket: int


@dataclass(slots=True)
class Bucket:
    """What was measured within a bucket; `last` is the value with the newest time, `last_at`."""

    minimum: float
    maximum: float
    total: float
    count: int
    last: float
    last_at: float

    def add(self, sample: Sample) -> None:
        """Add one more sample; of two with the same time, the one that came later is the last."""
        self.minimum, self.maximum = min(self.minimum, sample.value), max(self.maximum, sample.value)
        self.total, self.count = self.total + sample.value, self.count + 1
        if sample.at >= self.last_at:
            self.last, self.last_at = sample.value, sample.at


def rolled_up(samples: Iterable[Sample]) -> dict[BucketKey, Bucket]:
    """Return the buckets of all resolutions that the samples fall into; what is not finite is left out."""
    buckets: dict[BucketKey, Bucket] = {}
    for sample in samples:
        if abs(sample.value) <= _LARGEST_VALUE and 0 <= sample.at < _LARGEST_TIME:
            for resolution in RETENTION:
                _add(buckets, sample, resolution)
    return buckets


def _add(buckets: dict[BucketKey, Bucket], sample: Sample, resolution: int) -> None:
    key = BucketKey(SeriesName(sample.job, sample.metric, sample.node), resolution, bucket_of(sample.at, resolution))
    if key in buckets:
        buckets[key].add(sample)
    else:
        value = float(sample.value)
        buckets[key] = Bucket(value, value, value, 1, value, sample.at)


def bucket_of(at: float, resolution: int) -> int:
    """Return the start of the bucket that a time is in.

    >>> bucket_of(1234.5, 60)
    1200
    """
    return int(at // resolution) * resolution


def finest(start: float, now: float) -> int:
    """Return the finest resolution whose buckets are kept since a time, or the coarsest.

    >>> finest(start=0, now=3_600), finest(start=0, now=3_601), finest(start=0, now=10**9)
    (10, 60, 600)
    """
    return next((resolution for resolution, kept in RETENTION.items() if now - start <= kept), max(RETENTION))
