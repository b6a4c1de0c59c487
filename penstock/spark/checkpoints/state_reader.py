"""A job's state as rows in the user's words, read by Spark: what cannot be read without it."""

from __future__ import annotations

import json
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from penstock.errors import BadValue
from penstock.folders import Folder
from penstock.keyed.duplicates import KEPT_AT
from penstock.plan.joins import Join, JoinAsof
from penstock.plan.stateful import Deduplicate
from penstock.settings import Settings
from penstock.spark.checkpoints.accumulators import as_plain, pickled
from penstock.spark.checkpoints.aggregate_buffers import partials
from penstock.spark.checkpoints.checkpoint import read_identity
from penstock.spark.checkpoints.duplicate_state import is_in_buckets, kept_rows_in
from penstock.spark.checkpoints.group_state import GroupRows
from penstock.spark.checkpoints.history import History
from penstock.spark.checkpoints.inspect import checkpoint_at
from penstock.spark.checkpoints.join_state import asof_rows_in, sides_in
from penstock.spark.checkpoints.join_state import columns_of as join_columns
from penstock.spark.checkpoints.keyed_state import columns_of, key_row, keys_in
from penstock.spark.checkpoints.layout import Operator
from penstock.spark.checkpoints.state_files import StateSchema
from penstock.spark.checkpoints.state_tables import Place, StateTable, epoch_of, find_state
from penstock.spark.checkpoints.stores import connect, with_store
from penstock.spark.checkpoints.unsafe_rows import type_from_json
from penstock.spark.checkpoints.window_state import OPEN, windows_in
from penstock.spark.hidden import OTHER_WINDOW
from penstock.spark.lowering.context import column
from penstock.spark.session import session
from penstock.spark.types import type_text

_TWO_VALUES = ("max_by", "min_by")
Row = dict[str, Any]


def read_by_spark(
    root: Folder,
    settings: Settings,
    *,
    node: str | None = None,
    key: str | None = None,
    at: int | None = None,
    limit: int = 100,
) -> StateTable:
    """Read the state of a node; `at` asks for that after an earlier epoch."""
    data = checkpoint_at(root)
    place = find_state(data, node)
    identity = read_identity(data)
    first_us = identity.first_us if identity else 0
    first_us -= place.operator.lag_us
    folder = data / "queries" / place.query
    epoch = epoch_of(History(folder), place.number, at)
    spark = session(with_store(settings, root))
    connect(spark, root)
    options = {"operatorId": str(place.number), "batchId": str(epoch)}
    reader = spark.read.format("statestore").options(**options)
    if place.operator.kind == Join.kind:
        waiting = sides_in(reader, folder.hadoop, place.operator, first_us)
        return _packed(waiting, place, epoch, key, limit, join_columns(place.operator))
    raw = reader.load(folder.hadoop)
    if place.operator.kind == JoinAsof.kind:
        return _packed(asof_rows_in(raw, place.operator), place, epoch, key, limit, join_columns(place.operator))
    if place.operator.kind == Deduplicate.kind and is_in_buckets(raw):
        shown_columns = [*place.operator.keys, KEPT_AT]
        return _packed(kept_rows_in(raw, place.operator), place, epoch, key, limit, shown_columns)
    if place.operator.attributes is not None:
        return _keyed(raw, place, epoch, key, limit)
    if place.operator.held is not None:
        columns = [*place.operator.keys, OPEN, *place.operator.held]
        return _packed(windows_in(raw, place.operator), place, epoch, key, limit, columns)
    if place.operator.calls:
        return _grouped(raw, place, epoch, key, limit, first_us)
    shown = _shown(raw, place.operator, first_us)
    if key is not None:
        shown = shown.filter(_is_key(place.operator, key))
    order = [column(name) for name in shown.columns if name in (*place.operator.keys, "window_start")]
    # By Arrow, for collect() gives times without their zone.
    found = shown.orderBy(*order).limit(limit + 1).toArrow().to_pylist()
    rows = [_decoded(one, place.operator) for one in found[:limit]]
    return StateTable(place.operator.node, epoch, shown.columns, rows, len(found) > limit)


def _grouped(raw: DataFrame, place: Place, epoch: int, key: str | None, limit: int, first_us: int) -> StateTable:
    """Read groups that Spark aggregates alone, whose buffers only Penstock's decoder shows as values."""
    kinds = [type_from_json(json.loads(raw.schema[name].dataType.json())) for name in ("key", "value")]
    groups = GroupRows(place.operator, StateSchema(*kinds), first_us)
    frame = raw.select(_renamed("key", _fields(raw, "key"), "k"), _renamed("value", _fields(raw, "value"), "v"))
    if key is not None:
        names = (F.col(f"k.k{number}").cast("string") for number in range(len(place.operator.keys)))
        frame = frame.filter(F.concat_ws(",", *names) == F.lit(key))
    found = frame.orderBy("k").limit(limit + 1).toArrow().to_pylist()
    pairs = [([*one["k"].values()], [*one["v"].values()]) for one in found[:limit]]
    return StateTable(place.operator.node, epoch, groups.columns, [*groups.rows(pairs)], len(found) > limit)


def _keyed(raw: DataFrame, place: Place, epoch: int, key: str | None, limit: int) -> StateTable:
    """Read the state of a process function."""
    keys = keys_in(raw)
    if key is not None:
        keys = keys.filter(F.col("name") == F.lit(key))
    found = keys.orderBy("name", "key").limit(limit + 1).toArrow().to_pylist()
    rows = [key_row(one, place.operator) for one in found[:limit]]
    return StateTable(place.operator.node, epoch, columns_of(place.operator), rows, len(found) > limit)


def _packed(frame: DataFrame, place: Place, epoch: int, key: str | None, limit: int, columns: list[str]) -> StateTable:
    """Read state that comes as the key, as a user names it, and the rest as JSON."""
    if key is not None:
        frame = frame.filter(F.col("name") == F.lit(key))
    found = frame.orderBy("name", "data").limit(limit + 1).toArrow().to_pylist()
    rows = [json.loads(one["data"]) for one in found[:limit]]
    return StateTable(place.operator.node, epoch, columns, rows, len(found) > limit)


def _is_key(operator: Operator, key: str) -> Column:
    if not operator.keys:
        message = f"the state of '{operator.node}' has no key"
        raise BadValue(message, hint="leave out --key")
    return F.concat_ws(",", *(column(name).cast("string") for name in operator.keys)) == F.lit(key)


def _shown(raw: DataFrame, operator: Operator, first_us: int) -> DataFrame:
    keys, values = _fields(raw, "key"), _fields(raw, "value")
    # Spark's columns of values are called sum, sum, count: only their places tell them apart.
    frame = raw.select(_renamed("key", keys, "k"), _renamed("value", values, "v"))
    window = OTHER_WINDOW if OTHER_WINDOW in [field.name for field in keys] else "window"
    given = [one for number, field in enumerate(keys) for one in _key(number, field, window, first_us)]
    merged = _merged(operator, values)
    if merged is not None:
        named = {name: value for (name, _), value in zip(operator.merges, merged, strict=True)}
        folds = [F.col(f"v.v{len(values) - len(operator.folded) + i}") for i in range(len(operator.folded))]
        frame = frame.select(*given, *(value.alias(name) for name, value in named.items()), *_as(folds, operator))
        hidden = [name for name in frame.columns if name not in named]
        return frame.select(*map(column, hidden), *(F.expr(sql).alias(name) for name, sql in operator.finals))
    return frame.select(*given, *(one for number, field in enumerate(values) for one in _value(number, field)))


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
        # Spark's store wants a value; of rows that are there or not it has none.
        return []
    if field.name == "expiresAtMicros":
        return [F.timestamp_micros(value).alias("kept_until")]
    if isinstance(field.dataType, StructType):
        return [value[inner.name].alias(inner.name) for inner in field.dataType.fields]
    return [value.alias(field.name)]


def _merged(operator: Operator, values: list[StructField]) -> list[Column] | None:
    """Return the merged values that results are made of; None if the state holds something else."""
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
    """Show accumulators of Python as what they are."""
    for name, kind in operator.folded:
        if isinstance(row.get(name), bytes | bytearray):
            row[name] = as_plain(partials(bytes(row[name]), kind))
    if operator.running and isinstance(row.get("accumulators"), bytes | bytearray):
        accumulators = pickled(bytes(row["accumulators"]))
        row["accumulators"] = as_plain(dict(zip(operator.running, accumulators, strict=False)))
    return row
