"""A job's state as rows in the user's words, read from the files themselves, without Spark."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from penstock.errors import BadValue
from penstock.keyed.duplicates import KEPT_AT
from penstock.keyed.store import Store as Bucket
from penstock.plan.joins import Join, JoinAsof
from penstock.plan.stateful import Deduplicate
from penstock.spark.checkpoints.accumulators import as_plain, pickled
from penstock.spark.checkpoints.bucket_state import as_json, name_of
from penstock.spark.checkpoints.duplicate_state import duplicate_rows
from penstock.spark.checkpoints.group_state import GroupRows
from penstock.spark.checkpoints.history import History
from penstock.spark.checkpoints.keyed_state import columns_of, key_row
from penstock.spark.checkpoints.state_files import StateSchema, read_schema, state_rows
from penstock.spark.checkpoints.state_tables import Place, Row, StateTable
from penstock.spark.checkpoints.window_state import OPEN, window_rows

_SIDES = ("left", "right")
_STORE = "{side}-keyWithIndexToValue"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Pairs = Iterator[tuple[list[Any], list[Any]]]


class Direct:
    """Reads one operator's state after one epoch."""

    def __init__(self, history: History, place: Place, epoch: int, first_us: int) -> None:
        self.history, self.place, self.epoch = history, place, epoch
        # Behind a join, Spark keeps windows so much later than they are.
        self.first_us = first_us - place.operator.lag_us
        self.operator = place.operator

    def table(self, key: str | None, limit: int) -> StateTable:
        """Return the rows of a key, or the first of all."""
        columns, rows = self._rows()
        keys = self.operator.keys
        if key is not None and not keys:
            message = f"the state of '{self.operator.node}' has no key"
            raise BadValue(message, hint="leave out --key")
        found = [row for row in rows if key is None or _named(row, keys) == key]
        found.sort(key=lambda row: [_order(row.get(name)) for name in (*keys, "window_start", "side", "time", OPEN)])
        return StateTable(self.operator.node, self.epoch, columns, found[:limit], len(found) > limit)

    def _rows(self) -> tuple[list[str], Iterable[Row]]:
        operator = self.operator
        if operator.kind == Join.kind:
            return ["side", *operator.keys, "time", "row"], self._joined()
        schema = read_schema(self.history, self.place.number)
        in_buckets = schema.value.fields[:1] == ("groupState",) and "state" in schema.value.parts[0].fields
        if operator.kind == JoinAsof.kind:
            return ["side", *operator.keys, "time", "row"], self._unpacked(schema, self._asof)
        if operator.kind == Deduplicate.kind and in_buckets:
            unpack = lambda state: duplicate_rows(state, operator.keys)  # noqa: E731
            return [*operator.keys, KEPT_AT], self._unpacked(schema, unpack)
        if operator.attributes is not None:
            return columns_of(operator), self._processed(schema)
        if operator.held is not None:
            columns = [*operator.keys, OPEN, *operator.held]
            return columns, self._unpacked(schema, lambda state: window_rows(state, operator))
        if operator.running:
            return [*operator.keys, "accumulators"], self._running(schema)
        groups = GroupRows(operator, schema, self.first_us)
        return groups.columns, groups.rows(self._pairs(schema))

    def _pairs(self, schema: StateSchema, name: str = "") -> Pairs:
        for store in self.history.stores:
            if store.operator == self.place.number and "/".join(store.path.split("/")[2:]) == name:
                yield from state_rows(self.history, store, self.epoch + 1, schema)

    def _states(self, schema: StateSchema) -> Iterator[bytes]:
        for _, value in self._pairs(schema):
            if value[0] is not None and value[0]["state"] is not None:
                yield value[0]["state"]

    def _unpacked(self, schema: StateSchema, unpack: Callable[[bytes], Iterable[Row]]) -> Iterator[Row]:
        for state in self._states(schema):
            yield from (json.loads(as_json(row)) for row in unpack(state))

    def _asof(self, state: bytes) -> Iterator[Row]:
        from penstock.spark.checkpoints.join_state import asof_rows  # an as-of join's columns are Spark's names

        yield from asof_rows(state, self.operator)

    def _processed(self, schema: StateSchema) -> Iterator[Row]:
        for state in self._states(schema):
            kept = Bucket(state).batch
            for key, data in zip(kept.column(0).to_pylist(), kept.column(1).to_pylist(), strict=True):
                yield key_row({"key": key, "data": data}, self.operator)

    def _running(self, schema: StateSchema) -> Iterator[Row]:
        for key, value in self._pairs(schema):
            held = pickled(value[0]["accumulators"])
            named = dict(zip(self.operator.running, held, strict=False))
            yield {**dict(zip(self.operator.keys, key, strict=False)), "accumulators": as_plain(named)}

    def _joined(self) -> Iterator[Row]:
        for side in _SIDES:
            name = _STORE.format(side=side)
            schema = read_schema(self.history, self.place.number, name)
            place = {field.rpartition("_")[2]: number for number, field in enumerate(schema.value.fields)}
            for key, value in self._pairs(schema, name):
                named = dict(zip(self.operator.keys, key, strict=False))
                # A row is kept with a time that is a microsecond later than its own, as Spark counts it.
                # A join without a bound takes rows that have none.
                time = _shifted(value[place["time"]], self.first_us - 1) if "time" in place else None
                row = value[place["row"]] if "row" in place else {}
                yield json.loads(as_json({"side": side, **named, "time": time, "row": row}))


def _shifted(time: Any, by_us: int) -> datetime | None:
    if time is None:
        return None
    us = time if isinstance(time, int) else (time - _EPOCH) // timedelta(microseconds=1)
    return _EPOCH + timedelta(microseconds=us + by_us)


def _named(row: Row, keys: list[str]) -> str:
    return name_of(
        {name: _text(row[name]) for name in keys if row[name] is not None}, [k for k in keys if row[k] is not None]
    )


def _text(value: Any) -> str:
    """Return a key as Spark writes it as text."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime):
        return value.isoformat(sep=" ").removesuffix("+00:00")
    return str(value)


def _order(value: Any) -> tuple[bool, str, Any]:
    """Order values of any types: nulls first, then by type."""
    plain = isinstance(value, int | float | str | datetime)
    return (
        value is not None,
        "" if isinstance(value, int | float) else type(value).__name__,
        value if plain else str(value),
    )
