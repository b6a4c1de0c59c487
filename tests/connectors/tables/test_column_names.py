"""Promise: whatever columns are called, files and tables keep them; what one cannot hold is refused with a reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import penstock as ps
from penstock.connectors.files.sink import FileSink
from penstock.connectors.files.source import FileSource
from penstock.contracts import Epoch, Rejected
from penstock.errors import BadSchema, PenstockError, UnknownColumn
from penstock.schema import Schema
from tests.connectors.table_sinks import TargetTable, epoch, opened, sqlite_table
from tests.databases import PostgresServer, table_name
from tests.odd_names import CASES, NAMES, backticked

SCHEMA = Schema(dict.fromkeys(NAMES, "bigint"))
ROWS = [{name: (number + row) % 11 for number, name in enumerate(NAMES)} for row in range(5)]


def batch(rows: list[dict[str, int]], schema: Schema = SCHEMA) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, schema=schema.nullable().arrow)


def in_order(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: row[NAMES[0]])


@pytest.mark.parametrize("format", ["csv", "json", "parquet"])
@pytest.mark.parametrize("partition_by", [(), ("größe", "a.b", "a/b", "a=b", "_key")])
def test_files_keep_every_name(format: str, partition_by: tuple[str, ...], tmp_path: Path) -> None:
    sink = FileSink(str(tmp_path / "out"), format, partition_by)
    sink.validate(SCHEMA, ())
    sink.open(SCHEMA, ())
    sink.commit(Epoch("line", "out", 0), [sink.prepare(Epoch("line", "out", 0), 0, iter([batch(ROWS)]))])
    source = FileSource(str(tmp_path / "out"), SCHEMA, format=format)
    end = source.latest({}, None)
    items = [item for split in source.splits({}, end, 2) for item in source.read_split(split)]
    assert [item for item in items if isinstance(item, Rejected)] == []
    assert in_order([row for item in items for row in item.to_pylist()]) == in_order(ROWS)
    files = [str(path) for path in (tmp_path / "out").rglob(f"*.{format}")]
    read = {"csv": "read_csv(?, header=true, all_varchar=true)", "json": "read_json(?)", "parquet": "read_parquet(?)"}
    if format != "json":  # DuckDB has one namespace for "Key" and "key" there
        found = duckdb.execute(f"DESCRIBE SELECT * FROM {read[format]}", [files]).fetchall()
        assert {name.lower() for name, *_ in found} >= {name.lower() for name in NAMES if name not in CASES} - {" lead"}


def test_the_schema_of_parquet_is_read_as_it_is(tmp_path: Path) -> None:
    sink = FileSink(str(tmp_path / "out"), "parquet", ())
    sink.open(SCHEMA, ())
    sink.commit(Epoch("line", "out", 0), [sink.prepare(Epoch("line", "out", 0), 0, iter([batch(ROWS)]))])
    assert ps.read_files(str(tmp_path / "out")).schema.names == NAMES


def test_a_folder_that_no_name_can_have_and_an_unknown_column_are_refused_when_built() -> None:
    rows = ps.from_items([], SCHEMA)
    with pytest.raises(UnknownColumn, match="nope"):
        rows.to(ps.files("out", partition_by="nope"))
    with pytest.raises(BadSchema, match="too long for a folder"):
        rows.to(ps.files("out", partition_by="x" * 300))


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> TargetTable:
    if request.param == "sqlite":
        return sqlite_table(tmp_path / "x.db", "odd")
    server: PostgresServer = request.getfixturevalue("postgres")
    return TargetTable(server.url, table_name(request.node.name[-50:]), server.sql)


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_tables_keep_every_name_that_the_database_can_hold(place: TargetTable, mode: str) -> None:
    fitting = [name for name in NAMES if len(name.encode()) <= 63] if place.is_postgres else _apart(NAMES)
    schema = Schema(dict.fromkeys(fitting, "bigint"))
    keys = ("größe", "a.b", "select", "%d", "?", 'say "x"', "window") if mode == "upsert" else ()
    sink = opened(ps.table(place.table, connection=place.url, mode=mode, key=keys), schema, keys)  # type: ignore[arg-type]
    rows = [{name: row[name] for name in fitting} for row in ROWS]
    sink.prepare(epoch(sink, 0), 0, iter([batch(rows, schema)]))
    again = [{**row, "日本": -1} for row in rows]
    if mode == "upsert":
        sink.prepare(epoch(sink, 1), 0, iter([batch(again, schema)]))
    expected = again if mode == "upsert" else rows
    assert sorted(place.rows()) == sorted(tuple(row.values()) for row in expected)


def _apart(names: tuple[str, ...]) -> list[str]:
    return list({name.lower(): name for name in reversed(names)}.values())[::-1]


@pytest.mark.parametrize(
    ("names", "url", "words"),
    [
        (("key", "Key"), "sqlite:///x.db", ["'key' and 'Key'", "differ only in case"]),
        (("x" * 64,), "postgresql://h/d", ["63 bytes", "rename"]),
        (("ctid",), "postgresql://h/d", ["ctid", "PostgreSQL"]),
    ],
)
def test_a_name_that_the_database_cannot_hold_is_refused_when_built(names: Any, url: str, words: list[str]) -> None:
    rows = ps.from_items([], dict.fromkeys(names, "bigint"))
    with pytest.raises(PenstockError) as caught:
        rows.to(ps.table("t", connection=url))
    assert [word for word in words if word not in str(caught.value)] == []


def test_a_table_is_read_by_every_name(place: TargetTable) -> None:
    fitting = [name for name in NAMES if len(name.encode()) <= 63] if place.is_postgres else _apart(NAMES)
    schema = Schema(dict.fromkeys(fitting, "bigint"))
    sink = opened(ps.table(place.table, connection=place.url), schema)  # type: ignore[arg-type]
    sink.prepare(epoch(sink, 0), 0, iter([batch([{n: row[n] for n in fitting} for row in ROWS], schema)]))
    table = ps.read_table(place.table, connection=place.url, key="größe", schema=schema)
    table.source.configure("job", ps.Settings())
    assert in_order(table.source.rows().to_pylist()) == in_order([{n: row[n] for n in fitting} for row in ROWS])


def test_sql_takes_every_name_in_backticks() -> None:
    rows = ps.from_items([], SCHEMA)
    for name in NAMES:
        assert rows.filter(f"{backticked(name)} > 1").select(backticked(name)).schema.names == (name,)
