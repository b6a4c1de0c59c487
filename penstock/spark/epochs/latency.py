"""End-to-end latency of an epoch: from the timestamps of its records to its commit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from penstock.spark.tasks.staging import ARRIVED

PERCENTILES = (50, 95, 99)


def latency_ms(staged: Mapping[str, Mapping[str, int]], now_ms: float) -> dict[str, float]:
    """Return the percentiles of the time between the arrival of records and now; {} if no source knows arrivals.

    >>> latency_ms({"arrived trades": {"1000": 98, "900": 2}, "trades": {"rows_in": 100}}, 1010)
    {'p50': 10.0, 'p95': 10.0, 'p99': 110.0}
    """
    arrivals = [
        (float(at), rows) for name, times in staged.items() if name.startswith(ARRIVED) for at, rows in times.items()
    ]
    if not arrivals:
        return {}
    waited = sorted((max(now_ms - at, 0.0), rows) for at, rows in arrivals)
    return {f"p{percent}": round(_percentile(waited, percent), 3) for percent in PERCENTILES}


def _percentile(waited: Iterable[tuple[float, int]], percent: int) -> float:
    """Return the smallest latency that so many percent of the records do not exceed."""
    found = list(waited)
    wanted, seen = sum(rows for _, rows in found) * percent / 100, 0
    for latency, rows in found:
        seen += rows
        if seen >= wanted:
            return latency
    return found[-1][0]


def slowest(one: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    """Return the larger of each percentile of two queries."""
    return {name: max(one.get(name, 0.0), other.get(name, 0.0)) for name in {**one, **other}}
