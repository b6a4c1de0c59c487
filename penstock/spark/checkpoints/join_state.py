"""State of joins as rows: what of each side waits for the other."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame, DataFrameReader
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from penstock.spark.checkpoints.bucket_state import bucket_rows
from penstock.spark.checkpoints.layout import Operator
from penstock.spark.hidden import EVENT_TIME
from penstock.spark.lowering.asof import IS_LEFT, LEFT, RIGHT, key_column, loaded
from penstock.spark.lowering.joins import L, R
from penstock.spark.types import EXACT_TIMES


def columns_of(operator: Operator) -> list[str]:
    """Return the columns of what is shown; keys have the left side's names."""
    return ["side", *operator.keys, "time", "row"]


def sides_in(reader: DataFrameReader, folder: str, operator: Operator, first_us: int) -> DataFrame:
    """Return the rows of both sides of Spark's own join: the key as a user names it, and the rest as JSON."""
    return reduce(DataFrame.union, (_side(reader, folder, operator, side, first_us) for side in ("left", "right")))


def asof_rows_in(raw: DataFrame, operator: Operator) -> DataFrame:
    """Return the same of an as-of join, whose rows wait in buckets of keys."""
    return bucket_rows(raw, operator.keys, lambda state: asof_rows(state, operator))


def asof_rows(state: bytes, operator: Operator) -> Iterator[dict[str, Any]]:
    """Yield the rows that wait in a bucket."""
    yield from (_asof_row(row, operator) for row in loaded(state).to_pylist())


def _side(reader: DataFrameReader, folder: str, operator: Operator, side: str, first_us: int) -> DataFrame:
    raw = reader.option("joinSide", side).load(folder)
    prefix = L if side == "left" else R
    given, kept = raw.schema["key"].dataType, raw.schema["value"].dataType
    assert isinstance(given, StructType)
    assert isinstance(kept, StructType)
    keys = [F.col("key")[given[number].name] for number in range(len(operator.keys))]
    # A row is kept with a time that is a microsecond later than its own, as Spark counts it.
    time = F.timestamp_micros(F.unix_micros(_kept_time(kept, f"{prefix}time")) + F.lit(first_us - 1))
    row = F.col("value")[f"{prefix}row"] if f"{prefix}row" in kept.names else F.create_map().cast("map<string,string>")
    named = [key.alias(name) for key, name in zip(keys, operator.keys, strict=True)]
    data = F.struct(F.lit(side).alias("side"), *named, time.alias("time"), row.alias("row"))
    name = F.concat_ws(",", *(key.cast("string") for key in keys))
    return raw.select(name.alias("name"), F.to_json(data, {"ignoreNullFields": "false", **EXACT_TIMES}).alias("data"))


def _kept_time(kept: StructType, name: str) -> Column:
    """Return the time of a row; a join without a bound takes rows that have none."""
    return F.col("value")[name] if name in kept.names else F.lit(None).cast("timestamp")


def _asof_row(row: dict[str, Any], operator: Operator) -> dict[str, Any]:
    side, kept = ("left", LEFT) if row[IS_LEFT] else ("right", RIGHT)
    keys = {name: row[key_column(number)] for number, name in enumerate(operator.keys)}
    return {"side": side, **keys, "time": row[EVENT_TIME], "row": row[kept]}
