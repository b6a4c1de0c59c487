"""The examples that write files, run in the tests' own Spark."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from penstock.entry_points import load_entry
from penstock.settings import Settings

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize(
    ("name", "ending"), [("sessionization", "json"), pytest.param("user_activity", "parquet", marks=pytest.mark.slow)]
)
def test_an_example_uses_every_click(name: str, ending: str, tmp_path: Path, settings: Settings) -> None:
    pipeline = load_entry(str(EXAMPLES / f"{name}.py"), [f"out={tmp_path}/out", "rows=3000"])
    report = pipeline.run(until="ended", checkpoint=tmp_path / "c", settings=settings)
    (clicks,) = duckdb.sql(f"SELECT sum(clicks) FROM '{tmp_path}/out/*.{ending}'").fetchall()[0]
    counts = report.counts["aggregate"]
    assert counts.rows_in == counts.used + counts.late
    # A click is in each of the five windows that slide over it.
    assert clicks == counts.used * (5 if name == "user_activity" else 1)


@pytest.mark.slow
def test_every_fraud_is_told_with_what_led_to_it(tmp_path: Path, settings: Settings) -> None:
    pipeline = load_entry(str(EXAMPLES / "fraud.py"), [f"out={tmp_path}/out"])
    report = pipeline.run(until="ended", checkpoint=tmp_path / "c", settings=settings)
    told = duckdb.sql(f"SELECT card, amount FROM '{tmp_path}/out/payments/*.json' ORDER BY ALL").fetchall()
    audit = duckdb.sql(f"SELECT card, past[-1], len(past) FROM '{tmp_path}/out/audit/*.json' ORDER BY ALL").fetchall()
    assert len(told) > 10
    assert [(card, last) for card, last, _ in audit] == told
    assert all(payments > 1 for _, _, payments in audit)
    counts = report.counts["process"]
    assert counts.rows_in == counts.used + counts.late == 10_000
