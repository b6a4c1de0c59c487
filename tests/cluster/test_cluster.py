"""Pipelines on a Spark standalone cluster of two workers: all that executors need of ours and the user's is sent there.

Their Python finds installed libraries only, not this checkout (see `standalone.py`).
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from pyarrow import csv

from penstock.connectors.generators.datagen import DataGen
from penstock.entry_points import load_entry
from penstock.settings import Settings
from tests.cluster.standalone import QUICK, Cluster, standalone, wait_for

FILES, ROWS = 16, 2_000
EPOCH_ROWS = 2 * ROWS

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


def vwap(output: str) -> ps.Pipeline:
    prices = (
        trades("input").filter("size > 0").event_time("ts", "1s").key_by("symbol")
        .window(ps.tumbling("500ms"), late_to=ps.files(f"{output}/late"))
        .aggregate(vwap="sum(price * size) / sum(size)", volume="sum(size)", trades="count(*)")
    )
    return ps.Pipeline("vwap", prices.to(ps.files(f"{output}/vwap")))


def places(output: str) -> ps.Pipeline:
    found = trades("input/0[0-3].csv").map(where, "penstock string, beside string, executor string")
    return ps.Pipeline("places", found.to(ps.files(f"{output}/places")))


def where(row):
    return {"penstock": ps.__file__, "beside": place(), "executor": os.getcwd()}


if __name__ == "__main__":
    for pipeline in (places("cluster"), vwap("cluster")):
        pipeline.run(until="ended", checkpoint=f"cluster/checkpoint-{pipeline.name}", settings=ps.Settings.load())
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The user's folder: a script, a module beside it, and trades."""
    made = tmp_path_factory.mktemp("user")
    (made / "job.py").write_text(JOB)
    (made / "beside.py").write_text(BESIDE)
    (made / "input").mkdir()
    source = DataGen("trades", rows=FILES * ROWS, keys=20, seed=3, late=0.01)
    for number in range(FILES):
        table = pa.Table.from_batches(source.read("0", number * ROWS, (number + 1) * ROWS))
        csv.write_csv(table, made / "input" / f"{number:02}.csv")
    return made


def test_a_job_on_a_cluster_has_the_results_of_a_local_one_though_an_executor_dies(
    folder: Path, settings: Settings, tmp_path: Path
) -> None:
    with standalone(tmp_path / "spark") as cluster:
        job = _start(folder, cluster)
        try:
            epochs = _kill_an_executor_in_mid_job(folder, cluster, job)
            said, _ = job.communicate(timeout=300)
        finally:
            job.kill()
            job.wait()
    assert job.returncode == 0, said
    assert epochs < FILES // 2, "the executor died before the last epoch"
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


def _start(folder: Path, cluster: Cluster) -> subprocess.Popen[str]:
    spark = {
        "spark.pyspark.python": str(cluster.python),
        "spark.driver.host": "127.0.0.1",
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": QUICK,
        "spark.driver.extraJavaOptions": QUICK,
        "spark.cores.max": "2",
        # Both executors are there before the first task, however slowly a loaded machine starts them.
        "spark.scheduler.minRegisteredResourcesRatio": "1",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "5min",
    }
    env = os.environ | {
        "PENSTOCK_SPARK_MASTER": cluster.url,
        "PENSTOCK_PARALLELISM": "2",
        "PENSTOCK_EPOCH_ROWS": str(EPOCH_ROWS),
        "PENSTOCK_SPARK": ",".join(f"{name}={value}" for name, value in spark.items()),
    }
    command = [sys.executable, "job.py"]
    return subprocess.Popen(command, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def _kill_an_executor_in_mid_job(folder: Path, cluster: Cluster, job: subprocess.Popen[str]) -> int:
    """Return how many epochs had been committed by then."""
    commits = folder / "cluster" / "checkpoint-vwap" / "queries" / "final" / "commits"
    wait_for(lambda: (commits / "1").exists() or job.poll() is not None, "no epoch came to its end")
    assert job.poll() is None, job.communicate()[0]
    cluster.executors()[0].kill()
    return len(list(commits.glob("[0-9]*")))


def _run_locally(folder: Path, settings: Settings) -> None:
    pipeline = load_entry(f"{folder}/job.py:vwap", [f"output={folder}/local"])
    assert "native" in str(pipeline.explain())
    here = replace(settings, files=str(folder), epoch_rows=EPOCH_ROWS)
    pipeline.run(until="ended", checkpoint=folder / "local" / "checkpoint", settings=here)


def _rows(query: str) -> list[tuple[object, ...]]:
    with duckdb.connect() as db:
        return db.execute(query).fetchall()
