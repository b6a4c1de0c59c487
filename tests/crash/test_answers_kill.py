"""Promise: after kill -9 state holds the answers that went out, at another parallelism too."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import pytest

from tests.crash import outputs
from tests.crash.answers_job import ROWS
from tests.crash.driver import Driver

PATIENCE_SECONDS = 300


@pytest.mark.slow
def test_state_has_the_answers_that_went_out_after_kill_9_and_at_another_parallelism(tmp_path: Path) -> None:
    job = Path(__file__).with_name("answers_job.py")
    command = ["run", f"{job}:job", f"--set=folder={tmp_path}", "--until", "ended"]
    command += ["--checkpoint", str(tmp_path / "checkpoint")]
    for parallelism, code in (("2", -9), ("3", 0)):
        env = {"PENSTOCK_EPOCH_ROWS": "2000", "PENSTOCK_PARALLELISM": parallelism}
        (tmp_path / parallelism).mkdir()
        driver = Driver(command, env, tmp_path / parallelism, time.monotonic() + PATIENCE_SECONDS)
        try:
            driver.start()
            driver.wait()
            assert driver.process is not None
            assert driver.process.returncode == code, driver.said
        finally:
            driver.end()
    raw = outputs.of_files(tmp_path / "raw")
    sums: Counter[float] = Counter()
    for row in raw:
        sums[row["ts"].timestamp() // 10 * 10] += row["answer"]
    found = {row["window_start"].timestamp(): row["total"] for row in outputs.of_files(tmp_path / "windows")}
    assert found == sums
    assert len(raw) + len(outputs.of_files(tmp_path / "bad")) == ROWS
