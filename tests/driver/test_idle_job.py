"""A job that reads nothing for a while reports no rate."""

from __future__ import annotations

import threading
from pathlib import Path

from penstock.driver.job import IDLE_SECONDS, DriverJob
from penstock.report import Progress
from tests.driver.fake_runtime import FakeRuntime, assignment
from tests.waiting import wait_for


def test_the_rates_of_the_newest_epoch_are_reported_until_the_job_is_idle(tmp_path: Path) -> None:
    now, over, runtime = [100.0], threading.Event(), FakeRuntime()
    job = DriverJob(assignment(), runtime, tmp_path, lambda *_: None, over.set, lambda: now[0])
    job.start()
    wait_for(lambda: job.state == "running", "the job does not run")
    run = runtime.runs["j1"]
    run.now = Progress(epoch=0, rows_in=10, rows_in_per_s=5.0, epoch_ms=2_000)
    wait_for(lambda: job.describe()["epoch"] == 0, "the epoch is not reported")
    now[0] += IDLE_SECONDS - 1
    assert job.describe()["rows_in_per_s"] == 5.0
    now[0] += 2
    assert (job.describe()["rows_in_per_s"], job.describe()["rows_in"]) == (0.0, 10)
    run.finish()
    assert over.wait(10)
