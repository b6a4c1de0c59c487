from __future__ import annotations

import json
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.connectors.files.source import FileSource
from penstock.contracts import Rejected
from penstock.errors import SourceFailed
from penstock.schema import Schema
from tests.connectors.files.test_files import PAIRS, numbers, put, read_all, rows_of


def write_parquet(path, table, group=10):
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, row_group_size=group)
    return str(path)


def test_parquet_is_read_by_row_groups_in_even_pieces(tmp_path):
    path = write_parquet(tmp_path / "in.parquet", pa.table({"a": range(95), "b": ["x"] * 95}))
    source = FileSource(path)
    assert source.schema == PAIRS
    assert source.latest({}, 1) == {"0": 1}
    assert source.latest({}, 25) == {"0": 3}
    assert source.latest({"0": 1}, None) == {"0": 10}
    pieces = source.splits({}, {"0": 10}, 3)
    assert [[tuple(part[1:3]) for part in piece] for piece in pieces] == [[(0, 3)], [(3, 6)], [(6, 10)]]
    assert numbers(source) == list(range(95))


def test_parquet_columns_are_cast_only_where_nothing_is_lost(tmp_path):
    noon = datetime(2026, 1, 1, 12)  # noqa: DTZ001 (a time without zone is the point)
    table = pa.table(
        {
            "n": pa.array([1], pa.int32()),
            "t": pa.array([noon], pa.timestamp("ms")),
            "s": pa.array(["x"]).dictionary_encode(),
            "unused": [1],
            "d": [0.1],
            "nothing": pa.nulls(1),
        }
    )
    path = write_parquet(tmp_path / "in.parquet", table)
    source = FileSource(path, Schema("t timestamp, n bigint, s string, nothing int"))
    assert read_all(source) == [{"t": noon.replace(tzinfo=UTC), "n": 1, "s": "x", "nothing": None}]
    assert FileSource(path).schema.types["t"] == "timestamp"
    with pytest.raises(SourceFailed, match=r"in\.parquet: column 's' is dictionary.* bigint in the schema"):
        read_all(FileSource(path, Schema("s bigint")))
    with pytest.raises(SourceFailed, match="column 'd' is double there and float in the schema"):
        read_all(FileSource(path, Schema("d float")))
    with pytest.raises(SourceFailed, match=r"in\.parquet lacks column 'z'"):
        read_all(FileSource(path, Schema("z bigint")))


def test_a_parquet_value_that_does_not_fit_fails_by_name(tmp_path):
    path = write_parquet(tmp_path / "in.parquet", pa.table({"a": [1, 1 << 40]}))
    with pytest.raises(SourceFailed, match=r"column 'a' is int64 there and int in the schema.*1099511627776"):
        read_all(FileSource(path, Schema("a int")))


def test_parquet_rows_that_break_not_null_are_rejected_with_their_number(tmp_path):
    path = write_parquet(tmp_path / "in.parquet", pa.table({"a": [1, 2, 3], "b": ["x", None, "z"]}), 1)
    source = FileSource(path, Schema("a bigint, b string not null"))
    items = list(source.read("0", 0, source.latest({}, None)["0"]))
    assert [row["a"] for row in rows_of(items)] == [1, 3]
    (bad,) = [item for item in items if isinstance(item, Rejected)]
    assert bad.position == f"{path}:1"
    assert json.loads(bad.raw) == {"a": 2, "b": None}


def test_a_file_that_is_no_parquet_says_how_to_write_one(tmp_path):
    put(tmp_path / "in.parquet", "PAR1 half")
    with pytest.raises(SourceFailed, match=r"cannot be read as Parquet(.|\n)*\.tmp, then rename"):
        FileSource(f"{tmp_path}/in.parquet", PAIRS).latest({}, None)
