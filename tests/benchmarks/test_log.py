"""The bench of the log is right: whoever loses a record is not equal, and bars are held against Kafka."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import log
from benchmarks.log_cases import NO_FIGURES
from benchmarks.peers.kafka import main as kafka_main
from benchmarks.results import Result
from tests.brokers import require_kafka

THROUGHPUT = ["produce-1", "consume-1", "produce-8", "consume-8"]


def rows(system: str, speed: float, p50: float, peak: float, start: float) -> list[Result]:
    latency = {"p50_ms": p50, "p99_ms": 2 * p50}
    return [
        Result(system, "start", 0, start, 10, True, NO_FIGURES),
        *(Result(system, case, speed, 1.0, peak, True, NO_FIGURES) for case in [*THROUGHPUT, "spark-json"]),
        Result(system, "latency", 1000, 1.0, 20, True, NO_FIGURES | latency),
    ]


def test_ratios_are_ours_over_kafkas_whatever_is_better() -> None:
    found = log.ratios([*rows("kafka", 100, 0.3, 600, 8), *rows("penstock", 90, 0.6, 60, 0.4)])
    assert found == {
        **{f"penstock/kafka:{case}": 0.9 for case in [*THROUGHPUT, "spark-json"]},
        "penstock/kafka:start": 0.05,
        "penstock/kafka:latency p50": 2.0,
        "penstock/kafka:latency p99": 2.0,
        "penstock/kafka:peak memory": 0.1,
    }


def test_bars_say_which_figures_must_be_large_and_which_small() -> None:
    reached = log.bars([*rows("kafka", 100, 0.3, 600, 8), *rows("penstock", 90, 0.7, 60, 1.2)])
    missed = {bar.text.split(" 0")[0].split(" 2")[0].split(" in")[0] for bar in reached if not bar.reached}
    assert missed == {
        "penstock/kafka:consume-1",
        "penstock/kafka:consume-8",
        "penstock/kafka:latency p50",
        "penstock starts",
    }
    assert len(reached) == 8


def test_without_kafka_there_are_no_ratios_but_the_start_is_judged() -> None:
    alone = rows("penstock", 90, 0.6, 60, 0.4)
    assert log.ratios(alone) == {}
    assert [bar.text for bar in log.bars(alone)] == ["penstock starts in 0.40 s, bar under 1.00"]


@pytest.mark.slow
def test_both_brokers_keep_every_record_and_one_document_says_how_fast(tmp_path: Path) -> None:
    require_kafka()
    target = tmp_path / "log.json"
    code = log.run(target, 2_000, 1, spark=False, runs=1, systems=("kafka", "penstock"), cache=tmp_path / "cache")
    made = json.loads(target.read_text())
    assert code == 0
    assert [(row["system"], row["case"]) for row in made["results"]] == [
        (system, case) for system in ("kafka", "penstock") for case in ["start", *THROUGHPUT, "latency"]
    ]
    assert all(row["equal"] and row["seconds"] > 0 and row["peak_mb"] > 0 for row in made["results"])
    assert all(row["p50_ms"] <= row["p99_ms"] for row in made["results"] if row["case"] == "latency")
    assert set(made["ratios"]) >= {
        "penstock/kafka:produce-1",
        "penstock/kafka:latency p50",
        "penstock/kafka:peak memory",
    }
    assert target.with_suffix(".png").is_file()
    assert not list((tmp_path / "cache").glob("broker-*")), "the data folders are gone"


def test_kafka_is_installed_by_one_command_only(capsys: pytest.CaptureFixture[str]) -> None:
    assert kafka_main(["start"]) == 2
    assert "install" in capsys.readouterr().err
