"""The dedup bench is right: its results are those of a plain loop; how fast is not for tests."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import dedup
from benchmarks.results import Result


@pytest.mark.slow
def test_the_bench_compares_results_with_a_plain_loop(tmp_path: Path) -> None:
    target = tmp_path / "dedup.json"
    code = dedup.run(target, 12_000, runs=1, cache=tmp_path / "cache")
    made = json.loads(target.read_text())
    assert code == 0
    assert {(row["case"], row["equal"]) for row in made["results"] if row["system"] == "penstock"} == {
        ("retries", True),
        ("keys", True),
    }
    assert list(made["ratios"]) == ["penstock/spark:retries", "penstock/spark:keys"]


def test_the_bar_of_the_dedup_bench_is_nine_tenths_of_spark() -> None:
    for speed, reached in ((90, True), (89, False)):
        found = [
            Result("penstock", "keys", speed, 1.0, 1.0, True),
            Result("spark", "keys", 100, 1.0, 1.0, True),
        ]
        assert [bar.reached for bar in dedup.bars(found)] == [reached]
