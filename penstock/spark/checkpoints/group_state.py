"""State of groups that Spark aggregates, as rows: keys, window, and what each aggregate holds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from penstock.plan.stateful import Top
from penstock.plan.types import Type
from penstock.schema import Field, Schema
from penstock.spark.checkpoints.accumulators import as_plain
from penstock.spark.checkpoints.aggregate_buffers import partials, shown_buffer
from penstock.spark.checkpoints.layout import Operator
from penstock.spark.checkpoints.state_files import StateSchema
from penstock.spark.checkpoints.state_tables import Row
from penstock.spark.hidden import OTHER_WINDOW, PREFIX

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
    """Makes rows of the keys and values of groups.

    Spark's columns of values are called sum, sum, count: only their places tell them apart. A session has its keys and
    its window among the values.
    """

    def __init__(self, operator: Operator, schema: StateSchema, first_us: int) -> None:
        self.operator, self.schema, self.first_us = operator, schema, first_us
        self.session = "session_window" in schema.value.fields
        self.first = schema.value.fields.index("session_window") + 1 if self.session else 0
        kept = schema.value if self.session else schema.key
        self.window = _window(kept)
        given = enumerate(kept.fields[: self.first] if self.session else kept.fields)
        self.given = {at: name for at, name in given if at == self.window or not name.startswith(PREFIX)}
        self.names, self.kinds = schema.value.fields[self.first :], schema.value.parts[self.first :]
        self.merged = self._merged_places()
        self.calls = self._call_places()

    @property
    def columns(self) -> list[str]:
        """The columns of what is shown."""
        keys = [name for at, key in self.given.items() for name in (_BOUNDS if at == self.window else (key,))]
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
            held = self._called(values) if self.calls is not None else self._raw(values)
            yield {**keys, **held}

    def _keys(self, key: list[Any], value: list[Any]) -> Row:
        owner = value if self.session else key
        found: Row = {}
        for at, name in self.given.items():
            if at == self.window:
                found |= {bound: self._time(owner[at][bound.removeprefix("window_")]) for bound in _BOUNDS}
            else:
                found[name] = owner[at]
        return found

    def _time(self, time: Any) -> datetime:
        us = time if isinstance(time, int) else (time - _EPOCH) // timedelta(microseconds=1)
        return _EPOCH + timedelta(microseconds=us + self.first_us)

    # --- results over partial results that are merged ---------------------------------------------

    def _merged_places(self) -> list[tuple[int, bool]] | None:
        """Return where each merged value is, and whether a flag says that it is empty; None if they are others."""
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
                name: None if data is None else as_plain(partials(data, kind))
                for data, (name, kind) in zip(folds, self.operator.folded, strict=True)
            }
            yield {**keys, **shown, **finals[number]}

    def _finals(self, merged: list[list[Any]]) -> list[Row]:
        """Compute results of merged values, by DuckDB as in the native lane; what it cannot is left for Spark."""
        if not merged or not self.operator.finals:
            return [{} for _ in merged]
        import duckdb

        from penstock.plan.portable import native_sql

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

    # --- what Spark aggregates alone ----------------------------------------------------------------

    def _call_places(self) -> list[int] | None:
        """Return where the values of each call begin; None if the calls do not account for all values."""
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
                value = shown_buffer(value, function, kind)
            shown[label] = value
        return shown

    def _raw_names(self) -> list[str]:
        """Return the names that Spark gave, each with a number where it is there before."""
        found: list[str] = []
        for name, kind in zip(self.names, self.kinds, strict=True):
            for one in _flat(name, kind):
                again = sum(known.partition(" ")[0] == one for known in found)
                found.append(f"{one} {again + 1}" if again else one)
        return found

    def _raw(self, values: list[Any]) -> Row:
        if self.operator.kind == Top.kind:
            # Beside them are what they are ordered by and a heap, which say nothing more.
            return {"rows": values[0]}
        flat: list[Any] = []
        for value, kind, name in zip(values, self.kinds, self.names, strict=True):
            if name == "expiresAtMicros":
                flat.append(_EPOCH + timedelta(microseconds=value))
            else:
                flat += [(value or {}).get(one) for one in kind.fields] if kind.name == "struct" else [value]
        return dict(zip(self._raw_names(), flat, strict=True))


def _window(kept: Type) -> int | None:
    """Return where Spark's window is; a key of the user's own may have its name."""
    known = ("session_window", OTHER_WINDOW, "window")
    fields = enumerate(zip(kept.fields, kept.parts, strict=True))
    return next((at for at, (name, part) in fields if name in known and part.fields == ("start", "end")), None)


def _flat(name: str, kind: Type) -> tuple[str, ...]:
    if kind.name == "struct":
        return kind.fields
    return ("kept_until",) if name == "expiresAtMicros" else (name,)
