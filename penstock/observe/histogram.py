"""Histograms of durations, as Prometheus has them."""

from __future__ import annotations

from bisect import bisect_left

from penstock.observe.declarations import SECONDS


class Histogram:
    """Durations in seconds, counted by bucket; `bounds` are the upper ends of the buckets."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...] = SECONDS) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, seconds: float) -> None:
        """Add a duration.

        >>> one = Histogram((0.1, 0.25)); one.add(0.2); one.add(1000.0)
        >>> one.buckets
        [('0.1', 0.0), ('0.25', 1.0), ('+Inf', 2.0)]
        """
        self.counts[bisect_left(self.bounds, seconds)] += 1
        self.total += seconds

    @property
    def buckets(self) -> list[tuple[str, float]]:
        """Bounds with cumulative counts."""
        so_far, made = 0, []
        for bound, count in zip((*map(str, self.bounds), "+Inf"), self.counts, strict=True):
            so_far += count
            made.append((bound, float(so_far)))
        return made
