from __future__ import annotations

import penstock as ps
from penstock.cli.run_summary import summary
from penstock.report import Counts, Report
from penstock.spark.epochs.row_accounting import build_report
from penstock.spark.tasks.totals import Totals


def test_the_summary_shows_sinks_and_where_rows_went_without_empty_columns() -> None:
    counts = {
        "trades": Counts(rows_in=2_000, used=2_000),
        "window": Counts(rows_in=2_000, used=1_990, late=10),
    }
    report = Report(epochs=3, ended=True, rows={"prices": 1_100}, counts=counts)
    assert summary("vwap", report).splitlines() == [
        "vwap: 3 epochs, watermark -, ended, all windows closed",
        "  prices: 1,100 rows written",
        "  node    rows_in   used  late",
        "  trades    2,000  2,000     0",
        "  window    2,000  1,990    10",
    ]


def test_the_summary_tells_sinks_of_earlier_runs_from_those_of_the_pipeline() -> None:
    rows = ps.read_topic("rows", schema="a int")
    graph = ps.Pipeline("p", rows.to(ps.topic("new")), rejected_to=ps.topic("bad")).graph
    report = build_report([Totals(rows={"old": 5, "new": 2, "bad": 1})], graph)
    assert set(summary("p", report).splitlines()[1:]) == {
        "  old: 5 rows written (by earlier runs; no sink of this pipeline)",
        "  new: 2 rows written",
        "  bad: 1 rows written",
    }


def test_the_summary_names_sources_whose_files_changed() -> None:
    lines = summary("p", Report(changed_inputs={"a": 1, "b": 2_000})).splitlines()
    assert lines[1:] == [
        "  a: 1 file changed after having been found; what is new in it was not read",
        "  b: 2,000 files changed after having been found; what is new in them was not read",
    ]
