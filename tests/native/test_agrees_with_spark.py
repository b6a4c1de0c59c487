"""What runs natively means the same as in Spark: nulls, NaN, infinities, extremes, text."""

from __future__ import annotations

import itertools
import math
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pytest

from penstock.plan.expressions import parse
from penstock.plan.portable import why_not
from penstock.schema import Schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = Schema("s string, t string, i int, b bigint, c bigint, d double, e double, f boolean, ts timestamp, dt date")
TEXTS = [None, "", "a", "A", "é", "z\u0000", "日本", "a "]
NUMBERS = [None, 0, 1, -1, 7, 2**31, -(2**40)]
DOUBLES = [None, 0.0, -0.0, 1.5, -2.25, math.inf, -math.inf, math.nan, 1e300, 5e-324]
TIMES = [None, datetime(1969, 12, 31, 23, 59, 59, 999999, UTC), datetime(2026, 1, 1, tzinfo=UTC)]
EXPRESSIONS = [
    *("s = t", "s <> t", "s < t", "s >= t", "s = 'a'", "s IS NULL", "NOT (s = 'A')", "s > 'Z'"),
    *("b = c", "b < c", "b + c", "b - c", "b * i", "i + 1", "i - 2", "i * 3", "b > 0", "b <= i", "i >= 1"),
    *("d = e", "d < e", "d >= e", "d + e", "d - e", "d * e", "d * b", "d + i", "d > 1", "d <> e", "d = 0"),
    *("f AND b > 0", "f OR d > 0", "NOT f", "f IS NULL", "b > 0 AND d > 0 OR s = 'a'", "NOT (d > e)"),
    *("ts = ts", "ts < ts", "dt = dt", "f = (b > 0)", "(b + 1) * 2", "b IS NOT NULL", "d IS NULL"),
]


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    made = []
    longest = itertools.islice(itertools.product(DOUBLES, DOUBLES), 100)
    for n, (d, e) in enumerate(longest):
        made.append(
            {
                "s": TEXTS[n % 8],
                "t": TEXTS[n // 8 % 8],
                "i": [None, 0, 1, -5, 2**20][n % 5],
                "b": NUMBERS[n % 7],
                "c": NUMBERS[n // 7 % 7],
                "d": d,
                "e": e,
                "f": [None, True, False][n % 3],
                "ts": TIMES[n % 3],
                "dt": [None, date(1970, 1, 1), date(9999, 12, 31)][n % 3],
            }
        )
    return pa.Table.from_pylist(made, schema=SCHEMA.arrow)


def test_every_expression_on_the_list_is_portable() -> None:
    assert {sql: why_not(sql, SCHEMA) for sql in EXPRESSIONS} == dict.fromkeys(EXPRESSIONS)


def test_expressions_give_the_same_bits(spark: SparkSession, rows: pa.Table) -> None:
    ours = _native(rows, EXPRESSIONS)
    theirs = spark.createDataFrame(rows).selectExpr(*(f"{sql} AS x{n}" for n, sql in enumerate(EXPRESSIONS)))
    for sql, mine, other in zip(EXPRESSIONS, ours.columns, theirs.toArrow().columns, strict=True):
        assert _bits(mine) == _bits(other), sql


def test_aggregates_give_the_same_bits(spark: SparkSession, rows: pa.Table) -> None:
    calls = [f"{name}({column})" for name in ("min", "max", "count") for column in ("s", "i", "b", "d", "ts", "dt")]
    calls += ["count(*)", "sum(i)", "sum(b)", "sum(d)"]
    finite = rows.filter(pa.compute.is_finite(rows.column("d")))
    ours = _native(finite, calls)
    theirs = spark.createDataFrame(finite).selectExpr(*(f"{sql} AS x{n}" for n, sql in enumerate(calls)))
    for sql, mine, other in zip(calls, ours.columns, theirs.toArrow().columns, strict=True):
        assert (
            _values(mine) == pytest.approx(_values(other), rel=1e-12)
            if "sum(d)" in sql
            else (_values(mine) == _values(other))
        ), sql


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("upper(s) = 'A'", "upper()"),
        ("b / 2 > 1", "div()"),
        ("d > 0.5", "the decimal 0.5"),
        ("s = 1", "a string compared with a int"),
        ("cast(b as string) = 'x'", "trycast()"),
    ],
)
def test_what_could_differ_stays_in_spark(sql: str, reason: str) -> None:
    assert why_not(sql, SCHEMA) == reason


def _native(rows: pa.Table, expressions: list[str]) -> pa.Table:
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.register("t", rows)
    columns = [f"{parse(sql, node='x').sql('duckdb', identify=True)} AS x{n}" for n, sql in enumerate(expressions)]
    return connection.sql(f"SELECT {', '.join(columns)} FROM t").to_arrow_table()


def _values(column: pa.ChunkedArray) -> list[Any]:
    return [int(v) if pa.types.is_decimal(column.type) else v for v in column.to_pylist()]


def _bits(column: pa.ChunkedArray) -> list[str]:
    """Values with the sign of zero; NaN is one value whatever its bits."""
    return [repr(value) for value in column.to_pylist()]
