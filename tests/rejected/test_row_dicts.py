"""Rejected rows hold times that Python has no datetime for."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa

from penstock.rejected.rows import row_dicts, row_json


def test_times_out_of_pythons_range_are_shown_as_text() -> None:
    times = pa.array([0, -(2**63) + 1, 2**63 - 1, None], pa.int64()).cast(pa.timestamp("us", "UTC"))
    rows = row_dicts(pa.table({"n": [1, 2, 3, 4], "ts": times, "list": pa.array([[one] for one in times])}))
    assert [row["n"] for row in rows] == [1, 2, 3, 4]
    assert all(isinstance(row["ts"], str) for row in rows[:3])
    assert rows[0]["ts"].startswith("1970-01-01 00:00:00")
    assert rows[3]["ts"] is None
    assert "cannot be shown" in row_json(rows[1])


def test_other_rows_are_as_python_has_them() -> None:
    times = pa.array([0], pa.int64()).cast(pa.timestamp("us", "UTC"))
    assert row_dicts(pa.table({"ts": times, "k": ["a"]})) == [{"ts": datetime(1970, 1, 1, tzinfo=UTC), "k": "a"}]
    assert row_dicts(pa.table({"k": pa.array([], pa.string())})) == []
