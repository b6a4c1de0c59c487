"""A job of the job manager on a Spark standalone cluster: its tasks run there, in as many cores as its parallelism."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from penstock.control.supervisor.drivers.processes import kill_all, marks
from tests.cluster.standalone import QUICK, Cluster, standalone, wait_for

PIPELINE = """
import os
import penstock as ps

numbers = ps.from_items([{"n": n} for n in range(200)], "n bigint")
pipeline = ps.Pipeline("numbers", numbers.map(lambda row: {"n": row["n"], "cwd": os.getcwd()}, "n bigint, cwd string")
    .to(ps.files("out")))
"""


@contextmanager
def manager_on(cluster: Cluster, folder: Path) -> Iterator[str]:
    """Run `penstock server` with the cluster as Spark's master; yield its URL."""
    spark = {
        "spark.pyspark.python": str(cluster.python),
        "spark.driver.host": "127.0.0.1",
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": QUICK,
        "spark.driver.extraJavaOptions": QUICK,
    }
    env = os.environ | {"PENSTOCK_SPARK": ",".join(f"{name}={value}" for name, value in spark.items())}
    options = ["--spark-master", cluster.url, "--data", str(folder / "data"), "--port", "0", "--spares", "0"]
    log = folder / "manager.log"
    with log.open("wb") as out:
        command = [sys.executable, "-m", "penstock.cli", "server", *options]
        manager = subprocess.Popen(command, cwd=folder, env=env, stdout=out, stderr=subprocess.STDOUT)
    address = re.compile(r"^job manager on (\S+)$", re.MULTILINE)
    try:
        wait_for(lambda: address.search(log.read_text()) or manager.poll() is not None, "the manager did not start")
        found = address.search(log.read_text())
        assert found, log.read_text()
        yield found[1]
    finally:
        manager.kill()
        manager.wait()
        for mark in marks() & {path.name for path in (folder / "data" / "runs").iterdir()}:
            kill_all(mark)


@pytest.mark.slow
def test_a_job_of_the_manager_runs_on_a_standalone_cluster(tmp_path: Path) -> None:
    import duckdb

    with standalone(tmp_path / "spark", workers=1) as cluster, manager_on(cluster, tmp_path) as url:
        form = {"until": "ended", "parallelism": "1"}
        made = httpx.post(f"{url}/api/v1/jobs", data=form, files={"file": ("job.py", PIPELINE)}, timeout=120)
        assert made.status_code == 201, made.text
        job = f"{url}/api/v1/jobs/{made.json()['id']}"
        wait_for(lambda: httpx.get(job).json()["state"] in ("FINISHED", "FAILED"), "the job did not end")
        assert httpx.get(job).json()["state"] == "FINISHED", httpx.get(job).text + httpx.get(f"{job}/logs").text
    rows = duckdb.sql(f"SELECT n, cwd FROM '{tmp_path}/out/*.parquet' ORDER BY n").fetchall()
    assert [n for n, _ in rows] == list(range(200))
    # Python workers run in the folder of their executor, below that of the worker.
    assert {Path(cwd).is_relative_to(tmp_path / "spark") for _, cwd in rows} == {True}
