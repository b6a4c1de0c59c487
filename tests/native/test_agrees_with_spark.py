"""What DuckDB's aggregates give is what Spark's give: nulls, NaN, infinities, extremes, text."""

from __future__ import annotations

import itertools
import math
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from penstock.native.engine import connection
from penstock.schema import Schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = Schema("s string, t string, i int, b bigint, c bigint, d double, e double, f boolean, ts timestamp, dt date")
TEXTS = [None, "", "a", "A", "é", "z\u0000", "日本", "a "]
NUMBERS = [None, 0, 1, -1, 7, 2**31, -(2**40)]
DOUBLES = [None, 0.0, -0.0, 1.5, -2.25, math.inf, -math.inf, math.nan, 1e300, 5e-324]
TIMES = [None, datetime(1969, 12, 31, 23, 59, 59, 999999, UTC), datetime(2026, 1, 1, tzinfo=UTC)]


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


def _native(rows: pa.Table, calls: list[str]) -> pa.Table:
    connection().register("rows", rows)
    return connection().sql(f"SELECT {', '.join(calls)} FROM rows").to_arrow_table()


def _values(column: pa.ChunkedArray) -> list[Any]:
    return [int(v) if pa.types.is_decimal(column.type) else v for v in column.to_pylist()]
