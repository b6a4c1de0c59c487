"""Drivers as the job manager starts them, on a real Spark: a spare with a pool of jobs, a kill, and a restart."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb

from penstock.connectors.generators.datagen import DataGen
from tests.driver.processes import DriverProcess

# A small heap and a quick start; the scheduler is the one of a pool.
SPARK = {"spark.scheduler.mode": "FAIR", "spark.driver.memory": "1g"}
SETTINGS = {"parallelism": 2, "spark": SPARK}
SCHEMA = "n bigint"
JOB = """
import os
import sys
import penstock as ps
from prices import doubled

print("loading", __name__)


def marked(row: dict) -> dict:
    return {"n": row["n"], "twice": doubled(row["n"]), "login": os.environ.get("LOGIN", ""), "folder": os.getcwd()}


def job(out: str, rate: int = 2000) -> ps.Pipeline:
    rows = ps.datagen("n bigint", rate=rate).filter("n is not null")
    rows = rows.map(marked, "n bigint, twice bigint, login string, folder string")
    return ps.Pipeline("numbers", rows.to(ps.files(out)))


def failing(out: str) -> ps.Pipeline:
    def fail(row: dict) -> dict:
        raise ValueError("a bad row")

    return ps.Pipeline("failing", ps.datagen("n bigint", rate=10).map(fail, "n bigint").to(ps.files(out)))
"""
MODULE = """
def doubled(n: int) -> int:
    return (n % 1000) * 2
"""


def assigned(tmp_path: Path, job: str, **fields: Any) -> dict[str, Any]:
    base = {"job": job, "name": job, "target": str(tmp_path / "version" / "job.py"), "entry": "job"}
    where = {"checkpoint": str(tmp_path / "checkpoints" / job), "savepoints": str(tmp_path / "savepoints")}
    return {**base, **where, "arguments": {"out": str(tmp_path / job)}, "settings": SETTINGS, "token": 1, **fields}


@contextmanager
def driver(folder: Path, **how: Any) -> Iterator[DriverProcess]:
    started = DriverProcess(folder, **how)
    try:
        yield started
    finally:
        started.end()


def test_a_pool_in_a_spare_a_kill_and_a_restart_leave_exact_output(tmp_path: Path) -> None:
    version = tmp_path / "version"
    version.mkdir()
    (version / "job.py").write_text(JOB)
    (version / "prices.py").write_text(MODULE)
    with driver(tmp_path / "runs" / "1", spare=SETTINGS) as spare:
        hello = spare.attach()
        assert (hello["spare"], hello["pid"]) == (True, spare.process.pid)
        in_pool = {"type": "run", "pool": "small", "environment": {"LOGIN": "hunter22"}}
        for job, entry in (("good", "job"), ("bad", "failing"), ("other", "job")):
            spare.send({**assigned(tmp_path, job, entry=entry), **in_pool})
        _check_pool(spare)
        assert spare.attach(token=2)["jobs"] == {"good": "running", "bad": "ended", "other": "ended"}
        spare.kill()
        again = assigned(tmp_path, "good", attempt=2, token=2)
        with driver(tmp_path / "runs" / "2", assignment=again) as second:
            _check_restart(second, tmp_path)
    _check_output(tmp_path)


def _check_pool(spare: DriverProcess) -> None:
    """One job fails, one is canceled, and the third goes on."""
    epoch = spare.event("epoch", "good")
    assert epoch["rows_in"] > 0
    assert epoch["duration_ms"] > 0
    assert epoch["phases"]["addBatch"] > 0
    failed = spare.event("ended", "bad")
    assert failed["outcome"] == "failed"
    assert failed["error"]["type"] == "FunctionFailed"
    assert "a bad row" in failed["error"]["message"]
    assert spare.outcome("bad")["error"] == failed["error"]
    spare.event("epoch", "other")
    spare.send({"type": "cancel", "job": "other"})
    assert spare.event("ended", "other")["outcome"] == "canceled"
    spare.send({"type": "savepoint", "job": "good", "savepoint": "running"})
    assert spare.event("savepoint", "good")["bytes"] > 0
    assert "driver_started" in spare.log
    assert "loading penstock_entry_job" in spare.log
    assert "hunter22" not in spare.log


def _check_restart(second: DriverProcess, tmp_path: Path) -> None:
    """The driver of one job continues after the kill, refuses the old manager, and stops with a savepoint."""
    assert second.attach(token=2)["spare"] is False
    # The first may be a replay of what the sink has already.
    second.event("epoch", "good", 2)
    second.send({"type": "stop", "job": "good", "savepoint": "last"})
    ended = second.event("ended", "good")
    assert (ended["outcome"], ended["savepoint"]) == ("stopped", "last")
    assert second.wait() == 0
    assert second.outcome("good")["outcome"] == "stopped"
    assert (tmp_path / "savepoints" / "last" / "savepoint.json").exists()
    assert not (second.folder / "driver.sock").exists()


def _check_output(tmp_path: Path) -> None:
    """Every number is there once; workers saw the secret, the module beside the job and the driver's folder."""
    rows = duckdb.sql(f"SELECT n, twice, login, folder FROM '{tmp_path}/good/**/*.parquet'").fetchall()
    written = sorted(row[0] for row in rows)
    batches = DataGen(SCHEMA).read("0", 0, len(written))
    assert written == sorted(n for batch in batches for n in batch.column("n").to_pylist())
    assert all(twice == (n % 1000) * 2 for n, twice, _, _ in rows)
    seen = {(login, os.path.basename(folder)) for _, _, login, folder in rows}
    assert seen == {("hunter22", "1"), ("", "2")}
