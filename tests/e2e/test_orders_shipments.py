"""Ethereal's orders with shipments, run in the tests' own Spark."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from penstock.entry_points import load_entry
from penstock.settings import Settings

EXAMPLE = Path(__file__).parents[2] / "examples" / "orders_shipments.py"


@pytest.mark.slow
def test_every_order_is_shipped_or_an_alert(tmp_path: Path, settings: Settings) -> None:
    pipeline = load_entry(str(EXAMPLE), [f"out={tmp_path}", "rows=2000"])
    report = pipeline.run(until="ended", checkpoint=tmp_path / "c", settings=settings)
    shipped, early = duckdb.sql(
        f"SELECT count(*), count(*) FILTER (ts_right < ts OR order_id % 10 = 0) FROM '{tmp_path}/shipped/*.parquet'"
    ).fetchall()[0]
    alerts, wrong = duckdb.sql(
        f"SELECT count(*), count(*) FILTER (order_id % 10 > 0) FROM '{tmp_path}/alerts/*.parquet'"
    ).fetchall()[0]
    assert (shipped, alerts, early, wrong) == (1800, 200, 0, 0)
    assert report.counts["join"].rows_in == 3800
