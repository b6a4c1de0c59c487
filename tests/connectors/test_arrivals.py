"""Samples of record timestamps have the percentiles of all."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from penstock.connectors.topics.arrivals import SHARES, Arrivals
from penstock.spark.epochs.latency import latency_ms


def times(millis: list[int | None]) -> pa.Array:
    return pa.array([None if one is None else one * 1000 for one in millis], pa.timestamp("us", "UTC"))


def test_few_records_are_all_counted_and_only_once() -> None:
    arrivals = Arrivals()
    arrivals.add(times([5, 7, 5]))
    arrivals.add(times([None]))
    assert arrivals.take() == {5: 2, 7: 1}
    assert arrivals.take() == {}


def test_many_records_give_the_percentiles_of_all() -> None:
    arrivals, random = Arrivals(), np.random.default_rng(1)
    waited = random.exponential(1_000, 100_000).astype(np.int64)
    for batch in np.array_split(waited, 10):
        arrivals.add(times((100_000 - batch).tolist()))
    found = arrivals.take()
    assert len(found) <= SHARES
    assert abs(sum(found.values()) - len(waited)) <= SHARES
    latency = latency_ms({"arrived trades": {str(at): rows for at, rows in found.items()}}, 100_000)
    for percent in (50, 95, 99):
        assert latency[f"p{percent}"] == pytest.approx(np.percentile(waited, percent), rel=0.15)
