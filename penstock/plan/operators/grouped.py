"""The operators over groups of rows: aggregate, reduce, top; and `Stateful`, the base class of all that keep state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from penstock.aggregates import Aggregator, result_type
from penstock.contracts import Sink
from penstock.durations import span_text
from penstock.errors import (
    AggregateNotAllowed,
    BadValue,
    BadWindow,
    MissingEventTime,
    UpdatingStream,
    choices,
)
from penstock.plan.operators.node import OneInput
from penstock.plan.sql_expressions.expression import aggregate, scalar
from penstock.schema import Field, Schema
from penstock.windows import Window

# When results are emitted: once they are final, at every change, or at most once in so many microseconds.
Emit = Literal["final", "updates"] | int


WINDOW_TYPES = {"window_start": "timestamp", "window_end": "timestamp", "window_number": "bigint"}


@dataclass(frozen=True, eq=False, kw_only=True)
class Stateful(OneInput):
    """A node with state; it needs rows that are final."""

    stateful = True

    def _check_input(self, keys: tuple[str, ...], *, needs_time: bool) -> None:
        if self.input.updating:
            message = "its input rows are updated later"
            raise UpdatingStream(message, hint='use emit="final" on the window upstream')
        for name in keys:
            _refuse_map(self.input.schema.field(name))
        if needs_time and not self.input.event_time:
            times = [f.name for f in self.input.schema if f.type == "timestamp"]
            message = "no event time is declared upstream"
            hint = f'call .event_time(column, max_delay="5s") first; {choices("timestamp columns", times)}'
            raise MissingEventTime(message, hint=hint)


@dataclass(frozen=True, eq=False, kw_only=True)
class Grouped(Stateful):
    """The base of aggregate, reduce and top: keys, perhaps a window, and when results are emitted."""

    keys: tuple[str, ...]
    window: Window | None = None
    emit: Emit = "final"
    lateness_us: int = 0
    late_to: Sink | None = None

    @property
    def sides(self) -> tuple[str, ...]:  # type: ignore[override]
        """Only for a window in event time can rows be late."""
        return ("late",) if self.window and self.window.by_event_time else ()

    @property
    def bucketed(self) -> bool:  # type: ignore[override]
        """Whether Spark has no such window of its own, so that buckets of keys hold its state."""
        if self.window is None:
            return False
        cut = self.window.kind == "count" or self.window.max_us is not None
        return cut or self.is_processing_time

    @property
    def is_processing_time(self) -> bool:
        """Whether its results depend on processing time: on when an epoch ran."""
        return self.window is not None and (self.window.clock == "processing" or isinstance(self.emit, int))

    @property
    def overlaps(self) -> bool:
        """Whether a row that is not late may belong to windows that have ended."""
        return self.window is not None and self.window.kind == "sliding" and bool(self.sides)

    def _check_group(self) -> tuple[Field, ...]:
        """Check keys and window; return the first columns of every result."""
        self._check_input(self.keys, needs_time=self.window is not None and self.window.by_event_time)
        if self.window and self.emit != "final":
            self._check_updates(self.window)
        if self.window is None and not self.keys:
            message = "neither a key nor a window is given"
            raise BadWindow(message, hint="call key_by() or window() first")
        keys = tuple(self.input.schema.field(name) for name in self.keys)
        self._check_keys()
        return keys + tuple(Field(name, WINDOW_TYPES[name], False) for name in self.window_columns)

    def _check_keys(self) -> None:
        """Refuse keys with the names of window columns, or of one another."""
        if taken := [name for name in self.window_columns if name in self.keys]:
            message = f"the key '{taken[0]}' has the name of a column of the window's results"
            raise BadWindow(
                message, hint=f'rename it upstream: .rename(earlier_{taken[0].removeprefix("window_")}="{taken[0]}")'
            )
        found: dict[str, str] = {}
        for name in (*self.keys, *self.window_columns) if self.bucketed else ():
            if (other := found.setdefault(name.casefold(), name)) != name:
                message = f"'{other}' and '{name}' differ only in case, and {self.window} ignores case"
                raise BadWindow(message, hint=f'rename one upstream: .rename(other="{name}")')

    def _check_updates(self, window: Window) -> None:
        """Refuse updates of windows whose bounds change: an update could not identify the row it replaces."""
        if window.kind == "session":
            message = "a session window has final results only"
            raise BadWindow(message, hint="a session's bounds change while it grows; leave out emit=")
        if window.kind == "count":
            message = "a count window has final results only"
            raise BadWindow(message, hint="leave out emit=, or make n smaller")

    @property
    def window_columns(self) -> tuple[str, ...]:
        """The columns that identify a window."""
        return self.window.columns if self.window else ()

    @property
    def updating(self) -> bool:
        """Without a window a group is never final."""
        return self.window is None or self.emit != "final"

    @property
    def waits(self) -> bool:
        """Final results wait for the end of their window."""
        return self.event_time

    @property
    def key(self) -> tuple[str, ...]:
        """The keys, and the columns of the window."""
        return self.keys + self.window_columns if self.updating else ()

    @property
    def event_time(self) -> bool:
        """A final result's time is the last instant of its window, so that windows chain; updates have none."""
        return not self.updating and self.window is not None and self.window.by_event_time

    @property
    def kept(self) -> dict[str, str]:
        """Keys, window and when results leave."""
        parts = {"keys": keys_text(self, self.keys), "window": str(self.window or "none"), "emit": str(self.emit)}
        return {**parts, "allowed_lateness": span_text(self.lateness_us)}

    @property
    def group_columns(self) -> tuple[str, ...]:
        """The keys and the window."""
        return self.keys + self.window_columns

    @property
    def uses_event_time(self) -> bool:
        """Windows of event time do."""
        return self.window is not None and self.window.by_event_time

    @property
    def time_span_us(self) -> int:
        """The length of the window."""
        if self.window is None or not self.window.by_event_time or self.window.kind == "global":
            return 0
        return self.window.size_us

    @property
    def state_keys(self) -> tuple[str, ...]:
        """The keys."""
        return self.keys

    @property
    def state_bound(self) -> str | None:
        """The end of the window; without one a key stays."""
        if self.window is None:
            return None
        if self.window.kind == "count":
            return "the count: a window goes when it is full, and one of each key stays open"
        clock = "the watermark" if self.sides else "processing time"
        return f"{clock}: a window goes when it has ended"

    def _group_text(self) -> str:
        parts = [f"by {', '.join(self.keys)}"] if self.keys else []
        if self.window:
            parts.append(str(self.window))
            parts.append(f"emit {self.emit if isinstance(self.emit, str) else f'every {span_text(self.emit)}'}")
        if self.lateness_us:
            parts.append(f"allowed_lateness {span_text(self.lateness_us)}")
        return ", ".join(parts)


@dataclass(frozen=True, eq=False, kw_only=True)
class Aggregate(Grouped):
    """One row per group: SQL aggregates, and aggregators in Python."""

    kind = "aggregate"
    realtime = True
    aggregates: tuple[tuple[str, str | Aggregator], ...]

    def _checked(self) -> Schema:
        group = self._check_group()
        if not self.aggregates:
            message = "no aggregate is given"
            raise BadValue(message, hint='write aggregate(total="sum(amount)")')
        if self.window is None and self.python and len(self.python) < len(self.aggregates):
            message = "SQL aggregates and Python aggregators cannot be mixed without a window"
            raise AggregateNotAllowed(message, hint="give each its own aggregate(), or add a window")
        self._check_held()
        return Schema(group + tuple(self._column(name, what) for name, what in self.aggregates))

    def _check_held(self) -> None:
        """Refuse aggregates that only Spark's own windows support."""
        from penstock.plan.operators.two_phase_aggregates import refusal  # it is made of these nodes

        why = refusal(self) if self.bucketed else None
        if why is not None:
            message = f"{self.window} with emit {self.emit} does not support it: {why}"
            hint = "use count, sum, avg, min, max, min_by, max_by or bool_and, or an Aggregator in Python"
            raise AggregateNotAllowed(message, hint=hint)

    def _column(self, name: str, what: str | Aggregator) -> Field:
        where = f"{self.kind} '{name}'"
        if isinstance(what, Aggregator):
            for sql in what.inputs:
                scalar(sql, self.input.schema, node=where)
            return Field(name, result_type(what, where))
        expression = aggregate(what, self.input.schema, keys=self.keys, node=where)
        return Field(name, expression.type, expression.nullable)

    @property
    def python(self) -> dict[str, Aggregator]:
        """The aggregators in Python, by column."""
        return {name: what for name, what in self.aggregates if isinstance(what, Aggregator)}

    @property
    def functions(self) -> tuple[Callable[..., Any], ...]:
        """The aggregators' steps."""
        return tuple(aggregator.add for aggregator in self.python.values())

    @property
    def classes(self) -> tuple[type, ...]:
        """The aggregators'."""
        return tuple(map(type, self.python.values()))

    @property
    def aggregate_sql(self) -> tuple[str, ...]:
        """The aggregates that are SQL."""
        return tuple(what for _, what in self.aggregates if isinstance(what, str))

    @property
    def realtime_limits(self) -> tuple[tuple[str, str], ...]:
        """Nothing ends a window."""
        if self.updating:
            return ()
        return (("a final window waits for the watermark", 'use window(..., emit="updates") and topic(..., key=...)'),)

    @property
    def detail(self) -> str:
        """Keys, window and aggregates."""
        parts = (
            f"{what if isinstance(what, str) else type(what).__name__} as {name}" for name, what in self.aggregates
        )
        return f"{self._group_text()}: {', '.join(parts)}"


@dataclass(frozen=True, eq=False, kw_only=True)
class Reduce(Grouped):
    """One row per group, made of two rows at a time."""

    kind = "reduce"
    fn: Callable[..., Any]

    def _checked(self) -> Schema:
        group = self._check_group()
        names = {field.name for field in group}
        return Schema(group + tuple(f for f in self.input.schema if f.name not in names))

    @property
    def functions(self) -> tuple[Callable[..., Any], ...]:
        """The function."""
        return (self.fn,)

    @property
    def kept(self) -> dict[str, str]:
        """Whole rows."""
        return {**super().kept, "rows": self.input.schema.ddl}

    @property
    def detail(self) -> str:
        """Keys, window and function."""
        return f"{self._group_text()}: {getattr(self.fn, '__qualname__', repr(self.fn))}"


@dataclass(frozen=True, eq=False, kw_only=True)
class Top(Grouped):
    """The rows of each group with the largest values, whole, each with its rank."""

    kind = "top"
    n: int
    by: str

    def _checked(self) -> Schema:
        group = self._check_group()
        if not isinstance(self.n, int) or isinstance(self.n, bool) or self.n < 1:
            message = f"n={self.n!r} is not a number of rows"
            raise BadValue(message, hint="pass a whole number from 1")
        if "rank" in self.input.schema.names:
            message = "the rows have a column 'rank' already"
            raise BadValue(message, hint='rename it first: .rename(position="rank")')
        by = scalar(self.by, self.input.schema, node=self.label)
        if not is_ordered(by.type):
            message = f'"{self.by}" is {by.type}, which has no order'
            raise BadValue(message, hint="rank by a number, a text or a time")
        names = {field.name for field in group}
        rest = tuple(f for f in self.input.schema if f.name not in names)
        return Schema((*group, *rest, Field("rank", "int", False)))

    @property
    def key(self) -> tuple[str, ...]:
        """The group and the rank: a later row with the same rank replaces an earlier one."""
        return (*super().key, "rank") if self.updating else ()

    @property
    def row_sql(self) -> tuple[str, ...]:
        """What is ranked."""
        return (self.by,)

    @property
    def group_columns(self) -> tuple[str, ...]:
        """The group and the rank."""
        return (*super().group_columns, "rank")

    @property
    def kept(self) -> dict[str, str]:
        """Whole rows."""
        return {**super().kept, "rows": self.input.schema.ddl, "top": f"{self.n} by {self.by}"}

    @property
    def detail(self) -> str:
        """Keys, window and what is ranked."""
        return f"{self._group_text()}: {self.n} by {self.by}"


def keys_text(node: OneInput, keys: tuple[str, ...]) -> str:
    """Return keys with their types, as fingerprints have them."""
    types = node.input.schema.types
    return ", ".join(f"{key} {types[key]}" for key in keys) or "none"


def is_ordered(kind: str) -> bool:
    """Return whether values of a type can be sorted.

    >>> is_ordered("array<int>"), is_ordered("map<string,int>")
    (True, False)
    """
    return "map<" not in kind and "variant" not in kind


def _refuse_map(key: Field) -> None:
    """Refuse a key that cannot be compared."""
    if "map<" in key.type:
        message = f"the key '{key.name}' is {key.type}, and maps cannot be compared"
        raise BadValue(
            message, hint=f"use one value of it: key_by({key.name}_of_x=\"{key.name}['x']\"), or map_entries(...)"
        )
