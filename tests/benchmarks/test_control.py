"""The control bench is right: it counts what is missing, and judges by its bars; how fast is not for tests."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import control
from benchmarks.control_cases import NO_FIGURES
from benchmarks.control_store import fill
from benchmarks.results import Result
from penstock.control.store.store import Store
from penstock.control.supervisor.leader.transitions import machine_job


def rows(p99: float, events: float, submit: float, idle: float, ten: float) -> list[Result]:
    times = {**NO_FIGURES, "p50_ms": 1.0, "p99_ms": p99}
    return [
        *(Result("penstock", case, 33, 1.0, 90.0, True, times) for case in ("list", "get", "epochs")),
        Result("penstock", "events", 0, events, 100.0, True, times),
        Result("penstock", "submit", 0, submit, None, True, NO_FIGURES),
        Result("spark-submit", "submit", 0, 10.0, None, True, NO_FIGURES),
        Result("penstock", "pool-1", 0, 1.0, 500.0, True, NO_FIGURES),
        Result("penstock", "pool-10", 0, 1.0, ten, True, NO_FIGURES),
        Result("penstock", "idle", 0, 1.0, 140.0, True, {**NO_FIGURES, "cpu_percent": idle}),
    ]


def test_every_bar_is_reached_just_below_it_and_missed_just_above() -> None:
    assert [bar.reached for bar in control.bars(rows(49.9, 1.0, 4.0, 1.9, 1500.0))] == [True] * 9
    missed = [bar.text.split()[0] for bar in control.bars(rows(50.1, 1.1, 4.1, 2.1, 1501.0)) if not bar.reached]
    submit, pool = "penstock/spark-submit:submit", "pool-10/pool-1:memory"
    assert missed == ["list", "get", "epochs", "events:", "submit", "the", submit, pool]


def test_an_answer_that_is_wrong_reaches_no_bar_however_fast_it_is() -> None:
    times = {**NO_FIGURES, "p99_ms": 1.0}
    found = [Result("penstock", case, 33, 0.1, 90.0, False, times) for case in ("list", "events", "submit")]
    assert [bar.reached for bar in control.bars(found)] == [False, False, False]


def test_the_store_of_the_bench_has_jobs_that_the_manager_can_read(tmp_path: Path) -> None:
    ids = fill(tmp_path, 12, 100)
    with Store(f"sqlite:///{tmp_path / 'penstock.db'}") as store:
        stored = store.jobs.all()
        assert [job.id for job in stored] == ids
        assert all(machine_job(job).state == job.state for job in stored)
        assert sum(len(store.epochs.page(job, limit=100).items) for job in ids) == 100


def test_every_request_is_answered_and_every_client_gets_the_event(tmp_path: Path) -> None:
    target = tmp_path / "control.json"
    code = control.run(target, 60, 600, 60, 0.5, 20, spark=False, cache=tmp_path / "cache")
    made = json.loads(target.read_text())
    assert code == 0
    assert [row["case"] for row in made["results"]] == ["list", "get", "epochs", "events"]
    assert all(row["equal"] and 0 < row["p50_ms"] <= row["p99_ms"] for row in made["results"])
    assert all(row["peak_mb"] < control.MANAGER_MB for row in made["results"])
    assert target.with_suffix(".png").is_file()


@pytest.mark.slow
def test_small_jobs_read_all_of_their_input_alone_and_in_a_pool(tmp_path: Path) -> None:
    target = tmp_path / "control.json"
    code = control.run(target, 12, 12, 20, 0.5, 2, runs=1, idle_seconds=4, cache=tmp_path / "cache")
    made = json.loads(target.read_text())
    assert code == 0
    assert set(made["ratios"]) == {"penstock/spark-submit:submit", "pool-10/pool-1:memory"}
