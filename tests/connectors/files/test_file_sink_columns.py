"""Promise: a folder that holds rows is not continued with other columns without a word."""

from __future__ import annotations

import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.errors import BadSchema
from penstock.schema import Schema
from tests.connectors.files.test_file_sink import batch, epoch, opened, shown, write


def started(path, *args, name="out", **options):
    sink = opened(path, *args, **options)
    sink.bind_lineage("line", name)
    return sink


@pytest.mark.parametrize("format", ["parquet", "csv", "json"])
def test_other_columns_than_those_of_the_folder_are_refused_before_anything_is_written(tmp_path, format):
    write(started(tmp_path / "out", format), 0, [batch({"a": 1, "b": "x"})])
    changed = {
        "a string, b string": r"column 'a' is bigint there and string now",
        "a int, b string": r"column 'a' is bigint there and int now",
        "b string": r"column 'a' \(bigint\) is missing now\n",
        "c bigint, b string": r"column 'a' \(bigint\) is missing now; was it renamed to 'c'\?",
    }
    before = shown(tmp_path / "out")
    for schema, reason in changed.items():
        with pytest.raises(BadSchema, match=reason) as refused:
            started(tmp_path / "out", format, schema=Schema(schema))
        assert refused.value.node == "out"
        assert "write to another folder" in str(refused.value)
    assert shown(tmp_path / "out") == before
    # More columns, in another order, are fine, and are there from then on.
    more = Schema("b string not null, c double, a bigint")
    write(started(tmp_path / "out", format, schema=more), 1, [batch({"a": 2, "b": "y", "c": 0.5}, schema=more)])
    with pytest.raises(BadSchema, match=r"column 'c' \(double\) is missing now"):
        started(tmp_path / "out", format)
    for name in shown(tmp_path / "out"):
        os.remove(tmp_path / "out" / name)
    started(tmp_path / "out", format, schema=Schema("a string"))


def test_another_format_or_folder_has_columns_of_its_own(tmp_path):
    write(started(tmp_path / "out"), 0, [batch({"a": 1, "b": "x"})])
    started(tmp_path / "out", "json", schema=Schema("a string"))
    started(tmp_path / "out-2", schema=Schema("a string"))
    started(tmp_path / "out")


def test_the_columns_of_parquet_that_somebody_else_wrote_count_too(tmp_path):
    os.makedirs(tmp_path / "out/day=1")
    pq.write_table(
        pa.table({"a": pa.array([1.5]), "m": pa.array([[("x", 1)]], pa.map_(pa.string(), pa.int64()))}),
        tmp_path / "out/day=1/part-0.parquet",
    )
    with pytest.raises(
        BadSchema, match=r"column 'a' is double there and bigint now\n  column 'm' \(map<string,bigint>\)"
    ):
        started(tmp_path / "out")
    started(tmp_path / "out", schema=Schema("a double, m map<string,bigint>"))


def test_sinks_of_one_folder_may_have_different_columns_from_the_beginning(tmp_path):
    one, other = started(tmp_path / "out"), started(tmp_path / "out", name="other", schema=Schema("z double"))
    write(one, 0, [batch({"a": 1, "b": "x"})])
    other.commit(
        epoch(0, "other"), [other.prepare(epoch(0, "other"), 0, [batch({"z": 1.0}, schema=Schema("z double"))])]
    )
    started(tmp_path / "out")
    started(tmp_path / "out", name="other@updates", schema=Schema("z double"))
    with pytest.raises(BadSchema, match="column 'z' is double there and string now"):
        started(tmp_path / "out", name="other", schema=Schema("z string"))
    with pytest.raises(BadSchema, match="is missing now"):
        started(tmp_path / "out", name="third", schema=Schema("y string"))
