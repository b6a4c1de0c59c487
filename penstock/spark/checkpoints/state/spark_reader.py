"""Reads state with Spark's state data source: RocksDB's, and what DuckDB cannot compute."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from functools import reduce

import pyarrow as pa
from pyspark.sql import Column, DataFrame, DataFrameReader
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from penstock.plan.operators.joins import Join
from penstock.settings import Settings
from penstock.spark.checkpoints.layout import Operator
from penstock.spark.checkpoints.state.aggregates import GroupRows, partials, safe_unpickle, to_plain
from penstock.spark.checkpoints.state.buckets import (
    BucketFormat,
    BucketReader,
    bucket_format,
    join_columns,
    key_text,
    possible_hashes,
    process_columns,
    process_keys,
    process_row,
    to_json,
)
from penstock.spark.checkpoints.state.store_files import StateSchema
from penstock.spark.checkpoints.state.tables import Row, StateTable, StateVersion, require_keys
from penstock.spark.checkpoints.state.unsafe_rows import type_from_json
from penstock.spark.lowering.context import column
from penstock.spark.lowering.joins import L, R
from penstock.spark.session.object_stores import configure_store, with_store
from penstock.spark.session.spark_session import session
from penstock.spark.tasks.internal_columns import OTHER_WINDOW
from penstock.spark.tasks.spark_types import EXACT_TIMES, type_text

_TWO_VALUES = ("max_by", "min_by")
_JSON_ROWS = pa.schema([("name", pa.string()), ("data", pa.string())])
_PICKLED_KEYS = pa.schema([("key", pa.string()), ("name", pa.string()), ("data", pa.binary())])


class SparkReader:
    """A StateReader for every kind of state; starts Spark."""

    def __init__(self, version: StateVersion, settings: Settings) -> None:
        self.version, self.operator, self.settings = version, version.operator, settings

    def read(self, key: str | None = None, limit: int = 100) -> StateTable:
        """Return the rows of a key, or of all keys, up to a limit."""
        operator, first_us = self.operator, self.version.first_us
        folder, source = self.version.history.folder.hadoop, self._source()
        if operator.kind == Join.kind:
            return self._json_rows(_join_sides(source, folder, operator, first_us), join_columns(operator), key, limit)
        raw = source.load(folder)
        buckets = bucket_format(operator, in_buckets="groupState" in raw.select("value.*").columns)
        if buckets is not None or operator.attributes is not None:
            hashes = possible_hashes(key, len(operator.keys)) if key is not None and operator.keys else None
            found = self._bucket_rows(raw, buckets, hashes, key, limit)
            # Of some types of keys the text does not show the hash.
            return found if found.rows or hashes is None else self._bucket_rows(raw, buckets, None, key, limit)
        if operator.calls:
            return self._groups(raw, key, limit)
        return self._results(raw, key, limit)

    def _bucket_rows(
        self, raw: DataFrame, buckets: BucketFormat | None, hashes: tuple[int, ...] | None, key: str | None, limit: int
    ) -> StateTable:
        reader = BucketReader(self.version.runs, hashes, key if hashes else None)
        if buckets is None:
            return self._process_rows(raw, reader, key, limit)
        rows = _decoded_buckets(raw, self.operator.keys, lambda state: buckets.rows(state, reader))
        return self._json_rows(rows, buckets.columns, key, limit)

    def _source(self) -> DataFrameReader:
        spark = session(with_store(self.settings, self.version.root))
        configure_store(spark, self.version.root)
        options = {"operatorId": str(self.version.number), "batchId": str(self.version.epoch)}
        return spark.read.format("statestore").options(**options)

    def _table(self, columns: list[str], rows: list[Row], *, more: bool) -> StateTable:
        return StateTable(self.operator.node, self.version.epoch, columns, rows, more)

    def _json_rows(self, frame: DataFrame, columns: list[str], key: str | None, limit: int) -> StateTable:
        """Read rows that come as the text of the key, and the row as JSON."""
        if key is not None:
            frame = frame.filter(F.col("name") == F.lit(key))
        found = frame.orderBy("name", "data").limit(limit + 1).toArrow().to_pylist()
        return self._table(columns, [json.loads(one["data"]) for one in found[:limit]], more=len(found) > limit)

    def _process_rows(self, raw: DataFrame, reader: BucketReader, key: str | None, limit: int) -> StateTable:
        keys = _bucket_states(raw).mapInArrow(_pickled_keys(reader), "key string, name string, data binary")
        if key is not None:
            keys = keys.filter(F.col("name") == F.lit(key))
        found = keys.orderBy("name", "key").limit(limit + 1).toArrow().to_pylist()
        rows = [process_row(one["key"], one["data"], self.operator) for one in found[:limit]]
        return self._table(process_columns(self.operator), rows, more=len(found) > limit)

    def _groups(self, raw: DataFrame, key: str | None, limit: int) -> StateTable:
        """Read groups that Spark aggregates in one phase, whose buffers are decoded here."""
        kinds = [type_from_json(json.loads(raw.schema[name].dataType.json())) for name in ("key", "value")]
        groups = GroupRows(self.operator, StateSchema(*kinds), self.version.first_us)
        frame = raw.select(_renamed("key", _fields(raw, "key"), "k"), _renamed("value", _fields(raw, "value"), "v"))
        if key is not None:
            names = (F.col(f"k.k{number}").cast("string") for number in range(len(self.operator.keys)))
            frame = frame.filter(F.concat_ws(",", *names) == F.lit(key))
        found = frame.orderBy("k").limit(limit + 1).toArrow().to_pylist()
        pairs = [([*one["k"].values()], [*one["v"].values()]) for one in found[:limit]]
        return self._table(groups.columns, [*groups.rows(pairs)], more=len(found) > limit)

    def _results(self, raw: DataFrame, key: str | None, limit: int) -> StateTable:
        frame = _result_frame(raw, self.operator, self.version.first_us)
        if key is not None:
            frame = frame.filter(_is_key(self.operator, key))
        order = [column(name) for name in frame.columns if name in (*self.operator.keys, "window_start")]
        # By Arrow, because collect() returns times without their zone.
        found = frame.orderBy(*order).limit(limit + 1).toArrow().to_pylist()
        rows = [_decoded(one, self.operator) for one in found[:limit]]
        return self._table(frame.columns, rows, more=len(found) > limit)


def _is_key(operator: Operator, key: str) -> Column:
    require_keys(operator)
    return F.concat_ws(",", *(column(name).cast("string") for name in operator.keys)) == F.lit(key)


def _bucket_states(raw: DataFrame) -> DataFrame:
    return raw.select(F.col("value.groupState.state").alias("state"))


def _decoded_buckets(raw: DataFrame, keys: list[str], decode: Callable[[bytes], Iterable[Row]]) -> DataFrame:
    def decoded(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for state in batch.column(0).to_pylist():
                rows = list(decode(state))
                names, data = [key_text(row, keys) for row in rows], [to_json(row) for row in rows]
                yield pa.RecordBatch.from_pydict({"name": names, "data": data}, schema=_JSON_ROWS)

    return _bucket_states(raw).mapInArrow(decoded, "name string, data string")


def _pickled_keys(reader: BucketReader) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def pickled(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for state in batch.column(0).to_pylist():
                for found in process_keys(state, reader).combine_chunks().to_batches():
                    keys, data = found.columns
                    names = pa.array([",".join(map(str, json.loads(key))) for key in keys.to_pylist()], pa.string())
                    yield pa.RecordBatch.from_arrays([keys, names, data], schema=_PICKLED_KEYS)

    return pickled


def _result_frame(raw: DataFrame, operator: Operator, first_us: int) -> DataFrame:
    keys, values = _fields(raw, "key"), _fields(raw, "value")
    # Spark names the columns of values sum, sum, count: only their positions are unique.
    frame = raw.select(_renamed("key", keys, "k"), _renamed("value", values, "v"))
    window = OTHER_WINDOW if OTHER_WINDOW in [field.name for field in keys] else "window"
    key_columns = [one for number, field in enumerate(keys) for one in _key(number, field, window, first_us)]
    merged = _merged(operator, values)
    if merged is not None:
        named = {name: value for (name, _), value in zip(operator.merges, merged, strict=True)}
        folds = [F.col(f"v.v{len(values) - len(operator.folded) + i}") for i in range(len(operator.folded))]
        frame = frame.select(*key_columns, *(value.alias(name) for name, value in named.items()), *_as(folds, operator))
        others = [name for name in frame.columns if name not in named]
        return frame.select(*map(column, others), *(F.expr(sql).alias(name) for name, sql in operator.finals))
    return frame.select(*key_columns, *(one for number, field in enumerate(values) for one in _value(number, field)))


def _fields(raw: DataFrame, name: str) -> list[StructField]:
    kind = raw.schema[name].dataType
    assert isinstance(kind, StructType)
    return kind.fields


def _renamed(name: str, fields: list[StructField], prefix: str) -> Column:
    kinds = ",".join(f"{prefix}{number}:{type_text(field.dataType)}" for number, field in enumerate(fields))
    return F.col(name).cast(f"struct<{kinds}>").alias(prefix)


def _key(number: int, field: StructField, window: str, first_us: int) -> list[Column]:
    value = F.col(f"k.k{number}")
    if field.name in (window, "session_window") and isinstance(field.dataType, StructType):
        bounds = {bound: F.unix_micros(value[bound]) + F.lit(first_us) for bound in ("start", "end")}
        return [F.timestamp_micros(at).alias(f"window_{bound}") for bound, at in bounds.items()]
    return [] if field.name.startswith("__penstock") else [value.alias(field.name)]


def _value(number: int, field: StructField) -> list[Column]:
    value = F.col(f"v.v{number}")
    if field.name == "__dummy__":
        # A placeholder of Spark's, where only the key is stored.
        return []
    if field.name == "expiresAtMicros":
        return [F.timestamp_micros(value).alias("kept_until")]
    if isinstance(field.dataType, StructType):
        return [value[inner.name].alias(inner.name) for inner in field.dataType.fields]
    return [value.alias(field.name)]


def _merged(operator: Operator, values: list[StructField]) -> list[Column] | None:
    """Return the merged values that results are computed from; None if the state has another format."""
    merged: list[Column] = []
    at = 0
    for _, sql in operator.merges:
        value = F.col(f"v.v{at}")
        if at + 1 < len(values) and values[at + 1].name == "isEmpty":
            value = F.when(~F.col(f"v.v{at + 1}"), value)
            at += 1
        merged.append(value)
        at += 2 if sql.partition("(")[0].lower() in _TWO_VALUES else 1
    known = (operator.merges or operator.folded) and at + len(operator.folded) == len(values)
    return merged if known else None


def _as(folds: list[Column], operator: Operator) -> list[Column]:
    return [fold.alias(name) for fold, (name, _) in zip(folds, operator.folded, strict=True)]


def _decoded(row: Row, operator: Operator) -> Row:
    """Decode the Python accumulators of a row."""
    for name, kind in operator.folded:
        if isinstance(row.get(name), bytes | bytearray):
            row[name] = to_plain(partials(bytes(row[name]), kind))
    if operator.running and isinstance(row.get("accumulators"), bytes | bytearray):
        accumulators = safe_unpickle(bytes(row["accumulators"]))
        row["accumulators"] = to_plain(dict(zip(operator.running, accumulators, strict=False)))
    return row


def _join_sides(source: DataFrameReader, folder: str, operator: Operator, first_us: int) -> DataFrame:
    """Return the rows of both sides of Spark's own join: the text of the key, and the row as JSON."""
    return reduce(DataFrame.union, (_join_side(source, folder, operator, side, first_us) for side in ("left", "right")))


def _join_side(source: DataFrameReader, folder: str, operator: Operator, side: str, first_us: int) -> DataFrame:
    raw = source.option("joinSide", side).load(folder)
    prefix = L if side == "left" else R
    key_type, value_type = raw.schema["key"].dataType, raw.schema["value"].dataType
    assert isinstance(key_type, StructType)
    assert isinstance(value_type, StructType)
    keys = [F.col("key")[key_type[number].name] for number in range(len(operator.keys))]
    # The stored time of a row is a microsecond later than its own, as Spark counts it.
    time = F.timestamp_micros(F.unix_micros(_join_time(value_type, f"{prefix}time")) + F.lit(first_us - 1))
    empty = F.create_map().cast("map<string,string>")
    row = F.col("value")[f"{prefix}row"] if f"{prefix}row" in value_type.names else empty
    named = [key.alias(name) for key, name in zip(keys, operator.keys, strict=True)]
    data = F.struct(F.lit(side).alias("side"), *named, time.alias("time"), row.alias("row"))
    name = F.concat_ws(",", *(key.cast("string") for key in keys))
    return raw.select(name.alias("name"), F.to_json(data, {"ignoreNullFields": "false", **EXACT_TIMES}).alias("data"))


def _join_time(value_type: StructType, name: str) -> Column:
    """Return the time of a row; a join without a time bound stores none."""
    return F.col("value")[name] if name in value_type.names else F.lit(None).cast("timestamp")
