"""The state bench is right: both systems tell the same; how fast is not for tests."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import state
from benchmarks.results import Result


@pytest.mark.slow
def test_both_systems_tell_the_same(tmp_path: Path) -> None:
    target = tmp_path / "state.json"
    code = state.run(target, 4_000, keys=50, many=400, rounds=2, cache=tmp_path / "cache")
    made = json.loads(target.read_text())
    assert code == 0
    assert [(row["system"], row["case"], row["equal"]) for row in made["results"]] == [
        ("spark", "events", True),
        ("penstock", "events", True),
        ("spark", "touched", True),
        ("penstock", "touched", True),
    ]


def test_each_case_has_a_bar() -> None:
    found = [
        Result(system, case, rows, 1.0, 100.0, True)
        for case, ours in (("events", 49), ("touched", 10))
        for system, rows in (("penstock", ours), ("spark", 10))
    ]
    assert [bar.reached for bar in state.bars(found)] == [False, True]
