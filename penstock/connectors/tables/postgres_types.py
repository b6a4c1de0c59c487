"""Spark's types in PostgreSQL: what a new column gets, and which existing ones take the values."""

from __future__ import annotations

import re

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
