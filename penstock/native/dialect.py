"""Spark SQL as DuckDB runs it."""

from __future__ import annotations

from penstock.plan.portable import native_sql
from penstock.schema import Schema


def expression(sql: str, schema: Schema) -> str:
    """Return DuckDB's SQL of an expression over columns of these types, ready for `str.format`.

    >>> expression("size > price", Schema("size bigint, price bigint"))
    '("size" > "price")'
    """
    # Braces in a text must survive the composition of steps.
    return native_sql(sql, schema).replace("{", "{{").replace("}", "}}")
