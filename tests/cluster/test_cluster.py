"""Pipelines on a Spark standalone cluster: all that they need of ours and the user's is sent there.

Their Python finds installed libraries only, not this checkout (see `standalone.py`).
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from pyarrow import csv
from pyspark.sql import SparkSession

from penstock.connectors.generators.datagen import DataGen
from penstock.entry_points import load_entry
from penstock.settings import Settings
from tests.cluster.standalone import Cluster, inside, java_options, standalone, wait_for

# So many that the watermark passes the late rows; two files make an epoch.
ROWS = 32_000

BESIDE = """
def place() -> str:
    return __file__
"""
JOB = """
import os
import sys

from beside import place

import penstock as ps


def trades(path: str) -> ps.Stream:
    return ps.read_files(path, format="csv", schema="symbol string, price double, size bigint, ts timestamp")


def vwap(output: str, more: bool = False) -> ps.Pipeline:
    prices = (
        trades("input").filter("size > 0").event_time("ts", "1s").key_by("symbol")
        .window(ps.tumbling("500ms"), late_to=ps.files(f"{output}/late"))
        .aggregate(vwap="sum(price * size) / sum(size)", volume="sum(size)", trades="count(*)")
    )
    found = trades("input/0[0-1].csv").named("places").map(where, "penstock string, beside string, executor string")
    places = [found.to(ps.files(f"{output}/places"))] if more else []
    return ps.Pipeline("vwap", prices.to(ps.files(f"{output}/vwap")), *places)


def where(row):
    return {"penstock": ps.__file__, "beside": place(), "executor": os.getcwd()}


if __name__ == "__main__":
    vwap("cluster", more=True).run(until="ended", checkpoint="cluster/checkpoint-vwap", settings=ps.Settings.load())
"""


def write_job(made: Path, files: int) -> None:
    """Fill the user's folder: a script, a module beside it, and trades."""
    made.mkdir()
    (made / "job.py").write_text(JOB)
    (made / "beside.py").write_text(BESIDE)
    (made / "input").mkdir()
    source, rows = DataGen("trades", rows=ROWS, keys=20, seed=3, late=0.01), ROWS // files
    for number in range(files):
        table = pa.Table.from_batches(source.read("0", number * rows, (number + 1) * rows))
        csv.write_csv(table, made / "input" / f"{number:02}.csv")


# In short master and worker are in the JVM of the session that all tests share, and there is one executor, for each
# JVM takes seconds to start.
def test_a_job_on_a_cluster_has_the_results_of_a_local_one(
    settings: Settings, spark: SparkSession, tmp_path: Path
) -> None:
    folder = tmp_path / "user"
    write_job(folder, files=4)
    with inside(spark, tmp_path / "spark") as cluster:
        _run_to_its_end(_start(folder, cluster, ROWS // 2, executors=1))
    _check_results(folder, replace(settings, epoch_rows=ROWS // 2))


@pytest.mark.slow
def test_a_job_on_a_cluster_has_the_results_of_a_local_one_though_an_executor_dies(
    settings: Settings, tmp_path: Path
) -> None:
    folder = tmp_path / "user"
    write_job(folder, files=16)
    with standalone(tmp_path / "spark") as cluster:
        job = _start(folder, cluster, ROWS // 8, executors=2)
        epochs = _run_to_its_end(job, lambda: _kill_an_executor_in_mid_job(folder, cluster, job))
    assert epochs < 8, "the executor died before the last epoch"
    _check_results(folder, replace(settings, epoch_rows=ROWS // 8))


def _run_to_its_end(job: subprocess.Popen[str], meanwhile: Callable[[], int] = lambda: 0) -> int:
    try:
        result = meanwhile()
        said, _ = job.communicate(timeout=300)
    finally:
        job.kill()
        job.wait()
    assert job.returncode == 0, said
    return result


def _check_results(folder: Path, settings: Settings) -> None:
    _run_locally(folder, settings)
    for output in ("vwap", "late"):
        expected = _rows(f"FROM '{folder}/local/{output}/*.parquet' ORDER BY ALL")
        assert expected
        assert _rows(f"FROM '{folder}/cluster/{output}/*.parquet' ORDER BY ALL") == expected
    _all_code_was_sent(folder)


def _all_code_was_sent(folder: Path) -> None:
    places = _rows(f"SELECT DISTINCT penstock, beside, executor FROM '{folder}/cluster/places/*.parquet'")
    # Which executor gets a task is Spark's choice; whichever it was had the code from the archive.
    assert places
    assert all(".zip/penstock/" in ours and ".zip/beside.py" in users for ours, users, _ in places)


def _start(folder: Path, cluster: Cluster, epoch_rows: int, executors: int) -> subprocess.Popen[str]:
    spark = {
        "spark.pyspark.python": str(cluster.python),
        "spark.driver.host": "127.0.0.1",
        "spark.executor.memory": "512m",
        # Of the worker's environment, which may be that of this process.
        "spark.executorEnv.PYTHONPATH": "/nowhere",
        "spark.executor.extraJavaOptions": java_options(),
        "spark.driver.extraJavaOptions": java_options(),
        "spark.cores.max": "2",
        "spark.executor.cores": str(2 // executors),
        # All executors are there before the first task, however slowly a loaded machine starts them.
        "spark.scheduler.minRegisteredResourcesRatio": "1",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "5min",
    }
    env = os.environ | {
        "PENSTOCK_SPARK_MASTER": cluster.url,
        "PENSTOCK_PARALLELISM": "2",
        "PENSTOCK_EPOCH_ROWS": str(epoch_rows),
        "PENSTOCK_SPARK": ",".join(f"{name}={value}" for name, value in spark.items()),
    }
    command = [sys.executable, "job.py"]
    return subprocess.Popen(command, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def _kill_an_executor_in_mid_job(folder: Path, cluster: Cluster, job: subprocess.Popen[str]) -> int:
    """Return how many epochs had been committed by then."""
    commits = folder / "cluster" / "checkpoint-vwap" / "queries" / "final" / "commits"
    wait_for(lambda: (commits / "0").exists() or job.poll() is not None, "no epoch came to its end")
    assert job.poll() is None, job.communicate()[0]
    cluster.executors()[0].kill()
    return len(list(commits.glob("[0-9]*")))


def _run_locally(folder: Path, settings: Settings) -> None:
    pipeline = load_entry(f"{folder}/job.py:vwap", [f"output={folder}/local"])
    assert "native" in str(pipeline.explain())
    here = replace(settings, files=str(folder))
    pipeline.run(until="ended", checkpoint=folder / "local" / "checkpoint", settings=here)


def _rows(query: str) -> list[tuple[object, ...]]:
    with duckdb.connect() as db:
        return db.execute(query).fetchall()
