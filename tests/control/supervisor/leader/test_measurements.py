"""What drivers report becomes metrics: totals by heartbeat, durations by epoch, each epoch once."""

from __future__ import annotations

from typing import Any

from penstock.control.store.repositories.jobs import Job
from penstock.control.supervisor.leader.measurements import JobStatus, Measurements
from penstock.control.supervisor.leader.recording import Recording
from penstock.control.supervisor.leader.watchdog import StallDetector
from penstock.observe.page import render

STATUS = JobStatus("j1", "RUNNING", 2, 100.0, parallelism=4)


def epoch(number: int, rows: int, **fields: Any) -> dict[str, Any]:
    phases = {"addBatch": 80, "walCommit": 10, "commitOffsets": 5}
    return {"epoch": number, "duration_ms": 100, "phases": phases, "totals": {"rows_in": rows}, **fields}


def test_an_epoch_that_is_replayed_is_counted_once() -> None:
    job = Measurements().of("j1", "prices")
    for number in (0, 1, 1, 0, 2):
        job.take_epoch(epoch(number, 10 * number), "j1-1")
    assert sum(job.latency.counts) == 3
    assert sum(job.checkpoint.counts) == 3
    assert job.checkpoint.total == 3 * 0.015


def test_a_run_that_was_restored_counts_from_its_savepoint_again() -> None:
    job = Measurements().of("j1", "prices")
    assert job.take_epoch(epoch(9, 10), "j1-1")
    assert job.take_epoch(epoch(5, 10), "j1-2")
    assert not job.take_epoch(epoch(5, 10), "j1-2")


def test_series_have_rates_over_the_time_between_two_samples() -> None:
    measured = Measurements()
    job = measured.of("j1", "prices")
    job.take_epoch(epoch(0, 100), "j1-1")
    list(measured.stored_samples(STATUS, 200.0))
    job.take_epoch(epoch(1, 300, lag=7, watermark_lag_ms=1500), "j1-1")
    found = {sample.metric: sample.value for sample in measured.stored_samples(STATUS, 210.0)}
    assert found["rows_per_second"] == 20.0
    assert found["busy_ratio"] == 0.01
    assert found["records_processed_total"] == 300
    assert found["source_lag_rows"] == 7
    assert (found["restarts_total"], found["uptime_seconds"], found["parallelism"]) == (2, 110, 4)


def test_all_that_is_measured_is_on_the_page() -> None:
    measured = Measurements()
    measured.of("j1", "prices").take_epoch(epoch(0, 100, partition_lags={"trades": {"0": 3}}), "j1-1")
    page = render(measured.page_samples(STATUS, "prices", 200.0)).decode()
    assert 'penstock_records_processed_total{job="j1",name="prices"} 100.0' in page
    assert 'partition="0",source="trades"} 3.0' in page
    assert 'penstock_job_state{job="j1",name="prices",state="RUNNING"} 1.0' in page


def test_the_state_of_single_nodes_is_in_series_and_on_the_page() -> None:
    measured = Measurements()
    nodes = {"vwap": {"in": 5, "used": 5, "state_rows": 3, "state_bytes": 400}, "filter": {"state_rows": None}}
    measured.of("j1", "prices").take_epoch(epoch(0, 100, state_rows=3, nodes=nodes), "j1-1")
    stored = [sample for sample in measured.stored_samples(STATUS, 200.0) if sample.metric.startswith("state_")]
    assert [(sample.metric, sample.node, sample.value) for sample in stored] == [
        ("state_rows", "", 3.0),
        ("state_rows", "vwap", 3.0),
        ("state_size_bytes", "vwap", 400.0),
    ]
    page = render(measured.page_samples(STATUS, "prices", 200.0)).decode()
    assert 'penstock_state_size_bytes{job="j1",name="prices",node="vwap"} 400.0' in page


def test_latencies_of_all_epochs_between_two_samples_are_in_series_once() -> None:
    measured = Measurements()
    job = measured.of("j1", "prices")
    for number, p99 in enumerate((30.0, 50.0)):
        job.take_epoch(epoch(number, 10, latency_ms={"p50": 10.0, "p99": p99}), "j1-1")
    found = [sample.value for sample in measured.stored_samples(STATUS, 200.0) if sample.metric == "latency_p99_ms"]
    assert found == [30.0, 50.0]
    assert not [one for one in measured.stored_samples(STATUS, 210.0) if one.metric.startswith("latency_")]
    page = render(measured.page_samples(STATUS, "prices", 200.0)).decode()
    assert 'penstock_latency_p99_seconds{job="j1",name="prices"} 0.05' in page


def test_a_heartbeat_that_is_older_than_the_newest_epoch_changes_nothing() -> None:
    recording, job = Recording(), Job(id="j1", name="prices", run="j1-1")
    recording.take_epoch(job, "j1-1", epoch(4, 100, rows_in_per_s=7.0))
    known = recording.measurements.of("j1", "prices")
    recording.take_progress(job, {"epoch": 3, "rows_in": 50, "rows_in_per_s": 5.0})
    assert (known.progress["epoch"], known.progress["rows_in_per_s"]) == (4, 7.0)
    recording.take_progress(job, {"epoch": 4, "rows_in": 100, "rows_in_per_s": 0.0})
    assert known.progress["rows_in_per_s"] == 0.0
    recording.take_progress(Job(id="j1", name="prices", run="j1-2"), {"epoch": -1, "rows_in": 100})
    assert known.progress["epoch"] == -1


def test_a_job_stalls_if_no_epoch_comes_although_there_is_input() -> None:
    now = [0.0]
    detector = StallDetector(60, lambda: now[0])
    progress = {"state": "running", "epoch": 4, "lag": 10}
    assert not detector.is_stalled("j1", "j1-1", progress)
    now[0] = 61.0
    assert detector.is_stalled("j1", "j1-1", progress)
    assert not detector.is_stalled("j1", "j1-1", {**progress, "epoch": 5})
    now[0] = 200.0
    assert not detector.is_stalled("j1", "j1-1", {**progress, "epoch": 5, "lag": 0})
    assert not detector.is_stalled("j1", "j1-2", progress)
