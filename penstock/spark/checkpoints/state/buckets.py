"""State in buckets of keys, decoded to rows: process functions, deduplication, windows, and as-of joins.

Such state is bytes in Spark's state store, one value for each bucket.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from penstock.keyed.deduplication import KEPT_AT
from penstock.keyed.state_store import StateStore, decode_rows
from penstock.native.panes import unpacked
from penstock.native.session_windows import AT
from penstock.native.steps import PANE
from penstock.plan.operators.deduplication import Deduplicate
from penstock.plan.operators.joins import JoinAsof
from penstock.process import time_of
from penstock.spark.checkpoints.layout import Operator
from penstock.spark.checkpoints.state.aggregates import safe_unpickle
from penstock.spark.checkpoints.state.tables import Row

TIMERS = "timers"
OPEN = "open"


@dataclass(frozen=True)
class BucketFormat:
    """The columns of an operator's state, and the function that decodes a bucket to rows."""

    columns: list[str]
    decode: Callable[[bytes], Iterable[Row]]


def bucket_format(operator: Operator, *, in_buckets: bool) -> BucketFormat | None:
    """Return the format of an operator's buckets; None if its state is in another format.

    `in_buckets` is False for deduplication in older checkpoints, which has the state of Spark's own operator.
    """
    if operator.kind == JoinAsof.kind:
        return BucketFormat(join_columns(operator), lambda state: _asof_rows(state, operator))
    if operator.kind == Deduplicate.kind and in_buckets:
        return BucketFormat([*operator.keys, KEPT_AT], lambda state: _deduplication_rows(state, operator.keys))
    if operator.held is not None:
        columns = [*operator.keys, OPEN, *operator.held]
        return BucketFormat(columns, lambda state: _window_rows(state, operator))
    return None


def join_columns(operator: Operator) -> list[str]:
    """Return the columns of a join's state; keys have the names of the left side."""
    return ["side", *operator.keys, "time", "row"]


def process_columns(operator: Operator) -> list[str]:
    """Return the columns of a process function's state."""
    return [*operator.keys, *(operator.attributes or ()), TIMERS]


def process_keys(state: bytes) -> pa.RecordBatch:
    """Return the keys of a process function's bucket: the key as JSON, and its pickled state."""
    return StateStore(state).batch.select([0, 1])


def process_row(key: str, data: bytes, operator: Operator) -> Row:
    """Return a key with its state and timers; values of the job's own classes are not unpickled."""
    found = safe_unpickle(data)
    if len(found) != 4:
        keys = dict(zip(operator.keys, json.loads(key), strict=True))
        return dict.fromkeys(process_columns(operator)) | keys | {TIMERS: found[0]}
    values, state, _, timers = found
    shown_timers = {name: f"{time_of(at).isoformat()} ({clock})" for name, (at, clock) in timers.items()}
    attributes = {name: state.get(name) for name in operator.attributes or ()}
    return {**dict(zip(operator.keys, values, strict=True)), **attributes, TIMERS: shown_timers}


def key_text(row: Row, keys: list[str]) -> str:
    """Return a row's key as a user writes it: values with commas between them."""
    return ",".join(str(row[key]) for key in keys)


def to_json(row: Row) -> str:
    """Return a row as JSON; values that JSON has no type for become text."""
    return json.dumps(row, default=_text)


def _text(value: Any) -> str:
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _deduplication_rows(state: bytes, keys: list[str]) -> Iterator[Row]:
    for row in decode_rows(state).to_pylist():
        *values, at = row.values()
        yield {**dict(zip(keys, values, strict=True)), KEPT_AT: time_of(at)}


def _window_rows(state: bytes, operator: Operator) -> Iterator[Row]:
    for table in unpacked(state):
        yield from _panes(table, operator.keys, operator.held or [])


def _panes(table: pa.Table, keys: list[str], partials: list[str]) -> Iterator[Row]:
    """Yield the open panes of each key; a bucket also has tables without panes, for bookkeeping."""
    pane = next((name for name in (PANE, AT) if name in table.column_names), None)
    if pane is None:
        return
    columns = [name for name in table.column_names if name not in (*keys, pane)]
    for row in table.to_pylist():
        at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=row[pane]) if pane == AT else row[pane]
        values = dict(zip(partials, (row[name] for name in columns), strict=True))
        yield {**{key: row[key] for key in keys}, OPEN: at, **values}


def _asof_rows(state: bytes, operator: Operator) -> Iterator[Row]:
    from penstock.spark.lowering.asof_joins import IS_LEFT, LEFT, RIGHT, key_column  # imports pyspark
    from penstock.spark.tasks.internal_columns import EVENT_TIME

    for row in decode_rows(state).to_pylist():
        side, value = ("left", LEFT) if row[IS_LEFT] else ("right", RIGHT)
        keys = {name: row[key_column(number)] for number, name in enumerate(operator.keys)}
        yield {"side": side, **keys, "time": row[EVENT_TIME], "row": row[value]}
