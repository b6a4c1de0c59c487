"""The joins bench is right: both give what batch SQL gives; how fast is not for tests."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import joins
from benchmarks.results import Result


@pytest.mark.slow
def test_both_joins_give_what_batch_sql_gives(tmp_path: Path) -> None:
    target = tmp_path / "joins.json"
    code = joins.run(target, 12_000, runs=1, cache=tmp_path / "cache")
    made = json.loads(target.read_text())
    assert code == 0
    assert [(row["system"], row["equal"]) for row in made["results"]] == [("penstock", True), ("spark", True)]
    assert list(made["ratios"]) == ["penstock/spark:interval"]


def test_the_bar_is_that_of_plain_spark() -> None:
    for speed, reached in ((95, True), (94, False)):
        found = [
            Result("penstock", "interval", speed, 1.0, 1.0, True),
            Result("spark", "interval", 100, 1.0, 1.0, True),
        ]
        assert [bar.reached for bar in joins.bars(found)] == [reached]
