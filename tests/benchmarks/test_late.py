"""The late bench is right: both ways give the same results; how dear the split is, is not for tests."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import late
from benchmarks.results import Result


@pytest.mark.slow
def test_parting_late_rows_changes_no_result(tmp_path: Path) -> None:
    target = tmp_path / "late.json"
    code = late.run(target, 24_000, runs=1, cache=tmp_path / "cache", lanes=["auto"])
    made = json.loads(target.read_text())
    assert code == 0
    assert [(row["system"], row["equal"]) for row in made["results"]] == [("split", True), ("dropped", True)]
    assert list(made["ratios"]) == ["split/dropped:auto"]


def test_the_bar_is_the_time_without_the_split() -> None:
    for seconds, reached in ((1.24, True), (1.25, False)):
        found = [Result("split", "auto", 1, seconds, 1.0, True), Result("dropped", "auto", 1, 1.0, 1.0, True)]
        assert [bar.reached for bar in late.bars(found)] == [reached]
