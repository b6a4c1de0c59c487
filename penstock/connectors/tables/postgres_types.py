"""Spark's types in PostgreSQL, and the csv text for COPY: an empty field is null, a quoted one is text."""

from __future__ import annotations

import io
import re

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv as pacsv

from penstock.connectors.formats.json.writer import json_text
from penstock.connectors.formats.text_columns import decimal_text
from penstock.errors import BadSchema

_INTEGERS = {"smallint", "integer", "bigint", "numeric"}
_FLOATS = {"double precision", "numeric"}
_JSON = {"json", "jsonb"}
_TEXTS = {"text", "character varying", "character", "citext", "uuid", "inet", "xml", "name", *_JSON}
_NEW = {
    "string": "text",
    "bigint": "bigint",
    "int": "integer",
    "smallint": "smallint",
    "tinyint": "smallint",
    "double": "double precision",
    "float": "real",
    "boolean": "boolean",
    "binary": "bytea",
    "timestamp": "timestamptz",
    "timestamp_ntz": "timestamp",
    "date": "date",
    "interval day to second": "interval",
    "array": "jsonb",
    "map": "jsonb",
    "struct": "jsonb",
}
# An integer column takes a wider integer: a value that does not fit is an error, no silent change.
TAKEN = {
    "string": _TEXTS,
    **dict.fromkeys(("bigint", "int", "smallint", "tinyint"), _INTEGERS),
    "double": _FLOATS,
    "float": _FLOATS | {"real"},
    "decimal": {"numeric"},
    "boolean": {"boolean"},
    "binary": {"bytea"},
    "timestamp": {"timestamp with time zone"},
    "timestamp_ntz": {"timestamp without time zone"},
    "date": {"date"},
    "interval day to second": {"interval"},
    **dict.fromkeys(("array", "map", "struct"), _JSON),
}
_READ = {
    **{"smallint": "smallint", "integer": "int", "bigint": "bigint", "real": "float", "double precision": "double"},
    **{"boolean": "boolean", "bytea": "binary", "date": "date", "numeric": "decimal(38,18)"},
    **{"timestamp with time zone": "timestamp", "timestamp without time zone": "timestamp_ntz"},
}
_OPTIONS = pacsv.WriteOptions(include_header=False, quoting_style="needed")


def spark_type(catalog: str) -> str:
    """Return what Spark has for a column, by its type in the catalog; what Spark has not is read as text.

    >>> spark_type("numeric(10,2)"), spark_type("timestamp(3) with time zone"), spark_type("uuid")
    ('decimal(10,2)', 'timestamp', 'string')
    """
    if catalog.startswith("numeric(") and catalog.count(",") == 1:
        return catalog.replace("numeric", "decimal")
    return _READ.get(re.sub(r"\(\d+\)", "", catalog), "string")


def type_of(spark: str) -> str:
    """Return the type of a new column.

    >>> type_of("decimal(10,2)"), type_of("array<string>")
    ('numeric(10,2)', 'jsonb')
    """
    if spark.startswith("decimal"):
        return spark.replace("decimal", "numeric")
    kind = spark.partition("<")[0]
    if kind not in _NEW:
        message = f"PostgreSQL has no column for the type {spark}"
        raise BadSchema(message, hint="cast() it before to a type that it has, such as string")
    return _NEW[kind]


def csv_rows(batch: pa.RecordBatch) -> bytes:
    """Return the rows of a batch as csv without a header."""
    text = pa.RecordBatch.from_arrays([_text(column) for column in batch.columns], names=batch.schema.names)
    buffer = io.BytesIO()
    pacsv.write_csv(text, buffer, _OPTIONS)
    return buffer.getvalue()


def _text(column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_timestamp(kind):
        # The session is in UTC; Arrow looks a zone up for each value, and is six times as fast without.
        return column.cast(pa.timestamp(kind.unit))
    if pa.types.is_decimal(kind):
        return decimal_text(column)
    if pa.types.is_binary(kind):
        return pa.array([None if value is None else rf"\x{value.hex()}" for value in column.to_pylist()], pa.string())
    if pa.types.is_duration(kind):
        return pc.binary_join_element_wise(column.cast(pa.int64()).cast(pa.string()), " microseconds", "")
    if pa.types.is_nested(kind):
        return pc.if_else(pc.is_valid(column), json_text(column), None)
    return column
