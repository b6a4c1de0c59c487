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
    sizes = {"sizes": (400, 2_000), "touched": 100, "few": (5, 60), "spark_keys": 400}
    code = state.run(target, 4_000, keys=50, rounds=2, cache=tmp_path / "cache", **sizes)  # type: ignore[arg-type]
    made = json.loads(target.read_text())
    assert code == 0
    assert [(row["system"], row["case"], row["equal"]) for row in made["results"]] == [
        ("spark", "events", True),
        ("penstock", "events", True),
        ("spark", "few", True),
        ("penstock", "few", True),
        ("spark", "touched-400", True),
        ("penstock", "touched-400", True),
        ("penstock", "touched-2000", True),
    ]


def test_each_case_has_a_bar() -> None:
    found = [
        Result(system, case, rows, 1.0, 100.0, True, {"epoch ms": took, "restart s": 4.0})
        for case, ours, took in (("events", 99, 1), ("few", 40, 401), ("touched-10", 51, 100), ("touched-100", 60, 190))
        for system, rows in (("penstock", ours), *([] if case == "touched-100" else [("spark", 10)]))
    ]
    assert [bar.reached for bar in state.bars(found)] == [False, True, True, False, True, True, True]
