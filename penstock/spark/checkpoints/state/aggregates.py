"""State of aggregates, decoded to rows: keys, window, and the value of each aggregate.

Spark's buffers of some aggregates are bytes: lists, sets, counted values and digests. So are the accumulators of Python
aggregators.
"""

from __future__ import annotations

import io
import json
import pickle
import struct
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from penstock.plan.operators.grouped import Top
from penstock.plan.sql_expressions.types import Type, array, read
from penstock.plan.sql_expressions.types import struct as struct_of
from penstock.schema import Field, Schema
from penstock.spark.checkpoints.layout import Operator
from penstock.spark.checkpoints.state.store_files import StateSchema
from penstock.spark.checkpoints.state.tables import Row
from penstock.spark.checkpoints.state.unsafe_rows import decode_row
from penstock.spark.tasks.internal_columns import OTHER_WINDOW, PREFIX

_SAFE = {
    "builtins": {"set", "frozenset", "complex", "bytearray"},
    "datetime": {"datetime", "date", "time", "timedelta", "timezone"},
    "decimal": {"Decimal"},
    "collections": {"OrderedDict", "Counter", "deque"},
}


def to_plain(value: Any) -> Any:
    """Return a value with JSON's types only; values that JSON has no type for become text."""
    return json.loads(json.dumps(value, default=str))


def safe_unpickle(data: bytes) -> list[Any]:
    """Return pickled accumulators; if they have objects of the job's own classes, only the name of the class."""
    try:
        found: list[Any] = _SafeUnpickler(io.BytesIO(data)).load()
    except pickle.UnpicklingError as error:
        return [f"({error})"]
    return found


class _SafeUnpickler(pickle.Unpickler):
    """Allows plain values only: a checkpoint may come from anywhere, and pickles can run code."""

    def find_class(self, module: str, name: str) -> Any:
        """Return a class that only holds data."""
        if name in _SAFE.get(module, ()):
            return super().find_class(module, name)
        message = f"a {module}.{name}"
        raise pickle.UnpicklingError(message)


LISTS = ("collect_list", "collect_set", "array_agg")


COUNTED = ("percentile", "percentile_cont", "percentile_disc", "median", "mode")


DIGESTS = ("percentile_approx", "approx_percentile")


_BIGINT = Type("bigint")


def decode_buffer(data: bytes, function: str, kind: str) -> Any:
    """Return the content of a buffer; the bytes themselves if the function or its type is unknown."""
    if function in LISTS and kind:
        found = decode_row(data, [array(read(kind))])[0]
        return sorted(found, key=_order) if function == "collect_set" else found
    if function in COUNTED and kind:
        return _counted(data, read(kind))
    return _digest(data) if function in DIGESTS else data


def partials(data: bytes, kind: str) -> list[Any]:
    """Return the partial accumulators of a window, oldest first; only the job's own code could merge them."""
    element = struct_of([("at", _BIGINT), ("acc", read(kind))])
    found = decode_row(data, [array(element)])[0]
    return [one["acc"] for one in sorted(found, key=lambda one: one["at"] or 0)]


def _counted(data: bytes, kind: Type) -> dict[str, int]:
    """Return values and their counts, stored as rows of both, each with its length before it, and -1 at the end."""
    found, at = [], 0
    while (size := struct.unpack_from(">i", data, at)[0]) >= 0:
        value, count = decode_row(data[at + 4 : at + 4 + size], [kind, _BIGINT])
        found.append((value, count))
        at += 4 + size
    return {str(value): count for value, count in sorted(found, key=lambda pair: _order(pair[0]))}


def _digest(data: bytes) -> dict[str, Any]:
    """Return the number of rows that a digest summarises, and its sampled values."""
    rows, samples = struct.unpack_from(">qi", data, 12)
    return {"rows": rows, "values": [struct.unpack_from(">d", data, 24 + 24 * number)[0] for number in range(samples)]}


def _order(value: Any) -> tuple[bool, Any]:
    return value is not None, str(value) if isinstance(value, dict | list) else value


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


_BOUNDS = ("window_start", "window_end")


_EMPTY = "isEmpty"


_TWO = ("min_by", "max_by", "avg", "mean", "try_avg")


_MEANS = ("avg", "mean", "try_avg")


_ONE = frozenset(
    [
        "sum",
        "try_sum",
        "count",
        "count_if",
        "min",
        "max",
        "bool_and",
        "bool_or",
        "every",
        "some",
        "any",
        "collect_list",
        "collect_set",
        "array_agg",
        "percentile",
        "percentile_cont",
        "percentile_disc",
        "median",
        "mode",
        "percentile_approx",
        "approx_percentile",
        "bit_and",
        "bit_or",
        "bit_xor",
    ]
)


class GroupRows:
    """Decodes the keys and values of groups to rows.

    Spark names the columns of values sum, sum, count: only their positions are unique. A session has its keys and its
    window among the values.
    """

    def __init__(self, operator: Operator, schema: StateSchema, first_us: int) -> None:
        self.operator, self.schema, self.first_us = operator, schema, first_us
        self.session = "session_window" in schema.value.fields
        self.first = schema.value.fields.index("session_window") + 1 if self.session else 0
        owner = schema.value if self.session else schema.key
        self.window = _window(owner)
        fields = enumerate(owner.fields[: self.first] if self.session else owner.fields)
        self.keys = {at: name for at, name in fields if at == self.window or not name.startswith(PREFIX)}
        self.names, self.kinds = schema.value.fields[self.first :], schema.value.parts[self.first :]
        self.merged = self._merged_positions()
        self.calls = self._call_positions()

    @property
    def columns(self) -> list[str]:
        """The columns of the rows."""
        keys = [name for at, key in self.keys.items() for name in (_BOUNDS if at == self.window else (key,))]
        if self.merged is not None:
            return [*keys, *(name for name, _ in self.operator.folded), *(name for name, _ in self.operator.finals)]
        if self.operator.kind == Top.kind:
            return [*keys, "rows"]
        if self.calls is not None:
            return [*keys, *(label for label, *_ in self.operator.calls)]
        return [*keys, *self._raw_names()]

    def rows(self, pairs: Iterable[tuple[list[Any], list[Any]]]) -> Iterator[Row]:
        """Yield a row of each group."""
        found = [(self._keys(key, value), value[self.first :]) for key, value in pairs]
        if self.merged is not None:
            yield from self._results(found)
            return
        for keys, values in found:
            aggregates = self._called(values) if self.calls is not None else self._raw(values)
            yield {**keys, **aggregates}

    def _keys(self, key: list[Any], value: list[Any]) -> Row:
        owner = value if self.session else key
        found: Row = {}
        for at, name in self.keys.items():
            if at == self.window:
                found |= {bound: self._time(owner[at][bound.removeprefix("window_")]) for bound in _BOUNDS}
            else:
                found[name] = owner[at]
        return found

    def _time(self, time: Any) -> datetime:
        us = time if isinstance(time, int) else (time - _EPOCH) // timedelta(microseconds=1)
        return _EPOCH + timedelta(microseconds=us + self.first_us)

    # --- two-phase aggregates: results over merged partial results --------------------------------

    def _merged_positions(self) -> list[tuple[int, bool]] | None:
        """Return the position of each merged value, and whether a flag for empty follows; None in another format."""
        found, at = [], 0
        for _, sql in self.operator.merges:
            flagged = at + 1 < len(self.names) and self.names[at + 1] == _EMPTY
            found.append((at, flagged))
            at += 2 if flagged or sql.partition("(")[0].lower() in ("min_by", "max_by") else 1
        known = self.operator.merges or self.operator.folded
        return found if known and at + len(self.operator.folded) == len(self.names) else None

    def _results(self, found: list[tuple[Row, list[Any]]]) -> Iterator[Row]:
        merged = [
            [None if flagged and values[at + 1] else values[at] for at, flagged in self.merged or ()]
            for _, values in found
        ]
        finals = self._finals(merged)
        for number, (keys, values) in enumerate(found):
            folds = values[len(values) - len(self.operator.folded) :] if self.operator.folded else []
            shown = {
                name: None if data is None else to_plain(partials(data, kind))
                for data, (name, kind) in zip(folds, self.operator.folded, strict=True)
            }
            yield {**keys, **shown, **finals[number]}

    def _finals(self, merged: list[list[Any]]) -> list[Row]:
        """Compute results of merged values with DuckDB, as in the native lane; raises if only Spark can."""
        if not merged or not self.operator.finals:
            return [{} for _ in merged]
        import duckdb

        from penstock.plan.translation import native_sql

        kinds = [self.kinds[at] for at, _ in self.merged or ()]
        names = [name for name, _ in self.operator.merges]
        schema = Schema(tuple(Field(name, str(kind)) for name, kind in zip(names, kinds, strict=True)))
        listed = ", ".join(f'{native_sql(sql, schema)} AS "{name}"' for name, sql in self.operator.finals)
        rows = pa.Table.from_pylist([dict(zip(names, one, strict=True)) for one in merged], schema=schema.arrow)
        with duckdb.connect() as database:
            database.execute("SET TimeZone = 'UTC'")
            database.register("merged", rows)
            made: list[Row] = database.sql(f"SELECT {listed} FROM merged").to_arrow_table().to_pylist()
        return made

    # --- aggregates that Spark computes in one phase ----------------------------------------------

    def _call_positions(self) -> list[int] | None:
        """Return the position of the first value of each call; None if the calls do not account for all values."""
        found, at = [], 0
        for _, function, _ in self.operator.calls:
            if function not in _TWO and function not in _ONE:
                return None
            found.append(at)
            at += 2 if function in _TWO else 1
            if at < len(self.names) and self.names[at] == _EMPTY:
                at += 1
        return found if found and at == len(self.names) else None

    def _called(self, values: list[Any]) -> Row:
        shown: Row = {}
        for (label, function, kind), at in zip(self.operator.calls, self.calls or (), strict=True):
            value = values[at]
            if function in _MEANS:
                value = value / values[at + 1] if values[at + 1] else None
            elif isinstance(value, bytes):
                value = decode_buffer(value, function, kind)
            shown[label] = value
        return shown

    def _raw_names(self) -> list[str]:
        """Return Spark's names, with a number added to repeated ones."""
        found: list[str] = []
        for name, kind in zip(self.names, self.kinds, strict=True):
            for one in _flat(name, kind):
                again = sum(known.partition(" ")[0] == one for known in found)
                found.append(f"{one} {again + 1}" if again else one)
        return found

    def _raw(self, values: list[Any]) -> Row:
        if self.operator.kind == Top.kind:
            # The other values are the order of the rows and a heap of them.
            return {"rows": values[0]}
        flat: list[Any] = []
        for value, kind, name in zip(values, self.kinds, self.names, strict=True):
            if name == "expiresAtMicros":
                flat.append(_EPOCH + timedelta(microseconds=value))
            else:
                flat += [(value or {}).get(one) for one in kind.fields] if kind.name == "struct" else [value]
        return dict(zip(self._raw_names(), flat, strict=True))


def _window(owner: Type) -> int | None:
    """Return the position of Spark's window; a key column may have the same name."""
    known = ("session_window", OTHER_WINDOW, "window")
    fields = enumerate(zip(owner.fields, owner.parts, strict=True))
    return next((at for at, (name, part) in fields if name in known and part.fields == ("start", "end")), None)


def _flat(name: str, kind: Type) -> tuple[str, ...]:
    if kind.name == "struct":
        return kind.fields
    return ("kept_until",) if name == "expiresAtMicros" else (name,)
