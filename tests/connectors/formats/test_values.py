"""Promise: which texts and numbers are values of a type, as docs/reference/values.md lists them; maps in JSON."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from math import floor
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.connectors.files.source import FileSource
from penstock.connectors.formats.epoch_times import epoch_us, instants_of, instants_of_text
from penstock.connectors.formats.json.layout import FEW
from penstock.connectors.formats.parsers import parser
from penstock.connectors.formats.writers import open_writer, refuse_types
from penstock.contracts import Rejected
from penstock.errors import BadSchema
from penstock.rejected.rows import row_dicts, row_json
from penstock.rejected.targets import ReturnedRow, batch
from penstock.schema import Schema

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
US = timedelta(microseconds=1)
TAKEN: dict[str, datetime] = {
    "2026-01-01T12:00:00Z": NOON,
    "2026-01-01t12:00:00z": NOON,
    "2026-01-01 12:00": NOON,
    "2026-01-01T12": NOON,
    "2026-01-01": NOON.replace(hour=0),
    "2026-01-01T12:00:00+00": NOON,
    "2026-01-01T17:30:00+0530": NOON,
    "2026-01-01T17:30:00+05:30": NOON,
    "2026-01-01T12:00:00-00:00": NOON,
    "2026-01-01T12:00:00.1Z": NOON + 100_000 * US,
    "2026-01-01T12:00:00.123456789Z": NOON + 123_456 * US,
    "2026-01-01 12:00:00.999999999": NOON + 999_999 * US,
    "2026-01-01T12:00:00.1234567890123456+01": NOON + 123_456 * US - timedelta(hours=1),
    "1969-12-31T23:59:59.9999999Z": EPOCH - US,
    "0001-01-01T00:00:00Z": datetime(1, 1, 1, tzinfo=UTC),
    "9999-12-31T23:59:59.999999999Z": datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC),
}
COUNTED: dict[str, datetime] = {
    "0": EPOCH,
    "1767268800": NOON,
    "1767268800.5": NOON + 500_000 * US,
    "1767268800.1234567": NOON + 123_456 * US,
    "1.7672688e9": NOON,
    "1767268800123": NOON + 123_000 * US,
    "1767268800123.4567": NOON + 123_456 * US,
    "1767268800123456": NOON + 123_456 * US,
    "1767268800123456789": NOON + 123_456 * US,
    "946684800": datetime(2000, 1, 1, tzinfo=UTC),
    "946684800000": datetime(2000, 1, 1, tzinfo=UTC),
    "100000000": EPOCH + timedelta(seconds=100_000_000),
    "9999999999": EPOCH + timedelta(seconds=9_999_999_999),
    "9223372036854775807": EPOCH + timedelta(microseconds=9_223_372_036_854_775),
    "-1767268800.0000001": EPOCH - (NOON - EPOCH) - US,
    "-1767268800000000001": EPOCH - (NOON - EPOCH) - US,
}
REFUSED = [
    *("2026-01-01T24:00:00Z", "2026-12-31T23:59:60Z", "2026-01-01T12:00:00+24:00", "2026-01-01T12:00:00 +00:00"),
    *("2026-01-01T12:00:00 UTC", "2026-01-01T12:00:00,5Z", "20260101T120000Z", "2026-1-1", "2026-02-29", "2026"),
    *("2026-01-01T12:00:00.", "2026-01-01Z", "01/02/2026", "now", "2026-W01-1", "2026-001", " 2026-01-01", "12:00"),
]
UNCOUNTED = [
    *("1", "-1", "2026", "20260101", "99999999", "10000000000", "20260101120000", "10000000000000000000"),
    *("1e400", "1e99999999999999999999", "0.5", "-0.000001"),
]


def parsed(format: str, schema: str, lines: list[str]) -> tuple[list[dict[str, Any]], list[Rejected]]:
    rows, bad = [], []
    for item in parser(format, Schema(schema)).parse("\n".join(lines).encode(), "f"):
        if isinstance(item, Rejected):
            bad.append(item)
        else:
            item.validate(full=True)
            rows += item.to_pylist()
    return rows, bad


def as_lines(format: str, texts: list[str], numbers: list[str]) -> list[str]:
    if format == "csv":
        return [*texts, *numbers]
    return [json.dumps({"ts": text}) for text in texts] + [f'{{"ts": {number}}}' for number in numbers]


@pytest.mark.parametrize("format", ["csv", "json"])
def test_a_time_is_text_or_a_number_of_so_many_digits(format: str) -> None:
    lines = as_lines(format, list(TAKEN), list(COUNTED))
    expected = [{"ts": time} for time in (*TAKEN.values(), *COUNTED.values())]
    assert parsed(format, "ts timestamp", lines) == (expected, [])
    # Each alone, and so many of each that a block is read in one piece.
    for line, row in zip(lines, expected, strict=True):
        assert parsed(format, "ts timestamp", [line]) == ([row], [])
        many = FEW // len(line) + 1
        assert parsed(format, "ts timestamp", [line] * many) == ([row] * many, [])


@pytest.mark.parametrize("format", ["csv", "json"])
def test_what_is_no_time_is_rejected_with_the_reason(format: str) -> None:
    lines = as_lines(format, [text for text in REFUSED if format == "json" or "," not in text], UNCOUNTED)
    rows, bad = parsed(format, "ts timestamp", lines)
    assert not rows
    assert [row.raw.decode() for row in bad] == lines
    whys = [row.reason for row in bad]
    assert all(why.startswith(("column ts: ", "JSON parse error: Number too big")) for why in whys)
    assert sum("has 9 or 10 digits (seconds since 1970)" in why for why in whys) >= len(UNCOUNTED) - 2
    quoted = ['{"ts": "1767268800"}', '{"ts": true}', '{"ts": [1767268800]}']
    assert len(parsed("json", "ts timestamp", quoted)[1]) == len(quoted)


def test_times_without_zone_take_nanoseconds_but_no_numbers() -> None:
    local = NOON.replace(tzinfo=None)
    for format, lines in (("csv", ["2026-01-01t12:00:00.0000009"]), ("json", ['{"n": "2026-01-01t12:00:00.0000009"}'])):
        assert parsed(format, "n timestamp_ntz", lines) == ([{"n": local}], [])
    assert len(parsed("csv", "n timestamp_ntz", ["1767268800", "2026-01-01T12:00:00Z"])[1]) == 2


@settings(max_examples=200, deadline=None)
@given(st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(8, 19).map(lambda n: 10**n), st.integers(-2, 2))
def test_numbers_are_times_by_their_digits_however_they_are_read(number: int, step: int) -> None:
    number += step
    digits = len(str(abs(number)))
    units = {9: 10**6, 10: 10**6, 12: 1000, 13: 1000, 15: 1, 16: 1}
    expected = 0 if not number else number // 1000 if digits in (18, 19) else units.get(digits, 0) * number
    if number and digits not in {*units, 18, 19}:
        assert epoch_us(str(number)) is None
        with pytest.raises(pa.ArrowInvalid, match="9 or 10 digits"):
            instants_of_text(pa.array([str(number)]))
        return
    assert epoch_us(str(number)) == expected
    assert instants_of_text(pa.array([str(number), None])).cast(pa.int64()).to_pylist() == [expected, None]
    if abs(number) < (1 << 63) - 1:
        assert instants_of(pa.array([None, number], pa.int64())).cast(pa.int64()).to_pylist() == [None, expected]


@pytest.mark.parametrize("number", ["1e3999999", "-1e3999999", "1e-3999999", "1" + "0" * 5000, "1e9999999999999999999"])
def test_a_number_whose_exponent_is_far_out_is_no_time(number: str) -> None:
    assert epoch_us(number) is None
    rows, rejected = parsed("json", "n timestamp", ['{"n": 1767268800}', f'{{"n": {number}}}'])
    assert (len(rows), len(rejected)) == (1, 1)


@given(st.decimals(10**8, 10**19, places=12) | st.decimals(-(10**19), -(10**8), places=12))
def test_numbers_with_a_point_are_times_rounded_down(number: Decimal) -> None:
    digits = len(str(int(number.copy_abs())))
    units = {9: 10**6, 10: 10**6, 12: 1000, 13: 1000, 15: 1, 16: 1, 18: Fraction(1, 1000), 19: Fraction(1, 1000)}
    assert epoch_us(f"{number:f}") == (floor(Fraction(number) * units[digits]) if digits in units else None)


def test_the_time_that_a_number_takes_grows_with_its_length() -> None:
    assert epoch_us("9999999999." + "9" * 10**6) == 10**16 - 1  # as a fraction: more than a minute
    assert epoch_us("-9999999999." + "9" * 10**6) == -(10**16)


def test_parquet_with_nanoseconds_is_read_to_the_microsecond_at_any_depth(tmp_path: Path) -> None:
    ns = pa.timestamp("ns", "UTC")
    values = [1767268800_123456789, None, -1]
    columns = {
        "a": pa.array(values, ns),
        "l": pa.array([[value] for value in values], pa.list_(ns)),
        "m": pa.array([None if value is None else [("x", value)] for value in values], pa.map_(pa.string(), ns)),
        "s": pa.array([{"q": value} for value in values], pa.struct([("q", pa.timestamp("ns"))])),
    }
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    source = FileSource(str(tmp_path / "a.parquet"))
    rows = [row for item in source.read("0", None, source.latest({}, None)["0"]) for row in item.to_pylist()]  # type: ignore[union-attr]
    first, second, third = NOON + 123_456 * US, None, EPOCH - US
    assert [row["a"] for row in rows] == [first, second, third]
    assert [row["l"] for row in rows] == [[first], [None], [third]]
    assert [row["m"] for row in rows] == [[("x", first)], None, [("x", third)]]
    assert rows[0]["s"] == {"q": first.replace(tzinfo=None)}


def test_parquet_with_times_of_96_bits_reaches_all_years(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    times = pa.array([NOON.replace(year=9999), NOON.replace(year=2)], pa.timestamp("us", "UTC"))
    pq.write_table(pa.table({"t": times}), path, use_deprecated_int96_timestamps=True)
    source = FileSource(str(path), Schema("t timestamp"))
    rows = [row for item in source.read("0", None, source.latest({}, None)["0"]) for row in item.to_pylist()]  # type: ignore[union-attr]
    assert [row["t"].year for row in rows] == [9999, 2]


MAPS = """m map<string,bigint>, i map<int,map<string,timestamp>>, d map<date,decimal(30,10)>,
    b array<map<binary,binary>>, s struct<m:map<boolean,double>>"""
ROW = {
    "m": [("a", 1), ("", None), ('"\n', 3)],
    "i": [(-1, [("x", NOON)]), (2, None), (3, [])],
    "d": [(date(2026, 1, 1), Decimal("12345678901234567890.0123456789"))],
    "b": [[(b"\x00", b"ab")], None, []],
    "s": {"m": [(True, 0.5), (False, None)]},
}


def test_maps_are_objects_in_json_and_are_read_as_they_were_written(tmp_path: Path) -> None:
    schema = Schema(MAPS)
    rows = [ROW, dict.fromkeys(schema.names), {**dict.fromkeys(schema.names), "m": []}] * 3
    given = pa.RecordBatch.from_pylist(rows, schema=schema.arrow)
    path = tmp_path / "rows.json"
    writer = open_writer("json", str(path), given.schema)
    writer.write_batch(given)
    writer.write_batch(given.slice(1, 3))
    writer.close()
    expected = rows + rows[1:4]
    source = FileSource(str(path), schema)
    end = source.latest({}, None)
    found = [
        row for split in source.splits({}, end, 3) for item in source.read_split(split) for row in item.to_pylist()
    ]  # type: ignore[union-attr]
    assert found == expected
    with duckdb.connect() as duck:
        columns = "{m: 'MAP(VARCHAR, BIGINT)', d: 'MAP(DATE, DECIMAL(30,10))', s: 'STRUCT(m MAP(BOOLEAN, DOUBLE))'}"
        read = duck.execute(f"SELECT m, d, s FROM read_json('{path}', format='newline_delimited', columns={columns})")
        duck_rows = read.fetchall()
    assert duck_rows[0] == ({"a": 1, "": None, '"\n': 3}, dict(ROW["d"]), {"m": {True: 0.5, False: None}})
    assert duck_rows[1] == (None, None, None)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"m": {"a": 1, "a": 2}}', "column m: duplicate map key"),
        ('{"i": {"1": {}, "01": {}}}', "column i: duplicate map key"),
        ('{"m": {"a": "1"}}', 'column m: {"a": "1"} cannot be read as map<string,bigint>'),
        ('{"m": [{"key": "a", "value": 1}]}', 'column m: [{"key": "a", "value": 1}] cannot be read as map'),
        ('{"m": 1}', "column m: 1 cannot be read as map<string,bigint>"),
        ('{"i": {"x": {}}}', 'column i: {"x": {}} cannot be read as map<int,map<string,timestamp>>'),
        ('{"i": {"1": {"t": 20260101}}}', "column i: "),
        ('{"b": [{"?": ""}]}', "column b: "),
        ('{"d": {"2026-01-01": 123456789012345678901.0}}', "column d: "),
        ('{"m": {"a": 1}', "not JSON"),
        ('{"m": {}} {"m": {}}', "not JSON"),
    ],
)
def test_an_object_that_is_no_such_map_is_rejected(line: str, reason: str) -> None:
    rows, bad = parsed("json", MAPS, ['{"m": {"a": 1}}', line, '{"m": {"b": 2}, "unknown": {"a": 1, "a": 2}}'])
    assert [row["m"] for row in rows] == [[("a", 1)], [("b", 2)]]
    assert [row.raw for row in bad] == [line.encode()]
    assert bad[0].reason.startswith(reason)


def test_a_rejected_row_with_maps_goes_back_as_it_was() -> None:
    schema = Schema(MAPS)
    given = pa.Table.from_pylist([ROW], schema=schema.arrow)
    kept = json.loads(row_json(row_dicts(given)[0]), parse_float=Decimal)
    assert batch([ReturnedRow(None, kept, None)], schema).to_pylist() == [ROW]
    # As Spark's to_json keeps it: the keys of maps are texts.
    from_spark = {"s": {"m": {"true": 0.5}}, "i": {"-1": {"x": "2026-01-01T12:00:00Z"}}}
    again = batch([ReturnedRow(None, from_spark, None)], schema).to_pylist()[0]
    assert (again["s"], again["i"]) == ({"m": [(True, 0.5)]}, [(-1, [("x", NOON)])])


def test_a_sink_refuses_maps_whose_keys_are_no_plain_values() -> None:
    with pytest.raises(BadSchema, match="json cannot hold column 'a'"):
        refuse_types("json", Schema("a map<struct<x:int>,int>"))
    refuse_types("parquet", Schema("a map<struct<x:int>,int>"))
