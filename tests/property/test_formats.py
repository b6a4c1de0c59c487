"""Promise: what a sink writes our source reads as it was, and so do others; the rest is rejected with a reason."""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from penstock.connectors.files.source import FileSource
from penstock.connectors.formats.csv.options import CsvOptions
from penstock.connectors.formats.writers import open_writer
from penstock.connectors.tables.source import DatabaseTable
from penstock.connectors.topics.payloads import Payloads, payloads
from penstock.contracts import Rejected
from penstock.errors import SinkFailed, SourceFailed
from penstock.schema import Schema
from penstock.settings import Settings
from tests.connectors.table_sinks import TargetTable, epoch, sqlite_table
from tests.databases import PostgresServer

EPOCH_DAY, EPOCH = date(1970, 1, 1), datetime(1970, 1, 1, tzinfo=UTC)
FIRST_DAY, LAST_DAY = (date.min - EPOCH_DAY).days, (date.max - EPOCH_DAY).days
DAY_US = 86_400_000_000
# What makes trouble in text: quotes, delimiters, line breaks, marks of formats, words for nothing, odd letters.
_TROUBLE = [
    '"',
    "'",
    "\\",
    ",",
    ";",
    "\t",
    "|",
    " ",
    "\n",
    "\r",
    "\r\n",
    "{",
    "}",
    "é",
    "😀",
    "\ufeff",
    "\u2028",
    "\x00",
]
_WORDS = [
    "",
    "NULL",
    "null",
    "NaN",
    "nan",
    "inf",
    "Infinity",
    "\\N",
    "NA",
    "true",
    "0",
    "-",
    "1e400",
    "0E-10",
    "#",
    "--",
]
TEXTS = st.one_of(
    st.sampled_from(_WORDS), st.lists(st.sampled_from([*_TROUBLE, "a", "1", "z"]), max_size=6).map("".join), st.text()
)
FLOATS = st.one_of(st.floats(), st.sampled_from([0.0, -0.0, math.nan, math.inf, -math.inf, 5e-324, 1.7e308, 0.1]))
SINGLES = st.floats(width=32)


def decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    """Return decimals of a type, with many zeros and small ones, which are written with exponents."""
    most = 10**precision - 1
    units = st.one_of(st.integers(-most, most), st.integers(-2, 2), st.sampled_from([0, most, -most]))
    return units.map(lambda unit: Decimal(unit).scaleb(-scale))


VALUES: dict[str, st.SearchStrategy[Any]] = {
    "string": TEXTS,
    "bigint": st.integers(-(1 << 63), (1 << 63) - 1),
    "int": st.integers(-(1 << 31), (1 << 31) - 1),
    "tinyint": st.integers(-128, 127),
    "double": FLOATS,
    "float": SINGLES,
    "boolean": st.booleans(),
    "decimal(20,10)": decimals(20, 10),
    "decimal(38,0)": decimals(28, 0),
    "decimal(38,38)": decimals(28, 38),
    "date": st.one_of(
        st.integers(FIRST_DAY, LAST_DAY), st.sampled_from([FIRST_DAY, LAST_DAY, FIRST_DAY - 1, LAST_DAY + 1, -1, 0])
    ),
    "timestamp": st.one_of(
        st.integers(FIRST_DAY * DAY_US, LAST_DAY * DAY_US),
        st.sampled_from([FIRST_DAY * DAY_US, (LAST_DAY + 1) * DAY_US - 1, (LAST_DAY + 1) * DAY_US, -1, 0, 1]),
    ),
}
INSTANTS = st.datetimes(timezones=st.just(UTC))


def pairs(mapping: dict[Any, Any]) -> list[tuple[Any, Any]]:
    """Return a map as Arrow takes it."""
    return list(mapping.items())


NESTED: dict[str, st.SearchStrategy[Any]] = {
    "binary": st.binary(max_size=5),
    "array<double>": st.lists(st.none() | FLOATS, max_size=3),
    "map<string,binary>": st.dictionaries(TEXTS, st.none() | st.binary(max_size=3), max_size=3).map(pairs),
    "map<bigint,array<map<string,double>>>": st.dictionaries(
        st.integers(-(1 << 63), (1 << 63) - 1),
        st.none() | st.lists(st.none() | st.dictionaries(TEXTS, st.none() | FLOATS, max_size=2).map(pairs), max_size=2),
        max_size=3,
    ).map(pairs),
    "map<decimal(20,10),struct<t:timestamp,d:decimal(38,38)>>": st.dictionaries(
        decimals(20, 10),
        st.none() | st.fixed_dictionaries({"t": st.none() | INSTANTS, "d": st.none() | decimals(28, 38)}),
        max_size=3,
    ).map(pairs),
    "map<timestamp,boolean>": st.dictionaries(INSTANTS, st.none() | st.booleans(), max_size=3).map(pairs),
    "map<binary,date>": st.dictionaries(st.binary(max_size=3), st.none() | st.dates(), max_size=3).map(pairs),
    "map<boolean,float>": st.dictionaries(st.booleans(), st.none() | SINGLES, max_size=2).map(pairs),
    "struct<s:string,d:decimal(20,10),x:double>": st.fixed_dictionaries(
        {"s": st.none() | TEXTS, "d": st.none() | decimals(20, 10), "x": st.none() | FLOATS}
    ),
}


@st.composite
def tables(draw: st.DrawFn, kinds: dict[str, st.SearchStrategy[Any]]) -> tuple[Schema, pa.RecordBatch]:
    """Return rows of random types; the first column numbers them."""
    chosen = draw(st.lists(st.sampled_from(sorted(kinds)), min_size=1, max_size=5))
    schema = Schema(", ".join(["n bigint", *(f"`c {n}` {kind}" for n, kind in enumerate(chosen))]))
    count = draw(st.integers(1, 8))
    columns = [pa.array(range(count), pa.int64())]
    for kind, field in zip(chosen, list(schema.nullable().arrow)[1:], strict=True):
        values = draw(st.lists(st.none() | kinds[kind], min_size=count, max_size=count))
        columns.append(_array(values, field.type))
    return schema, pa.RecordBatch.from_arrays(columns, schema=schema.nullable().arrow)


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_date(kind):
        return pa.array(values, pa.int32()).cast(kind)
    if pa.types.is_timestamp(kind):
        return pa.array(values, pa.int64()).cast(kind)
    return pa.array(values, kind)


def plain(batch: pa.RecordBatch) -> dict[int, tuple[str, ...]]:
    """Return rows by number, in a form in which NaN is NaN, -0.0 is not 0.0, and every time has one."""
    return {row[0]: tuple(map(repr, row[1:])) for row in zip(*map(_comparable, batch.columns), strict=True)}


def _comparable(column: pa.Array) -> list[Any]:
    kind = column.type
    if pa.types.is_date(kind):
        column = column.cast(pa.int32())
    elif pa.types.is_timestamp(kind):
        column = column.cast(pa.int64())
    return list(column.to_pylist())


def outside_of_the_calendar(batch: pa.RecordBatch) -> set[int]:
    """Return the rows with a date or time that ISO-8601 with four digits of a year cannot hold."""
    found: set[int] = set()
    for column in batch.columns[1:]:
        days = 1 if pa.types.is_date(column.type) else DAY_US if pa.types.is_timestamp(column.type) else 0
        for row, value in enumerate(_comparable(column) if days else []):
            if value is not None and not FIRST_DAY * days <= value < (LAST_DAY + 1) * days:
                found.add(row)
    return found


def read_back(path: Path, schema: Schema, format: str, options: CsvOptions) -> tuple[dict[int, Any], dict[int, str]]:
    """Read a file in two pieces; return its rows, and why others are none, by their numbers."""
    source = FileSource(str(path), schema, format, options=options)
    end = source.latest({}, None)
    rows: dict[int, Any] = {}
    bad: dict[int, str] = {}
    for item in (item for split in source.splits({}, end, 2) for item in source.read_split(split)):
        if isinstance(item, Rejected):
            bad[int(re.findall(rb"\d+", item.raw)[0])] = item.reason
        else:
            rows |= plain(item)
    return rows, bad


def compare(rows: dict[int, Any], bad: dict[int, str], batch: pa.RecordBatch) -> None:
    """Check that each row is as it was."""
    assert (rows, bad) == (plain(batch), {})


def readable(batch: pa.RecordBatch, write: Callable[[pa.RecordBatch], object]) -> pa.RecordBatch:
    """Return the rows that csv and json can hold, and check that the others are refused."""
    outside = outside_of_the_calendar(batch)
    if not outside:
        return batch
    with pytest.raises(SinkFailed, match="is before year 1 or after 9999"):
        write(batch)
    return batch.filter(pa.array([n not in outside for n in range(batch.num_rows)], pa.bool_()))


def write(path: Path, format: str, batch: pa.RecordBatch, options: CsvOptions) -> None:
    with contextlib.closing(open_writer(format, str(path), batch.schema, options)) as writer:
        writer.write_batch(batch)


DIALECTS = (
    st.tuples(
        st.sampled_from(",;\t| "),
        st.sampled_from("\"'"),
        st.sampled_from(["", "\\", "^"]),
        st.sampled_from(["", "NA", "\\N"]),
    )
    .filter(lambda one: not one[2] or one[2] not in one[3])
    .map(lambda one: CsvOptions("auto", one[0], one[1], one[2] or None, one[3]))
)


def dialects() -> st.SearchStrategy[CsvOptions]:
    """Return dialects, half of them the default."""
    return st.one_of(st.just(CsvOptions()), DIALECTS)


HERE = hypothesis_settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
FEW = hypothesis_settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))


@HERE
@given(tables(VALUES), dialects())
def test_csv_is_read_as_it_was_written(tmp_path_factory: Any, table: Any, options: CsvOptions) -> None:
    schema, batch = table
    path = tmp_path_factory.mktemp("csv") / "rows.csv"
    batch = readable(batch, lambda rows: write(path, "csv", rows, options))
    write(path, "csv", batch, options)
    compare(*read_back(path, schema, "csv", options), batch)


@FEW
@given(tables({"string": TEXTS.filter(lambda text: "\0" not in text), "bigint": VALUES["bigint"]}))
def test_duckdb_reads_the_texts_and_nulls_of_our_csv(tmp_path_factory: Any, table: Any) -> None:
    schema, batch = table
    path = tmp_path_factory.mktemp("duck") / "rows.csv"
    write(path, "csv", batch, CsvOptions())
    columns = ", ".join(f"'{f.name}': '{'BIGINT' if f.type == 'bigint' else 'VARCHAR'}'" for f in schema)
    options = f"header=true, delim=',', quote='\"', escape='\"', columns={{{columns}}}, allow_quoted_nulls=false"
    with duckdb.connect() as duck:
        found = duck.execute(f"SELECT * FROM read_csv('{path}', {options}, parallel=false)").fetchall()
    assert found == [tuple(row.values()) for row in batch.to_pylist()]


@HERE
@given(tables(VALUES | NESTED))
def test_json_is_read_as_it_was_written_and_is_json(tmp_path_factory: Any, table: Any) -> None:
    schema, batch = table
    path = tmp_path_factory.mktemp("json") / "rows.json"
    batch = readable(batch, lambda rows: write(path, "json", rows, CsvOptions()))
    write(path, "json", batch, CsvOptions())
    lines = path.read_text(encoding="utf-8").split("\n")[:-1]
    assert [json.loads(line, parse_constant=_refuse)["n"] for line in lines] == batch.column(0).to_pylist()
    compare(*read_back(path, schema, "json", CsvOptions()), batch)


def _refuse(name: str) -> None:
    message = f"{name} is not JSON"
    raise ValueError(message)


@FEW
@given(tables(VALUES | NESTED))
def test_parquet_is_read_as_it_was_written_also_by_duckdb(tmp_path_factory: Any, table: Any) -> None:
    schema, batch = table
    path = tmp_path_factory.mktemp("parquet") / "rows.parquet"
    write(path, "parquet", batch, CsvOptions())
    assert read_back(path, schema, "parquet", CsvOptions()) == (plain(batch), {})
    with duckdb.connect() as duck:
        assert duck.execute(f"SELECT n FROM '{path}' ORDER BY n").fetchall() == [(n,) for n in range(batch.num_rows)]


@HERE
@given(st.tuples(tables(VALUES), st.just("csv")) | st.tuples(tables(VALUES | NESTED), st.just("json")))
def test_payloads_of_a_topic_are_read_as_they_were_written(payload: Any) -> None:
    (schema, batch), format = payload
    batch = readable(batch, lambda rows: payloads(rows, format))
    written = [text.encode() if isinstance(text, str) else text for text in payloads(batch, format)]
    records = pa.RecordBatch.from_arrays(
        [pa.array(range(len(written))), pa.array(written, pa.binary()), pa.array([0] * len(written))],
        names=["offset", "value", "partition"],
    )
    found = list(Payloads("t", schema, format, ()).rows(records))
    rows = {n: row for item in found if not isinstance(item, Rejected) for n, row in plain(item).items()}
    bad = {int(item.position.rpartition("@")[2]): item.reason for item in found if isinstance(item, Rejected)}
    compare(rows, bad, batch)


# --- tables ------------------------------------------------------------------------------------


@pytest.fixture(params=["sqlite", "postgres"])
def places(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[TargetTable]:
    """Return tables of one database, one after the other."""

    def fresh() -> Iterator[TargetTable]:
        for number in range(1 << 30):
            if request.param == "sqlite":
                yield sqlite_table(tmp_path / "shop.db", f"rows_{number}")
            else:
                server: PostgresServer = request.getfixturevalue("postgres")
                yield TargetTable(server.url, f"formats_{number}", server.sql)

    return fresh()


@hypothesis_settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(table=tables(VALUES | {"binary": NESTED["binary"]}))
def test_tables_hold_what_was_written_or_refuse_it_with_a_reason(places: Iterator[TargetTable], table: Any) -> None:
    schema, batch = table
    place = next(places)
    sink = place.sink(schema.ddl)
    if _refusable(batch, place):
        with pytest.raises(SinkFailed):
            sink.prepare(epoch(sink, 1), 0, iter([batch]))
        assert place.sql(f"SELECT count(*) FROM {place.table}") == [(0,)]
        return
    sink.prepare(epoch(sink, 1), 0, iter([batch]))
    table = DatabaseTable(place.table, place.url, schema, Settings())
    if outside_of_the_calendar(batch):
        with pytest.raises(SourceFailed):
            table.rows()
        return
    again = table.rows()
    assert _of_table(again.combine_chunks().to_batches()[0], place) == _of_table(batch, place)
    _compare_with_the_driver(place, batch)


def _of_table(batch: pa.RecordBatch, place: TargetTable) -> dict[int, tuple[str, ...]]:
    """Return rows to compare; SQLite has no negative zero."""
    same = {"-0.0": "0.0"} if not place.is_postgres else {}
    return {n: tuple(same.get(value, value) for value in row) for n, row in plain(batch).items()}


def _refusable(batch: pa.RecordBatch, place: TargetTable) -> bool:
    """Say whether a database must refuse rows: SQLite has no NaN, PostgreSQL no zero byte in a text and no year 0."""
    values = [value for column in batch.columns for value in _comparable(column) if value is not None]
    if place.is_postgres:
        return any(isinstance(value, str) and "\0" in value for value in values) or _before_year_1(batch)
    return any(isinstance(value, float) and math.isnan(value) for value in values)


def _before_year_1(batch: pa.RecordBatch) -> bool:
    days = {pa.date32(): 1, pa.timestamp("us", "UTC"): DAY_US}
    dated = ((_comparable(column), days[column.type]) for column in batch.columns if column.type in days)
    return any(value is not None and value < FIRST_DAY * unit for values, unit in dated for value in values)


def _compare_with_the_driver(place: TargetTable, batch: pa.RecordBatch) -> None:
    """Compare texts and decimals with what the database's own driver gives, without any of our code."""
    chosen = [field.name for field in batch.schema if pa.types.is_string(field.type) or pa.types.is_decimal(field.type)]
    names = ", ".join(f'"{name}"' for name in chosen)
    found = place.sql(f"SELECT {names or '1'} FROM {place.table} ORDER BY n")
    expected = [[row[name] for name in chosen] for row in batch.select(["n", *chosen]).to_pylist()]
    for got, row in zip(found, expected, strict=True) if chosen else ():
        for value, wanted in zip(got, row, strict=True):
            if isinstance(wanted, Decimal):
                assert Decimal(value) == wanted
                assert "E" not in f"{value}" or place.is_postgres
            else:
                assert value == wanted
