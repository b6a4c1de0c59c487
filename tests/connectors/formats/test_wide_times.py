"""Times before year 1 and after 9999: json and csv hold none that a source would not read back."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.connectors.formats.csv.options import CsvOptions
from penstock.connectors.formats.csv.writer import csv_text
from penstock.connectors.formats.json.writer import json_documents
from penstock.connectors.formats.wide_times import refuse_wide
from penstock.connectors.formats.writers import JsonFile
from penstock.connectors.topics.payloads import payloads
from penstock.errors import SinkFailed

DAY_US = 86_400_000_000
FIRST, LAST = -719_162, 2_932_896
US = [FIRST * DAY_US - 1, (LAST + 1) * DAY_US, 2**63 - 1, -(2**63)]


def dates(*values: int | None) -> pa.Array:
    return pa.array(values, pa.int32()).cast(pa.date32())


def times(*values: int | None, zone: str | None = "UTC") -> pa.Array:
    return pa.array(values, pa.int64()).cast(pa.timestamp("us", zone))


def batch(column: pa.Array) -> pa.RecordBatch:
    return pa.record_batch({"id": pa.array(range(len(column))), "at": column})


def to_json_file(rows: pa.RecordBatch, folder: Path) -> None:
    with contextlib.closing(JsonFile(str(folder / "f"))) as file:
        file.write_batch(rows)


@pytest.mark.parametrize(
    "write",
    [
        to_json_file,
        lambda rows, _: csv_text(rows, CsvOptions()),
        lambda rows, _: payloads(rows, "json"),
        lambda rows, _: payloads(rows, "csv"),
    ],
)
@pytest.mark.parametrize(
    ("column", "shown"),
    [
        (dates(0, 2**31 - 1), r"\+5881580-07-11"),
        (dates(0, FIRST - 1, None), "0000-12-31"),
        (times(0, (LAST + 1) * DAY_US), "10000-01-01T00:00:00Z"),
        (times(-(2**63), 0, zone=None), "-290308-12-21T19:59:05.224192"),
    ],
)
def test_a_sink_refuses_a_time_that_no_source_reads(
    write: Callable[[pa.RecordBatch, Path], object], column: pa.Array, shown: str, tmp_path: Path
) -> None:
    with pytest.raises(SinkFailed, match=rf"column 'at': .*{shown} is before year 1 or after 9999.*(json|csv)"):
        write(batch(column), tmp_path)


def nested(inner: pa.Array) -> list[pa.Array]:
    """One row for each value: in a list, a struct, a map as value and as key, and all of them."""
    keys, offsets = pa.array([str(n) for n in range(len(inner))]), list(range(len(inner) + 1))
    struct = pa.StructArray.from_arrays([inner], ["x"])
    values = pa.MapArray.from_arrays(offsets, keys, struct)
    return [
        pa.ListArray.from_arrays(offsets, inner),
        struct,
        pa.MapArray.from_arrays(offsets, keys, inner),
        pa.MapArray.from_arrays(offsets, inner, keys),
        pa.ListArray.from_arrays(offsets, values),
    ]


@pytest.mark.parametrize("kind", range(5))
def test_nested_times_are_checked_too_and_only_those_of_the_batch(kind: int) -> None:
    rows = batch(nested(times(2**63 - 1, 0, 1))[kind])
    with pytest.raises(SinkFailed, match="column 'at': \\+294247"):
        refuse_wide(rows, "json")
    refuse_wide(rows.slice(1), "json")
    refuse_wide(batch(dates(FIRST, LAST, None)), "json")
    refuse_wide(batch(times(FIRST * DAY_US, (LAST + 1) * DAY_US - 1, None)), "json")
    refuse_wide(batch(times(None)), "json")


def test_json_that_no_source_of_ours_reads_back_has_them_as_exact_text() -> None:
    rows = [json.loads(text) for text in json_documents(batch(dates(0, 2**31 - 1, None))).to_pylist()]
    assert [row["at"] for row in rows] == ["1970-01-01", "+5881580-07-11", None]
    rows = [json.loads(text) for text in json_documents(batch(times(1, *US, 0))).to_pylist()]
    assert [row["at"] for row in rows] == [
        *("1970-01-01T00:00:00.000001Z", "+0000-12-31T23:59:59.999999Z", "+10000-01-01T00:00:00Z"),
        *("+294247-01-10T04:00:54.775807Z", "-290308-12-21T19:59:05.224192Z", "1970-01-01T00:00:00Z"),
    ]
