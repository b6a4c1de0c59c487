"""The nodes that keep state, each with the fingerprint that its state belongs to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from penstock.aggregates import Aggregator, state_type
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
from penstock.plan.expressions import aggregate, scalar
from penstock.plan.node import OneInput
from penstock.schema import Field, Schema, parse_type
from penstock.windows import Window

Emit = Literal["final", "updates"]
WINDOW_FIELDS = (Field("window_start", "timestamp", False), Field("window_end", "timestamp", False))


@dataclass(frozen=True, eq=False, kw_only=True)
class Stateful(OneInput):
    """A node with state; it needs rows that are final."""

    stateful = True

    def _check_input(self, keys: tuple[str, ...], *, needs_time: bool) -> None:
        if self.input.updating:
            message = "the rows that come in are updated later"
            raise UpdatingStream(message, hint='use emit="final" on the window before it')
        for name in keys:
            self.input.schema.field(name)
        if needs_time and not self.input.event_time:
            times = [f.name for f in self.input.schema if f.type == "timestamp"]
            message = "no event time was declared before it"
            hint = f'call .event_time(column, max_delay="5s") first; {choices("timestamp columns", times)}'
            raise MissingEventTime(message, hint=hint)


@dataclass(frozen=True, eq=False, kw_only=True)
class Deduplicate(Stateful):
    """The first row of each key; later ones within the span are dropped and counted."""

    kind = "deduplicate"
    sides = ("late",)
    keys: tuple[str, ...]
    within_us: int
    late_to: Sink | None = None

    def _checked(self) -> Schema:
        if not self.keys:
            message = "no key is given"
            raise BadValue(message, hint=choices("columns here", self.input.schema.names))
        self._check_input(self.keys, needs_time=True)
        return self.input.schema

    @property
    def detail(self) -> str:
        """Keys and span."""
        return f"by {', '.join(self.keys)} within {span_text(self.within_us)}"


@dataclass(frozen=True, eq=False, kw_only=True)
class Grouped(Stateful):
    """What aggregate and reduce share: keys, perhaps a window, and when results leave."""

    keys: tuple[str, ...]
    window: Window | None = None
    emit: Emit = "final"
    lateness_us: int = 0
    late_to: Sink | None = None

    @property
    def sides(self) -> tuple[str, ...]:  # type: ignore[override]
        """Only a window can be missed."""
        return ("late",) if self.window else ()

    def _check_group(self) -> tuple[Field, ...]:
        """Check keys and window; return the columns that every result begins with."""
        self._check_input(self.keys, needs_time=self.window is not None)
        if self.window and self.window.kind == "session" and self.emit == "updates":
            message = "a session window has final results only"
            raise BadWindow(message, hint='Spark cannot update sessions; leave out emit="updates"')
        if self.window is None and not self.keys:
            message = "neither a key nor a window is given"
            raise BadWindow(message, hint="call key_by() or window() first")
        keys = tuple(self.input.schema.field(name) for name in self.keys)
        return keys + (WINDOW_FIELDS if self.window else ())

    @property
    def updating(self) -> bool:
        """Without a window a group is never final."""
        return self.window is None or self.emit == "updates"

    @property
    def key(self) -> tuple[str, ...]:
        """The keys, and the window's bounds."""
        if not self.updating:
            return ()
        return self.keys + (("window_start", "window_end") if self.window else ())

    @property
    def event_time(self) -> bool:
        """A final result's time is the last instant of its window, so that windows chain."""
        return not self.updating

    def _group_text(self) -> str:
        parts = [f"by {', '.join(self.keys)}"] if self.keys else []
        if self.window:
            parts.append(str(self.window))
            parts.append(f"emit {self.emit}")
        if self.lateness_us:
            parts.append(f"allowed_lateness {span_text(self.lateness_us)}")
        return ", ".join(parts)


@dataclass(frozen=True, eq=False, kw_only=True)
class Aggregate(Grouped):
    """One row per group: SQL aggregates, and aggregators in Python."""

    kind = "aggregate"
    aggregates: tuple[tuple[str, str | Aggregator], ...]

    def _checked(self) -> Schema:
        group = self._check_group()
        if not self.aggregates:
            message = "no aggregate is given"
            raise BadValue(message, hint='write aggregate(total="sum(amount)")')
        if self.window is None and self.python and len(self.python) < len(self.aggregates):
            message = "SQL aggregates and Python aggregators stand side by side without a window"
            raise AggregateNotAllowed(message, hint="give each its own aggregate(), or add a window")
        return Schema(group + tuple(self._column(name, what) for name, what in self.aggregates))

    def _column(self, name: str, what: str | Aggregator) -> Field:
        where = f"{self.kind} '{name}'"
        if isinstance(what, Aggregator):
            for sql in what.inputs:
                scalar(sql, self.input.schema, node=where)
            state_type(what.state)
            return Field(name, parse_type(what.result))
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
    def detail(self) -> str:
        """Keys, window and function."""
        return f"{self._group_text()}: {getattr(self.fn, '__qualname__', repr(self.fn))}"
