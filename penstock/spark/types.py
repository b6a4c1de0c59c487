"""Schemas between Spark and the plan."""

from __future__ import annotations

from pyspark.sql import DataFrame

from penstock.schema import Field, Schema, parse_type

# For `to_json`, which writes milliseconds unless it is asked for more.
_MICROS = "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"
EXACT_TIMES = {"timestampFormat": f"{_MICROS}XXX", "timestampNTZFormat": _MICROS}


def schema_of(frame: DataFrame) -> Schema:
    """Return the schema that Spark found, which is what a sink is given."""
    return Schema(tuple(Field(f.name, parse_type(f.dataType.simpleString()), f.nullable) for f in frame.schema.fields))
