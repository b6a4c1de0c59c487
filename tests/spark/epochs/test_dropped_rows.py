"""Promise: no row vanishes. What Spark's state drops by its own watermark fails the epoch before any sink has it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame

import penstock as ps
from penstock.connectors.generators.items import ItemSource
from penstock.connectors.sinks.collect import CollectSink
from penstock.errors import SparkFailed
from penstock.settings import Settings
from penstock.windows import Window
from tests.conftest import at

SCHEMA = "k string, ts timestamp"
TUMBLING = ps.tumbling("10s")
ROWS = [{"k": "a", "ts": at(second)} for second in (5, 100, 101, 120, 6, 130)]


@pytest.fixture
def without_late_filter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let late rows through to Spark's state, as a mistake in what finds them would."""

    def passed(frame: DataFrame, *arguments: Any) -> DataFrame:
        return frame

    monkeypatch.setattr("penstock.spark.lowering.lower_state.divert_late_rows", passed)
    monkeypatch.setattr("penstock.spark.lowering.lower_state._in_open_windows", passed)
    monkeypatch.setattr("penstock.spark.lowering.python.process.divert_late_rows", passed)


def run(pipeline: ps.Pipeline, folder: Path, settings: Settings) -> None:
    """Run two rows in each epoch: one of the third is late, by the watermark after the first."""
    settings = replace(settings, lane="spark", epoch_rows=2)
    pipeline.run(until="drained", checkpoint=folder / "checkpoint", settings=settings)


def windows(window: Window = TUMBLING) -> ps.Stream:
    rows = ps.read(ItemSource(ROWS, SCHEMA, "rows")).event_time("ts", "1s")
    return rows.key_by("k").window(window).aggregate(n="count(*)").named("counts")


@pytest.mark.usefixtures("without_late_filter")
@pytest.mark.parametrize(
    ("window", "dropped", "closed"), [(TUMBLING, 1, [at(0)]), (ps.sliding("20s", "10s"), 2, [at(-10), at(0)])]
)
def test_rows_that_spark_drops_fail_the_epoch_before_the_driver_commits_it(
    window: Window, dropped: int, closed: list[datetime], tmp_path: Path, settings: Settings
) -> None:
    sink = CollectSink()
    with pytest.raises(SparkFailed, match=rf"counts.*Spark dropped {dropped} rows by its own watermark"):
        run(ps.Pipeline("p", windows(window).to(sink)), tmp_path, settings)
    # The windows that the epochs before had closed are there.
    assert sorted(row["window_start"] for row in sink.rows) == closed
    assert not (tmp_path / "checkpoint" / "queries" / "final" / "commits" / "2").exists()


@pytest.mark.usefixtures("without_late_filter")
def test_rows_that_spark_drops_fail_the_epoch_before_tasks_commit_it(tmp_path: Path, settings: Settings) -> None:
    """A second window would be in the table, were the check made after the tasks that write it."""
    where = tmp_path / "shop.db"
    sink = ps.table("t", connection=f"sqlite:///{where}")
    with pytest.raises(SparkFailed, match=r"counts.*Spark dropped 1 rows"):
        run(ps.Pipeline("p", windows().to(sink)), tmp_path, settings)
    with closing(sqlite3.connect(where)) as shop:
        assert shop.execute("SELECT n FROM t").fetchall() == [(1,)]


def test_a_job_that_finds_its_late_rows_goes_on_and_its_table_has_the_rest(tmp_path: Path, settings: Settings) -> None:
    where = tmp_path / "shop.db"
    sink, late = ps.table("t", connection=f"sqlite:///{where}"), CollectSink()
    counts = windows()
    run(ps.Pipeline("p", counts.to(sink), counts.side("late").to(late)), tmp_path, settings)
    with closing(sqlite3.connect(where)) as shop:
        assert shop.execute("SELECT n FROM t ORDER BY n").fetchall() == [(1,), (2,)]
    assert pa.Table.from_pylist(late.rows).column("ts").to_pylist() == [at(6)]
