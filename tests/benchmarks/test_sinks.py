"""The sinks bench is right: what it compares holds the same rows; how fast is not for tests."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import sinks
from benchmarks.results import Result


@pytest.mark.slow
def test_files_hold_every_row_with_each_guarantee(tmp_path: Path) -> None:
    target = tmp_path / "sinks.json"
    code = sinks.run(target, 12_000, sinks=["files"], crashes=False, runs=1, cache=tmp_path / "cache")
    made = json.loads(target.read_text())
    assert code == 0
    assert [(row["system"], row["case"], row["equal"]) for row in made["results"]] == [
        ("exactly_once", "files", True),
        ("at_least_once", "files", True),
    ]
    assert list(made["ratios"]) == ["exactly_once/at_least_once:files"]


def test_each_sink_and_the_restart_have_a_bar() -> None:
    found = [
        Result(guarantee, sink, rows, 1.0, 100.0, True)
        for sink, rows in (("topic", 79), ("files", 90))
        for guarantee, rows in (("exactly_once", rows), ("at_least_once", 100))
    ]
    found += [Result("penstock", "restart", 0, 12.0, 0, True), Result("spark-defaults", "restart", 0, 10.0, 0, True)]
    assert [bar.reached for bar in sinks.bars(found)] == [False, True, True]
