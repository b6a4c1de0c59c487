"""The end of bounded input closes all windows, and comes with the last rows, never before them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import duckdb
import pytest

import penstock as ps
from penstock.settings import Settings
from tests.conftest import at

ROWS = [{"k": "a", "ts": at(second)} for second in range(100)]


def count(path: Path) -> list[tuple[int, ...]]:
    return duckdb.sql(f"SELECT sum(n), count(*) FROM read_parquet('{path}/*.parquet')").fetchall()


def test_the_epoch_of_the_last_rows_is_followed_by_one_that_closes_windows(tmp_path: Path, settings: Settings) -> None:
    windows = ps.from_items(ROWS, "k string, ts timestamp").event_time("ts", "5s").window(ps.tumbling("10s"))
    pipeline = ps.Pipeline("p", windows.aggregate(n="count(*)").to(ps.files(str(tmp_path / "out"))))
    report = pipeline.run(until="ended", checkpoint=tmp_path / "c", settings=settings)
    assert (report.ended, report.epochs) == (True, 2)
    assert count(tmp_path / "out") == [(100, 10)]


@pytest.mark.slow
def test_a_query_that_is_behind_another_meets_the_end_after_its_own_last_rows(
    tmp_path: Path, settings: Settings
) -> None:
    rows = ps.from_items(ROWS, "k string, ts timestamp").event_time("ts", "5s").key_by("k")
    final = rows.window(ps.tumbling("10s")).aggregate(n="count(*)").named("final")
    updates = rows.window(ps.tumbling("20s"), emit="updates").aggregate(n="count(*)").named("updates")
    outputs = [final.to(ps.files(str(tmp_path / "out"))), updates.to(ps.collect())]
    small = replace(settings, epoch_rows=40)
    report = ps.Pipeline("p", *outputs).run(until="ended", checkpoint=tmp_path / "c", settings=small)
    assert {name: counts.late for name, counts in report.counts.items() if counts.late} == {}
    assert count(tmp_path / "out") == [(100, 10)]
