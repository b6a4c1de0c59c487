"""Promise: relative paths are those of the process that runs the pipeline, wherever its JVM was started."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import penstock as ps
from penstock.settings import Settings


def test_files_are_found_after_the_folder_was_changed(
    spark: SparkSession, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planner once looked in the folder of the JVM: it found no file, and the job called that drained."""
    assert spark.version
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("1\n2\nx\n")
    monkeypatch.chdir(tmp_path)
    rows, bad = ps.read_files("in", schema="n bigint", format="csv"), ps.collect()
    pipeline = ps.Pipeline("p", rows.to(ps.files("out")), rejected_to=bad)
    pipeline.run(until="drained", checkpoint="c", settings=settings)
    assert sorted(pq.read_table(tmp_path / "out").column("n").to_pylist()) == [1, 2]
    assert [row["position"] for row in bad.rows] == ["in/a.csv:4"]
