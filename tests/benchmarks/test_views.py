"""The views bench is right: what is followed is what is computed again; how fast is not for tests."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import views, views_process, views_spark
from benchmarks.results import Result
from benchmarks.views_process import Sizes


@pytest.mark.slow
def test_every_case_in_process_is_equal_to_computing_again(tmp_path: Path) -> None:
    target = tmp_path / "views.json"
    sizes = Sizes(keys=(50, 200), rounds=3, batch=20, members=30, groups=10)
    assert views.run(target, ["process"], cache=tmp_path / "cache", process=sizes) == 0
    made = json.loads(target.read_text())
    assert [(row["system"], row["case"], row["equal"]) for row in made["results"]] == [
        *(("penstock", f"{fold}-{keys}", True) for fold in ("sum", "vwap") for keys in (50, 200)),
        *(("penstock", f"{fold}-symbols-{keys}", True) for fold in ("sum", "vwap") for keys in (50, 200)),
        ("penstock", "fold-30", True),
        ("recompute", "fold-30", True),
        ("penstock", "deltas-20", True),
    ]
    assert target.with_suffix(".png").exists()


def test_each_case_in_process_has_a_bar() -> None:
    took = {"sum-10": 100, "sum-100": 201, "vwap-symbols-10": 251, "vwap-symbols-100": 251, "deltas-9": 83}
    found = [Result("penstock", case, 1.0, 1.0, 1.0, True, {"ns/change": float(ns)}) for case, ns in took.items()]
    found += [
        Result(name, "fold-5", speed, 1.0, 1.0, True) for name, speed in (("penstock", 100.0), ("recompute", 1.0))
    ]
    assert [bar.reached for bar in views_process.bars(found)] == [True, False, False, True, True, False]


@pytest.mark.slow
def test_every_query_on_spark_is_equal_to_computing_again(tmp_path: Path) -> None:
    target = tmp_path / "views.json"
    sizes = views_spark.Sizes((600,), 10, 300, changed_of=(200,), changes=10, folder=str(tmp_path / "cache"))
    assert views.run(target, ["spark"], spark=sizes) == 0
    made = json.loads(target.read_text())
    ours = [row["case"] for row in made["results"] if row["system"] == "penstock"]
    queries = [f"{name}-600" for name in ("q4", "q9", "q15", "q16", "q18", "q19", "q20")]
    assert ours == [*queries, "q20-300", "changes-200"]
    assert all(row["equal"] for row in made["results"])
