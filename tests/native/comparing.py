"""One expression in two engines: the same rows, the same values, the same rows that fail."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from penstock.native.engine import connection
from penstock.native.translate import expression
from penstock.schema import arrow_type
from tests.native.expressions import SCHEMA

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Native:
    """What the native lane makes of an expression: a value for each row, or a failure."""

    def __init__(self, sql: str, rows: pa.Table) -> None:
        self.sql = sql
        translated = expression(sql, SCHEMA).format()
        try:
            self.ok = pa.array([True] * rows.num_rows)
            self.column = _column(translated, rows)
        except duckdb.Error:
            self.ok = _tried(translated, rows)
            self.column = _column(translated, rows.filter(self.ok))

    def failing(self, rows: pa.Table) -> list[dict[str, Any]]:
        """The rows on which it fails, as the columns that it reads, each once."""
        read = [name for name in SCHEMA.names if re.search(rf"\b{name}\b", self.sql)]
        failed = rows.filter(pa.compute.invert(self.ok)).select(read).to_pylist()
        return list({repr(row): row for row in failed}.values())


def in_spark(spark: SparkSession, natives: list[Native], rows: pa.Table) -> pa.Table:
    """Spark's values, all in one query, of the rows on which the native lane does not fail."""
    for number, native in enumerate(natives):
        rows = rows.append_column(f"__ok{number}", native.ok)
    columns = (f"CASE WHEN __ok{n} THEN {native.sql} END AS x{n}" for n, native in enumerate(natives))
    return spark.createDataFrame(rows).selectExpr(*columns).toArrow()


def spark_fails(spark: SparkSession, sql: str, row: dict[str, Any]) -> bool:
    """Whether Spark fails on a row; as a table of literals, for which Spark starts no job."""
    columns = [f"{_literal(value, SCHEMA.types[name])} AS {name}" for name, value in row.items()] or ["1"]
    try:
        spark.sql(f"SELECT {sql} FROM (SELECT {', '.join(columns)})").toArrow()
    except (PySparkException, Py4JJavaError):
        return True
    return False


def bits(column: pa.ChunkedArray) -> list[str]:
    """Values with the sign of zero, and of times that Python cannot hold; NaN is one value whatever its bits."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    elif pa.types.is_date(column.type):
        column = column.cast(pa.int32())
    return [repr(value) for value in column.to_pylist()]


def _column(sql: str, rows: pa.Table) -> pa.ChunkedArray:
    connection().register("rows", rows)
    return connection().sql(f"SELECT {sql} AS x FROM rows").to_arrow_table().column("x")


def _tried(sql: str, rows: pa.Table) -> pa.ChunkedArray:
    """Which rows do not fail; what DuckDB computes once for several uses, it computes outside of TRY."""
    connection().execute("SET disabled_optimizers = 'common_subexpressions'")
    try:
        return _column(f"TRY(struct_pack(x := {sql})) IS NOT NULL", rows)
    finally:
        connection().execute("RESET disabled_optimizers")


def _literal(value: Any, kind: str) -> str:
    if value is None:
        return f"CAST(NULL AS {kind})"
    number = pa.scalar(value, arrow_type(kind))
    if kind == "timestamp":
        return f"timestamp_micros({number.cast(pa.int64())})"
    if kind == "date":
        return f"date_from_unix_date({number.cast(pa.int32())})"
    text = str(value).replace("\\", "\\\\").replace("'", "\\'")
    return f"CAST('{text}' AS {kind})"
