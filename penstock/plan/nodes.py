"""The nodes that keep no state: one frozen class per operator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from penstock.contracts import OnError, Sink, Source
from penstock.durations import span_text
from penstock.errors import BadSchema, BadValue, DanglingBranch, MissingEventTime, UpdatingStream, choices
from penstock.plan.expressions import predicate, scalar
from penstock.plan.node import SINCE_LATER, Node, OneInput
from penstock.schema import Field, Schema, bare

Columns = tuple[tuple[str, str], ...]


@dataclass(frozen=True, eq=False, kw_only=True)
class Read(Node):
    """Rows of a source."""

    kind = "read"
    source: Source

    def _checked(self) -> Schema:
        return self.source.schema

    @property
    def detail(self) -> str:
        """What is read."""
        return f"{type(self.source).__name__} ({self.schema.ddl})"


@dataclass(frozen=True, eq=False, kw_only=True)
class Select(OneInput):
    """Only these columns, in this order."""

    kind = "select"
    columns: Columns

    def _checked(self) -> Schema:
        if not self.columns:
            message = "no column is selected"
            raise BadValue(message, hint=choices("columns here", self.input.schema.names))
        _keep_key(self, [name for name, sql in self.columns if name == bare(sql)])
        return Schema(_typed(self, self.columns))

    @property
    def detail(self) -> str:
        """The columns."""
        return _columns_text(self.columns)


@dataclass(frozen=True, eq=False, kw_only=True)
class WithColumns(OneInput):
    """These columns more, or in place of those with the same name."""

    kind = "with_columns"
    columns: Columns

    def _checked(self) -> Schema:
        if not self.columns:
            message = "no column is given"
            raise BadValue(message, hint='write with_columns(name="expression")')
        new = {field.name: field for field in _typed(self, self.columns)}
        _keep_key(self, [name for name in self.input.schema.names if name not in new])
        kept = tuple(new.pop(field.name, field) for field in self.input.schema)
        return Schema(kept + tuple(new.values()))

    @property
    def detail(self) -> str:
        """The columns."""
        return _columns_text(self.columns)


@dataclass(frozen=True, eq=False, kw_only=True)
class Filter(OneInput):
    """Only rows for which the condition holds."""

    kind = "filter"
    condition: str

    def _checked(self) -> Schema:
        predicate(self.condition, self.input.schema, node=self.label)
        return self.input.schema

    @property
    def detail(self) -> str:
        """The condition."""
        return self.condition


@dataclass(frozen=True, eq=False, kw_only=True)
class Drop(OneInput):
    """All columns but these."""

    kind = "drop"
    names: tuple[str, ...]

    def _checked(self) -> Schema:
        for name in self.names:
            self.input.schema.field(name)
        kept = tuple(field for field in self.input.schema if field.name not in self.names)
        if not kept:
            message = "no column would be left"
            raise BadValue(message, hint=choices("columns here", self.input.schema.names))
        _keep_key(self, [field.name for field in kept])
        return Schema(kept)

    @property
    def detail(self) -> str:
        """The names."""
        return ", ".join(self.names)


@dataclass(frozen=True, eq=False, kw_only=True)
class Rename(OneInput):
    """Columns with new names: (new, old)."""

    kind = "rename"
    names: Columns

    def _checked(self) -> Schema:
        new = {self.input.schema.field(old).name: name for name, old in self.names}
        renamed = (Field(new.get(f.name, f.name), f.type, f.nullable) for f in self.input.schema)
        return Schema(tuple(renamed))

    @property
    def key(self) -> tuple[str, ...]:
        """The key, under its new names."""
        new = {old: name for name, old in self.names}
        return tuple(new.get(name, name) for name in self.input.key)

    @property
    def detail(self) -> str:
        """The pairs."""
        return ", ".join(f"{old} as {new}" for new, old in self.names)


@dataclass(frozen=True, eq=False, kw_only=True)
class PythonNode(OneInput):
    """A Python function over rows or batches."""

    fn: Callable[..., Any]
    output: Schema
    using: Callable[[], Any] | None = None
    on_error: OnError | None = None
    deterministic: bool = True

    def _checked(self) -> Schema:
        final_only(self)
        return self.output

    @property
    def functions(self) -> tuple[Callable[..., Any], ...]:
        """The function, and what makes its helper."""
        return (self.fn,) if self.using is None else (self.fn, self.using)

    @property
    def detail(self) -> str:
        """The function's name."""
        return getattr(self.fn, "__qualname__", repr(self.fn))


@dataclass(frozen=True, eq=False, kw_only=True)
class Map(PythonNode):
    """One row in, one row out."""

    kind = "map"


@dataclass(frozen=True, eq=False, kw_only=True)
class MapAsync(PythonNode):
    """One row in, one row out, by calls that wait for something; never the same twice."""

    kind = "map_async"
    deterministic: bool = False
    concurrency: int = 64
    timeout_us: int = 10_000_000
    retries: int = 2
    in_order: bool = True

    def _checked(self) -> Schema:
        for what, number, least in (("concurrency", self.concurrency, 1), ("retries", self.retries, 0)):
            if not isinstance(number, int) or number < least:
                message = f"{what}={number!r} is not a whole number from {least}"
                raise BadValue(message, hint=f"pass {what}={least} or more")
        if not self.timeout_us:
            message = "a call without any time cannot be answered"
            raise BadValue(message, hint='pass timeout="10s" or another span')
        return super()._checked()

    @property
    def detail(self) -> str:
        """The function, and how it is called."""
        order = "in order" if self.in_order else "as they come"
        tries = f"{self.concurrency} at once, timeout {span_text(self.timeout_us)}, retries {self.retries}"
        return f"{super().detail}, {tries}, {order}"


@dataclass(frozen=True, eq=False, kw_only=True)
class FlatMap(PythonNode):
    """One row in, any number out, to the main output or to a named side."""

    kind = "flat_map"
    outputs: tuple[tuple[str, Schema], ...] = ()


@dataclass(frozen=True, eq=False, kw_only=True)
class MapBatches(PythonNode):
    """An Arrow batch in, an Arrow batch out; event time ends here."""

    kind = "map_batches"

    @property
    def event_time(self) -> bool:
        """A batch has no one time."""
        return False


@dataclass(frozen=True, eq=False, kw_only=True)
class Union(Node):
    """The rows of all inputs."""

    kind = "union"
    streams: tuple[Node, ...]

    @property
    def inputs(self) -> tuple[Node, ...]:
        """All inputs."""
        return self.streams

    def _checked(self) -> Schema:
        first, *others = self.streams
        for other in others:
            if other.schema.types != first.schema.types:
                message = "the streams have different columns"
                hint = f"first: {first.schema.ddl}\n  other: {other.schema.ddl}\n  align them with select()"
                raise BadSchema(message, hint=hint)
        if len({node.event_time for node in self.streams}) > 1:
            message = "some of the streams have an event time and others have none"
            raise MissingEventTime(message, hint="call event_time() on each of them, or once after union()")
        final_only(self)
        nullable = (any(n.schema.field(f.name).nullable for n in self.streams) for f in first.schema)
        return Schema(tuple(Field(f.name, f.type, n) for f, n in zip(first.schema, nullable, strict=True)))


@dataclass(frozen=True, eq=False, kw_only=True)
class EventTime(OneInput):
    """Each row has a time; the watermark follows the largest, less the delay.

    After `idle_after_us` without rows it holds up no other event time.
    """

    kind = "event_time"
    column: str
    max_delay_us: int
    idle_after_us: int | None = field(default=None, metadata=SINCE_LATER)

    def _checked(self) -> Schema:
        kind = self.input.schema.field(self.column).type
        if kind != "timestamp":
            message = f"event time '{self.column}' is a {kind}, not a timestamp"
            how = f"to_timestamp({self.column})" if kind == "string" else f"cast({self.column} as timestamp)"
            raise BadSchema(message, hint=f'convert it first: .with_columns({self.column}="{how}")')
        if self.input.event_time:
            message = "the stream has an event time already"
            raise BadValue(message, hint="call event_time() once on each path from a source")
        final_only(self)
        # Rows whose time is null go to the rejected rows, so none is left.
        fields = (Field(f.name, f.type, f.nullable and f.name != self.column) for f in self.input.schema)
        return Schema(tuple(fields))

    @property
    def event_time(self) -> bool:
        """From here on."""
        return True

    @property
    def detail(self) -> str:
        """The column and the delay."""
        idle = f", idle_after {span_text(self.idle_after_us)}" if self.idle_after_us is not None else ""
        return f"{self.column}, max_delay {span_text(self.max_delay_us)}{idle}"


@dataclass(frozen=True, eq=False, kw_only=True)
class Side(OneInput):
    """A further output of a node: late rows as they came in, or a named output of a function."""

    kind = "side"
    output: str

    def _checked(self) -> Schema:
        known = dict(self._outputs())
        if self.output not in known:
            message = f"{self.input.label} has no output '{self.output}'"
            raise DanglingBranch(message, hint=choices("outputs", known, self.output))
        return known[self.output]

    def _outputs(self) -> tuple[tuple[str, Schema], ...]:
        aside = ((side, self.input.side_schema(side)) for side in self.input.sides)
        return (*named_outputs(self.input), *aside)

    @property
    def put_aside(self) -> bool:
        """Whether it is what the node did not take; else it is a named output of a function."""
        return self.output not in dict(named_outputs(self.input))

    @property
    def updating(self) -> bool:
        """Never: what goes aside is final."""
        return False

    @property
    def event_time(self) -> bool:
        """Only stateless nodes follow a late row; a function's side keeps its row's time."""
        return not self.put_aside and self.input.event_time

    @property
    def detail(self) -> str:
        """Which output."""
        return f"{self.output} of {self.input.label}"


@dataclass(frozen=True, eq=False, kw_only=True)
class Write(OneInput):
    """An output: rows into a sink."""

    kind = "write"
    sink: Sink

    def _checked(self) -> Schema:
        if self.input.updating and not self.sink.updates:
            message = f"{type(self.sink).__name__} cannot replace rows, and these rows are updated later"
            takers = 'console, collect, callback, webhook, topic with key=, table with mode="upsert"'
            hint = f'use emit="final", or a sink that takes updates: {takers}'
            raise UpdatingStream(message, hint=hint)
        if self.sink.row_key is not None:
            scalar(self.sink.row_key, self.input.schema, node=f"{self.label} key")
        if self.sink.row_removed is not None:
            predicate(self.sink.row_removed, self.input.schema, node=f"{self.label} remove")
        self.sink.fits(self.input.schema, self.input.key)
        return self.input.schema

    @property
    def detail(self) -> str:
        """The sink."""
        return type(self.sink).__name__


def named_outputs(node: Node) -> tuple[tuple[str, Schema], ...]:
    """Return the outputs that a node's function names, besides the main one."""
    found: tuple[tuple[str, Schema], ...] = getattr(node, "outputs", ())
    return found


def _typed(node: OneInput, columns: Columns) -> tuple[Field, ...]:
    """Check expressions against the node's input and return their columns."""
    found = []
    for name, sql in columns:
        where = node.label if name == bare(sql) else f"{node.label} '{name}'"
        expression = scalar(sql, node.input.schema, node=where)
        found.append(Field(name, expression.type, expression.nullable))
    return tuple(found)


def _keep_key(node: OneInput, kept: list[str]) -> None:
    """Refuse to lose or compute anew the key that tells which row an update replaces."""
    lost = [name for name in node.input.key if node.updating and name not in kept]
    if lost:
        message = f"key column '{lost[0]}' of an updating stream would be lost"
        raise UpdatingStream(message, hint=f"keep {', '.join(node.input.key)} as they are")


def final_only(node: Node) -> None:
    """Refuse rows that are updated later."""
    if node.updating:
        message = "the rows that come in are updated later"
        hint = 'only select, with_columns, filter, drop, rename and sinks may follow; use emit="final"'
        raise UpdatingStream(message, hint=hint)


def _columns_text(columns: Columns) -> str:
    return ", ".join(name if name == bare(sql) else f"{sql} as {name}" for name, sql in columns)
