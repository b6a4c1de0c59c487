"""Where the list of the native lane ends: what stays in Spark, what is only carried, what is not reached."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from penstock.native.engine import connection
from penstock.native.translate import expression
from penstock.plan.translation import why_not, why_not_rows
from penstock.schema import Schema
from tests.native.expressions import SCHEMA

CARRIED = {
    "array<int>": [1, None],
    "array<struct<x:double,y:string>>": [{"x": 1.5, "y": None}],
    "struct<a:int,b:array<string>>": {"a": None, "b": ["x"]},
    "map<string,bigint>": [("k", 1), ("l", None)],
    "binary": b"\x00\xff",
    "decimal(38,18)": Decimal("-12345678901234567890.123456789012345678"),
    "timestamp_ntz": datetime(1582, 10, 10, 1, 2, 3, 4),  # noqa: DTZ001
    "timestamp": datetime(1, 1, 1, tzinfo=UTC),
    "date": date(9999, 12, 31),
    "float": 1.5,
    "tinyint": -128,
}


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("upper(s) = 'A'", "upper()"),
        ("s = 1", "a string compared with a int"),
        ("ts > s", "a timestamp compared with a string"),
        ("s + 1", "a string used as a bigint"),
        ("m / n", "/ on decimal(10,2), decimal(12,4)"),
        ("exp(d)", "exp()"),
        ("-x", "the negative of a decimal(38,2)"),
        ("abs(x)", "the negative of a decimal(38,2)"),
        ("negative(cast(m as decimal(35,2)))", "the negative of a decimal(35,2)"),
        ("+s", "positive(string)"),
        ("round(d, 2)", "round(double, int)"),
        ("cast(d as string)", "a cast from double to string"),
        ("cast(s as timestamp)", "a cast from string to timestamp"),
        ("date_trunc(s, ts)", "the unit s"),
        ("date_add(dt, i)", "a number of days that is an int and not written out"),
        ("s LIKE t", "LIKE with a pattern that is not a literal"),
        (r"s RLIKE '(?=a)b'", "the pattern '(?=a)b'"),
        (r"s RLIKE '\\bword'", r"the pattern '\bword'"),
        (r"s RLIKE '\\p{L}'", r"the pattern '\p{L}'"),
        (r"s RLIKE '(a)\\1'", r"the pattern '(a)\1'"),
        ("s RLIKE '[a-c&&b]'", "the pattern '[a-c&&b]'"),
        ("s RLIKE '^[^,]+$'", "the pattern '^[^,]+$'"),
        ("s RLIKE '(a{100}){100}'", "the pattern '(a{100}){100}'"),
        ("s RLIKE 'a++'", "the pattern 'a++'"),
        (r"s = '\101'", "an escape in a text"),
        ("current_timestamp() > ts", "current_timestamp()"),
        ("ts + INTERVAL 1 MONTH", "interval()"),
        ("split_part(s, t, 1)", "split_part() with a separator or a number that is not written out"),
    ],
)
def test_what_could_differ_stays_in_spark(sql: str, reason: str) -> None:
    assert why_not(sql, SCHEMA) == reason


@pytest.mark.parametrize("kind", CARRIED)
def test_a_column_that_is_only_carried_comes_out_as_it_went_in(kind: str) -> None:
    schema = Schema({"x": kind})
    assert why_not("x", schema) is None
    rows = pa.Table.from_pylist([{"x": CARRIED[kind]}, {"x": None}], schema=schema.arrow)
    connection().register("rows", rows)
    out = connection().sql(f"SELECT {expression('x', schema)} AS x FROM rows").to_arrow_table()
    assert out.cast(schema.arrow).equals(rows)


@pytest.mark.parametrize(
    ("shape", "reason"),
    [
        ("a int, A int", "the columns a and A, which differ in case only"),
        ("x interval day to second", "the type interval day to second of x"),
        ("x struct<a:int,A:int>", "the type struct<a:int,A:int> of x"),
    ],
)
def test_rows_that_duckdb_cannot_carry_stay_in_spark(shape: str, reason: str) -> None:
    assert why_not_rows(Schema(shape)) == reason


GUARDED = [
    "SELECT {CASE WHEN i <> 0 THEN j / i END}, {CASE WHEN i <> 0 THEN j / i ELSE 0 END} FROM rows",
    "SELECT {IF(i <> 0, j / i + j / i, 0)} FROM rows",
    "SELECT {coalesce(IF(i = 0, 1, NULL), j / i)}, {coalesce(IF(i = 0, 1, NULL), j / i)} FROM rows",
    "SELECT * FROM rows WHERE {i <> 0 AND j / i > 1} AND {i <> 0 AND j / i > 2}",
    "SELECT * FROM (SELECT * FROM rows WHERE {i <> 0}) WHERE {j / i > 1}",
    "SELECT * FROM (SELECT *, {j / i} AS d FROM (SELECT * FROM rows WHERE {i <> 0})) WHERE {d > 1} AND {j > 2}",
    "SELECT i, sum({j / i}) FROM (SELECT * FROM rows WHERE {i <> 0}) GROUP BY i",
]


@pytest.mark.parametrize("query", GUARDED)
def test_what_a_condition_shields_from_failing_is_not_reached(query: str) -> None:
    numbers = pa.array([n % 4 for n in range(100_000)], pa.int32())
    connection().register("rows", pa.table({"i": numbers, "j": numbers}))
    parts = [expression(part, SCHEMA) if n % 2 else part for n, part in enumerate(query.replace("}", "{").split("{"))]
    connection().sql("".join(parts)).to_arrow_table()
