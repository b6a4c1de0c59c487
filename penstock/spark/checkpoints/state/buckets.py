"""State in buckets of keys, decoded to rows: process functions, deduplication, windows, and as-of joins.

Spark's state store has the manifest of each bucket; most of the state may be in runs beside it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.keyed.deduplication import KEPT_AT
from penstock.keyed.process_state import SCHEMA
from penstock.keyed.store.bucket_store import BucketStore, RunSettings
from penstock.keyed.store.hashes import group_hashes
from penstock.keyed.store.manifest import manifest_from
from penstock.keyed.store.run_folder import RunFolder
from penstock.native.session_windows import AT
from penstock.native.steps import PANE
from penstock.plan.operators.deduplication import Deduplicate
from penstock.plan.operators.joins import JoinAsof
from penstock.process import time_of
from penstock.spark.checkpoints.layout import Operator
from penstock.spark.checkpoints.state.aggregates import safe_unpickle
from penstock.spark.checkpoints.state.tables import Row
from penstock.spark.checkpoints.state.views import view_rows
from penstock.storage.folders import Folder

TIMERS = "timers"
OPEN = "open"


@dataclass(frozen=True)
class BucketFormat:
    """The columns of an operator's state, and the function that decodes a bucket to rows."""

    columns: list[str]
    decode: Callable[[Sequence[pa.Table]], Iterable[Row]]

    def rows(self, state: bytes, reader: BucketReader) -> Iterable[Row]:
        """Return the rows of a bucket that a reader asks for."""
        return self.decode(reader.tables(state))


@dataclass(frozen=True)
class ViewFormat(BucketFormat):
    """The contents of a view, which its buckets have beside the state of its operators."""

    keys: list[str]

    def rows(self, state: bytes, reader: BucketReader) -> Iterable[Row]:
        """Return the rows of a bucket that a reader asks for."""
        return view_rows(state, reader.runs, self.keys, reader.key)


@dataclass(frozen=True)
class BucketReader:
    """Reads buckets: all groups of each, or those of some hashes; `runs` is the folder of the operator's runs.

    `key` is the text that hashes come from, if they do.
    """

    runs: Folder
    hashes: tuple[int, ...] | None = None
    key: str | None = None

    def tables(self, state: bytes) -> Sequence[pa.Table]:
        """Return the tables of a bucket."""
        manifest = manifest_from(state)
        settings = RunSettings(RunFolder(self.runs / str(manifest.bucket)), 0, verify=self.hashes is None)
        store = BucketStore(manifest, settings)
        if self.hashes is None:
            return store.everything().tables
        return store.read(np.array(self.hashes, np.int64)).tables or ()


def possible_hashes(key: str, columns: int) -> tuple[int, ...] | None:
    """Return the hashes that a key as a user writes it may have, whatever the types of its columns; None if unknown."""
    texts = key.split(",") if columns > 1 else [key]
    if len(texts) != columns:
        return None
    pairs = product(*(_possible_values(text) for text in texts))
    return tuple(int(group_hashes([pa.array([value]) for value in values], 1)[0]) for values in pairs)


def _possible_values(text: str) -> Iterator[Any]:
    yield text
    yield from (value for value in (True, False) if str(value).lower() == text.lower())
    for parse in (int, float, _utc_time):
        with suppress(ValueError, OverflowError):
            if not isinstance(value := parse(text), int) or abs(value) < 1 << 63:
                yield value


def _utc_time(text: str) -> datetime:
    time = datetime.fromisoformat(text)
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def bucket_format(operator: Operator, *, in_buckets: bool) -> BucketFormat | None:
    """Return the format of an operator's buckets; None if its state is in another format.

    `in_buckets` is False for deduplication in older checkpoints, which has the state of Spark's own operator.
    """
    if operator.columns is not None:
        return ViewFormat(operator.columns, lambda tables: (), operator.keys)
    if operator.kind == JoinAsof.kind:
        return BucketFormat(join_columns(operator), lambda tables: _asof_rows(tables, operator))
    if operator.kind == Deduplicate.kind and in_buckets:
        return BucketFormat([*operator.keys, KEPT_AT], lambda tables: _deduplication_rows(tables, operator.keys))
    if operator.held is not None:
        columns = [*operator.keys, OPEN, *operator.held]
        return BucketFormat(columns, lambda tables: _window_rows(tables, operator))
    return None


def join_columns(operator: Operator) -> list[str]:
    """Return the columns of a join's state; keys have the names of the left side."""
    return ["side", *operator.keys, "time", "row"]


def process_columns(operator: Operator) -> list[str]:
    """Return the columns of a process function's state."""
    return [*operator.keys, *(operator.attributes or ()), TIMERS]


def process_keys(state: bytes, reader: BucketReader) -> pa.Table:
    """Return the keys of a process function's bucket: the key as JSON, and its pickled state."""
    tables = reader.tables(state)
    return tables[0] if tables else SCHEMA.empty_table()


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


def _deduplication_rows(tables: Sequence[pa.Table], keys: list[str]) -> Iterator[Row]:
    for row in (row for table in tables for row in table.to_pylist()):
        *values, at = row.values()
        yield {**dict(zip(keys, values, strict=True)), KEPT_AT: time_of(at)}


def _window_rows(tables: Sequence[pa.Table], operator: Operator) -> Iterator[Row]:
    for table in tables:
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


def _asof_rows(tables: Sequence[pa.Table], operator: Operator) -> Iterator[Row]:
    from penstock.spark.lowering.asof_joins import IS_LEFT, LEFT, RIGHT, key_column  # imports pyspark
    from penstock.spark.tasks.internal_columns import EVENT_TIME

    for row in (row for table in tables for row in table.to_pylist()):
        side, value = ("left", LEFT) if row[IS_LEFT] else ("right", RIGHT)
        keys = {name: row[key_column(number)] for number, name in enumerate(operator.keys)}
        yield {"side": side, **keys, "time": row[EVENT_TIME], "row": row[value]}
