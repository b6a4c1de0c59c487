"""The lag of a run: what its sources have and it has not read, or unknown; never a guess."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from penstock.spark.epochs.progress import ProgressReporter


class Topic:
    """A source of 100 rows in one partition."""

    def partition_lags(self, offsets: dict[str, int]) -> dict[str, int]:
        return {"0": 100 - offsets.get("0", 0)}


@pytest.mark.parametrize(
    ("offsets", "has_read", "lag"),
    [({"0": 40}, True, 60), ({}, False, 100), ({}, True, None)],
    ids=["running", "new", "just restored"],
)
def test_the_lag_before_the_first_epoch(offsets: dict[str, int], has_read: bool, lag: int | None) -> None:
    graph: Any = SimpleNamespace(reads=[SimpleNamespace(source=Topic())], name=lambda read: "orders")
    idle: Any = None
    reporter = ProgressReporter(graph, idle, lambda read: offsets)
    assert reporter._lag(has_read=has_read)[0] == lag
