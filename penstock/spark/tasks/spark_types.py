"""Schemas of Spark as the plan's, and Python functions over Arrow as Spark's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from penstock.schema import Field, Schema, ddl_name, parse_type
from penstock.spark.tasks.end_of_stream import of_whole_input

ArrowFunction = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
# For `to_json`, which writes milliseconds unless it is asked for more.
_MICROS = "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"
EXACT_TIMES = {"timestampFormat": f"{_MICROS}XXX", "timestampNTZFormat": _MICROS}


def schema_of(frame: DataFrame) -> Schema:
    """Return the schema that Spark found, which is what a sink is given."""
    return Schema(tuple(Field(f.name, parse_type(type_text(f.dataType)), f.nullable) for f in frame.schema.fields))


def type_text(kind: DataType) -> str:
    """Return a type as SQL; in Spark's own text the names of fields are not quoted."""
    if isinstance(kind, StructType):
        return f"struct<{','.join(f'{ddl_name(f.name)}:{type_text(f.dataType)}' for f in kind.fields)}>"
    if isinstance(kind, ArrayType):
        return f"array<{type_text(kind.elementType)}>"
    if isinstance(kind, MapType):
        return f"map<{type_text(kind.keyType)},{type_text(kind.valueType)}>"
    return kind.simpleString()


def with_plain_names(frame: DataFrame) -> DataFrame:
    """Number the columns if PySpark would misread a name: it takes "a.b" for a field, and stops at backticks."""
    odd = any("." in name or "`" in name for name in frame.columns)
    return frame.toDF(*(f"c{number}" for number in range(len(frame.columns)))) if odd else frame


def map_in_arrow(frame: DataFrame, function: ArrowFunction, ddl: str) -> DataFrame:
    """Call a function on Arrow batches, whatever the columns are called."""
    names, plain = frame.columns, with_plain_names(frame)
    if plain is frame:
        return frame.mapInArrow(of_whole_input(function), ddl)

    def renamed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return function(batch.rename_columns(names) for batch in batches)

    return plain.mapInArrow(of_whole_input(renamed), ddl)


def array_function(fn: Callable[[Iterator[Any]], Iterator[pa.Array]], returned: str, *, inputs: int = 1) -> Any:
    """Make a generator of arrays a Spark function; Spark chooses the kind by the annotations."""
    taken = pa.Array if inputs == 1 else tuple[(pa.Array,) * inputs]  # type: ignore[misc]
    whole = of_whole_input(fn)
    whole.__annotations__ = {"rows": Iterator[taken], "return": Iterator[pa.Array]}  # type: ignore[valid-type]
    return arrow_udf(whole, returned)  # type: ignore[call-overload]
