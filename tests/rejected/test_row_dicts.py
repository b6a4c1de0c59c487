"""Rejected rows hold times that Python has no datetime for."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.rejected.rows import row_dicts, row_json
from penstock.rejected.targets import ReturnedRow, batch
from penstock.schema import Schema

UNIX = datetime(1970, 1, 1, tzinfo=UTC)
LATE = "+294247-01-10T04:00:54.775807Z"


def test_a_time_out_of_pythons_range_is_text_and_other_rows_are_unchanged() -> None:
    times = pa.array([0, -(2**63) + 1, 2**63 - 1, None], pa.int64()).cast(pa.timestamp("us", "UTC"))
    days = pa.array([0, 2**31 - 1, 1, None], pa.int32()).cast(pa.date32())
    rows = row_dicts(pa.table({"n": [1, 2, 3, 4], "ts": times, "day": days}))
    assert rows[0] == {"n": 1, "ts": UNIX, "day": date(1970, 1, 1)}
    assert [row["ts"] for row in rows[1:]] == ["-290308-12-21T19:59:05.224193Z", LATE, None]
    assert [row["day"] for row in rows[1:]] == ["+5881580-07-11", date(1970, 1, 2), None]


def test_of_a_nested_value_only_the_time_that_is_out_of_range_is_text() -> None:
    times = pa.array([0, 2**63 - 1], pa.int64()).cast(pa.timestamp("us", "UTC"))
    nested = {
        "list": pa.array([[times[0]], [times[0], times[1], None]]),
        "struct": pa.StructArray.from_arrays([times, pa.array([1, 2])], ["at", "n"]),
        "map": pa.MapArray.from_arrays([0, 1, 2], pa.array(["a", "b"]), times),
    }
    first, second = row_dicts(pa.table(nested))
    assert first == {"list": [UNIX], "struct": {"at": UNIX, "n": 1}, "map": [("a", UNIX)]}
    assert second == {"list": [UNIX, LATE, None], "struct": {"at": LATE, "n": 2}, "map": [("b", LATE)]}
    assert json.loads(row_json(second))["list"] == ["1970-01-01T00:00:00Z", LATE, None]


@given(st.integers(-(2**63), 2**63 - 1))
def test_any_time_is_exact_in_json_and_comes_back_in_a_replay(us: int) -> None:
    day = us // 86_400_000_000
    schema = Schema("at timestamp, days array<date>, m map<string,timestamp_ntz>")
    times = pa.array([us], pa.int64())
    given_row = pa.RecordBatch.from_arrays(
        [
            times.cast(pa.timestamp("us", "UTC")),
            pa.ListArray.from_arrays([0, 1], pa.array([day], pa.int32()).cast(pa.date32())),
            pa.MapArray.from_arrays([0, 1], pa.array(["k"]), times.cast(pa.timestamp("us"))),
        ],
        schema=schema.arrow,
    )
    kept = json.loads(row_json(row_dicts(pa.Table.from_batches([given_row]))[0]))
    assert batch([ReturnedRow(None, kept, None)], schema).equals(given_row)


def test_other_rows_are_as_python_has_them() -> None:
    times = pa.array([0], pa.int64()).cast(pa.timestamp("us", "UTC"))
    assert row_dicts(pa.table({"ts": times, "k": ["a"]})) == [{"ts": UNIX, "k": "a"}]
    assert row_dicts(pa.table({"k": pa.array([], pa.string())})) == []
