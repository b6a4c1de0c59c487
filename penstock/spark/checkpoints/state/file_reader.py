"""Reads state from the state store files, without Spark."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from penstock.plan.operators.joins import Join
from penstock.spark.checkpoints.state.aggregates import GroupRows, safe_unpickle, to_plain
from penstock.spark.checkpoints.state.buckets import (
    OPEN,
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
from penstock.spark.checkpoints.state.store_files import StateSchema, read_schema, state_rows
from penstock.spark.checkpoints.state.tables import Row, StateTable, StateVersion, require_keys

_SIDES = ("left", "right")
_JOIN_STORE = "{side}-keyWithIndexToValue"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Pairs = Iterator[tuple[list[Any], list[Any]]]


class FileReader:
    """A StateReader for state in memory ("HDFS-backed"), by its files."""

    def __init__(self, version: StateVersion) -> None:
        self.version, self.operator = version, version.operator

    def read(self, key: str | None = None, limit: int = 100) -> StateTable:
        """Return the rows of a key, or of all keys, up to a limit."""
        keys = self.operator.keys
        if key is not None:
            require_keys(self.operator)
        columns, found = self._found(key, possible_hashes(key, len(keys)) if key is not None else None)
        if not found and key is not None:
            # Its type is one that the text does not show.
            columns, found = self._found(key, None)
        found.sort(key=lambda row: [_order(row.get(name)) for name in (*keys, "window_start", "side", "time", OPEN)])
        return StateTable(self.operator.node, self.version.epoch, columns, found[:limit], len(found) > limit)

    def _found(self, key: str | None, hashes: tuple[int, ...] | None) -> tuple[list[str], list[Row]]:
        columns, rows = self._rows(BucketReader(self.version.runs, hashes, key if hashes else None))
        keys = self.operator.keys
        return columns, [row for row in rows if key is None or _key_as_in_spark(row, keys) == key]

    def _rows(self, reader: BucketReader) -> tuple[list[str], Iterable[Row]]:
        operator = self.operator
        if operator.kind == Join.kind:
            return join_columns(operator), self._join_rows()
        schema = read_schema(self.version.history, self.version.number)
        in_buckets = schema.value.fields[:1] == ("groupState",) and "state" in schema.value.parts[0].fields
        buckets = bucket_format(operator, in_buckets=in_buckets)
        if buckets is not None:
            states = self._states(schema)
            return buckets.columns, (json.loads(to_json(row)) for one in states for row in buckets.rows(one, reader))
        if operator.attributes is not None:
            return process_columns(operator), self._process_rows(schema, reader)
        if operator.running:
            return [*operator.keys, "accumulators"], self._running_rows(schema)
        groups = GroupRows(operator, schema, self.version.first_us)
        return groups.columns, groups.rows(self._pairs(schema))

    def _pairs(self, schema: StateSchema, name: str = "") -> Pairs:
        for store in self.version.stores:
            if "/".join(store.path.split("/")[2:]) == name:
                yield from state_rows(self.version.history, store, self.version.epoch + 1, schema)

    def _states(self, schema: StateSchema) -> Iterator[bytes]:
        for _, value in self._pairs(schema):
            if value[0] is not None and value[0]["state"] is not None:
                yield value[0]["state"]

    def _process_rows(self, schema: StateSchema, reader: BucketReader) -> Iterator[Row]:
        for state in self._states(schema):
            keys, data = (column.to_pylist() for column in process_keys(state, reader).columns)
            yield from (process_row(key, one, self.operator) for key, one in zip(keys, data, strict=True))

    def _running_rows(self, schema: StateSchema) -> Iterator[Row]:
        for key, value in self._pairs(schema):
            accumulators = dict(zip(self.operator.running, safe_unpickle(value[0]["accumulators"]), strict=False))
            yield {**dict(zip(self.operator.keys, key, strict=False)), "accumulators": to_plain(accumulators)}

    def _join_rows(self) -> Iterator[Row]:
        for side in _SIDES:
            name = _JOIN_STORE.format(side=side)
            schema = read_schema(self.version.history, self.version.number, name)
            columns = {field.rpartition("_")[2]: number for number, field in enumerate(schema.value.fields)}
            for key, value in self._pairs(schema, name):
                keys = dict(zip(self.operator.keys, key, strict=False))
                # The stored time of a row is a microsecond later than its own, as Spark counts it.
                # A join without a time bound stores none.
                time = _shifted(value[columns["time"]], self.version.first_us - 1) if "time" in columns else None
                row = value[columns["row"]] if "row" in columns else {}
                yield json.loads(to_json({"side": side, **keys, "time": time, "row": row}))


def _shifted(time: Any, by_us: int) -> datetime | None:
    if time is None:
        return None
    us = time if isinstance(time, int) else (time - _EPOCH) // timedelta(microseconds=1)
    return _EPOCH + timedelta(microseconds=us + by_us)


def _key_as_in_spark(row: Row, keys: list[str]) -> str:
    """Return a row's key as Spark's concat_ws does: without nulls."""
    present = [key for key in keys if row[key] is not None]
    return key_text({key: _text(row[key]) for key in present}, present)


def _text(value: Any) -> str:
    """Return a value as Spark casts it to a string."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime):
        return value.isoformat(sep=" ").removesuffix("+00:00")
    return str(value)


def _order(value: Any) -> tuple[bool, str, Any]:
    """Order values of any types: nulls first, then by type."""
    comparable = isinstance(value, int | float | str | datetime)
    return (
        value is not None,
        "" if isinstance(value, int | float) else type(value).__name__,
        value if comparable else str(value),
    )
