"""The latency bench counts every record's way once, and judges by its bars; how fast is not for tests."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import latency
from benchmarks.latency_client import KEYS, Ways
from benchmarks.results import Result
from penstock.errors import MissingPart


def result(system: str, case: str, p50: float) -> Result:
    return Result(system, case, 1_000, 1.0, 100.0, True, {"p50_ms": p50, "p95_ms": p50, "p99_ms": p50})


def test_a_record_has_arrived_with_the_first_result_that_contains_it() -> None:
    ways = Ways(sent=[0.0, 1.0, 2.0])
    for number, now in [(0, 0.5), (2, 2.25), (2, 9.0)]:
        ways.receive({"n": number}, now)
    assert ways.milliseconds(since=0.0) == [500.0, 250.0]
    assert ways.milliseconds(since=1.0) == [250.0]
    assert not ways.complete


def test_a_count_answers_for_all_records_of_its_key_that_it_has_reached() -> None:
    ways = Ways(sent=[float(number) for number in range(2 * KEYS)])
    ways.receive({"k": "3", "times": 2}, 500.0)
    ways.receive({"k": "3", "times": 1}, 600.0)
    assert ways.came == {3: 500.0, KEYS + 3: 500.0}


def test_bars_are_of_the_median_alone_at_realtime_and_beside_spark_at_the_fast_pace() -> None:
    found = [
        *(result("penstock-realtime", "stateless", 4.0), result("penstock-realtime", "keyed", 41.0)),
        *(result("penstock-fast", "stateless", 60.0), result("penstock-fast", "keyed", 290.0)),
        *(result("spark-defaults", "stateless", 140.0), result("spark-defaults", "keyed", 400.0)),
    ]
    assert [bar.reached for bar in latency.bars(found)] == [True, False, True, False]


@pytest.mark.slow
def test_every_record_comes_through_and_is_in_the_document(tmp_path: Path) -> None:
    target = tmp_path / "latency.json"
    try:
        code = latency.run(target, 1, 200, warm_up=0, systems=["penstock-fast"], cases=["keyed"], cache=tmp_path / "c")
    except MissingPart as error:
        pytest.skip(f"Spark's Kafka connector cannot be fetched: {error}")
    made = json.loads(target.read_text())
    assert code == 0
    (row,) = made["results"]
    assert row["equal"]
    assert 0 < row["p50_ms"] <= row["p95_ms"] <= row["p99_ms"]
    assert target.with_suffix(".png").is_file()
