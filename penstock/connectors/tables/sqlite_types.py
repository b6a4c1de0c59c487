"""Spark's values in SQLite, which has integers, reals, texts and blobs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.connectors.formats.json.writer import json_text
from penstock.connectors.formats.text_columns import decimal_text, iso
from penstock.errors import SinkFailed
from penstock.schema import Schema

_INTEGERS = ("bigint", "int", "smallint", "tinyint", "interval day to second")
_NEW = {
    **dict.fromkeys(_INTEGERS, "INTEGER"),
    "boolean": "BOOLEAN",
    "double": "REAL",
    "float": "REAL",
    "binary": "BLOB",
}
_DECLARED = {"BOOL": "boolean", "TIMESTAMP": "timestamp", "DATETIME": "timestamp", "DATE": "date"}
_BY_AFFINITY = {"INTEGER": "bigint", "REAL": "double", "TEXT": "string", "BLOB": "binary", "NUMERIC": "decimal(38,18)"}


def type_of(spark: str) -> str:
    """Return the type of a new column: times are ISO-8601 texts, decimals exact texts, nested values json.

    >>> type_of("bigint"), type_of("decimal(10,2)"), type_of("timestamp")
    ('INTEGER', 'TEXT', 'TEXT')
    """
    return _NEW.get(spark, "TEXT")


def affinity(declared: str) -> str:
    """Return what SQLite converts values of a column to, by its rules over the declared type.

    >>> affinity("VARCHAR(20)"), affinity("BOOLEAN")
    ('TEXT', 'NUMERIC')
    """
    rules = {
        "INT": "INTEGER",
        "CHAR": "TEXT",
        "CLOB": "TEXT",
        "TEXT": "TEXT",
        "BLOB": "BLOB",
        "REAL": "REAL",
        "FLOA": "REAL",
        "DOUB": "REAL",
    }
    found = next((kind for part, kind in rules.items() if part in declared.upper()), "NUMERIC")
    return found if declared else "BLOB"


def spark_type(declared: str) -> str:
    """Return what Spark would have for a declared type; times are texts, so their name must say what they are.

    >>> spark_type("VARCHAR(20)"), spark_type("decimal(10, 2)"), spark_type("DATETIME")
    ('string', 'decimal(10,2)', 'timestamp')
    """
    name = declared.upper().replace(" ", "")
    for start, kind in _DECLARED.items():
        if name.startswith(start):
            return kind
    if name.startswith(("DECIMAL(", "NUMERIC(")):
        return name.lower().replace("numeric", "decimal") if "," in name else f"{name.lower()[:-1]},0)"
    return _BY_AFFINITY[affinity(declared)]


def taken(spark: str) -> set[str]:
    """Return the affinities that leave the values of a type as they are."""
    number = {"NUMERIC", "BLOB"}
    kinds = {"INTEGER": number | {"INTEGER"}, "BOOLEAN": number | {"INTEGER"}, "REAL": number | {"REAL"}}
    return kinds.get(
        type_of(spark), {"TEXT", "BLOB"} | ({"NUMERIC", "INTEGER", "REAL"} if spark == "binary" else set())
    )


def python_rows(batch: pa.RecordBatch, schema: Schema) -> Iterable[tuple[Any, ...]]:
    """Return the rows as SQLite takes them."""
    columns = [_values(batch.column(name), name) for name in schema.names]
    return zip(*(column.to_pylist() for column in columns), strict=True)


def _values(column: pa.Array, name: str) -> pa.Array:
    kind = column.type
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return iso(column)
    if pa.types.is_duration(kind):
        return column.cast(pa.int64())
    if pa.types.is_decimal(kind):
        return decimal_text(column)
    if pa.types.is_nested(kind):
        return pc.if_else(pc.is_valid(column), json_text(column), None)
    if pa.types.is_floating(kind) and pc.any(pc.is_nan(column)).as_py():
        message = f"column '{name}' holds NaN, which SQLite would make null"
        raise SinkFailed(message, hint=f'say what it should be before: .with_columns({name}="nanvl({name}, null)")')
    return column
