"""The stateless operators, sources and sinks: one frozen class each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.contracts import Sink, Source
from penstock.durations import span_text
from penstock.errors import BadSchema, BadValue, DanglingBranch, MissingEventTime, UpdatingStream, choices
from penstock.plan.operators.node import SINCE_LATER, Node, OneInput
from penstock.plan.sql_expressions.expression import predicate, scalar
from penstock.schema import Field, Schema, bare

Columns = tuple[tuple[str, str], ...]


@dataclass(frozen=True, eq=False, kw_only=True)
class Read(Node):
    """Rows of a source."""

    kind = "read"
    realtime = True
    source: Source

    def _checked(self) -> Schema:
        return self.source.schema

    @property
    def detail(self) -> str:
        """What is read, with its name where the node has another."""
        named = f" '{self.source.name}'" if self.name not in (None, self.source.name) else ""
        return f"{type(self.source).__name__}{named} ({self.schema.ddl})"

    @property
    def default_name(self) -> str:
        """Named after what it reads."""
        return self.name or self.source.name


@dataclass(frozen=True, eq=False, kw_only=True)
class Projection(OneInput):
    """Columns that are computed from each row."""

    native = realtime = True
    columns: Columns

    @property
    def detail(self) -> str:
        """The columns."""
        return _columns_text(self.columns)

    @property
    def row_sql(self) -> tuple[str, ...]:
        """The columns."""
        return tuple(sql for _, sql in self.columns)


@dataclass(frozen=True, eq=False, kw_only=True)
class Select(Projection):
    """Only these columns, in this order."""

    kind = "select"

    def _checked(self) -> Schema:
        if not self.columns:
            message = "no column is selected"
            raise BadValue(message, hint=choices("columns here", self.input.schema.names))
        _keep_key(self, [name for name, sql in self.columns if name == bare(sql)])
        return Schema(_typed(self, self.columns))

    @property
    def carried(self) -> Mapping[str, str]:
        """Those that are only renamed or passed through."""
        return {name: own for name, sql in self.columns if (own := bare(sql)) in self.input.schema.names}


@dataclass(frozen=True, eq=False, kw_only=True)
class WithColumns(Projection):
    """All columns and these, which replace those with the same name."""

    kind = "with_columns"

    def _checked(self) -> Schema:
        if not self.columns:
            message = "no column is given"
            raise BadValue(message, hint='write with_columns(name="expression")')
        new = {field.name: field for field in _typed(self, self.columns)}
        _keep_key(self, [name for name in self.input.schema.names if name not in new])
        kept = tuple(new.pop(field.name, field) for field in self.input.schema)
        return Schema(kept + tuple(new.values()))

    @property
    def carried(self) -> Mapping[str, str]:
        """Those that are not computed."""
        return {name: name for name in self.input.schema.names if name not in dict(self.columns)}


@dataclass(frozen=True, eq=False, kw_only=True)
class Filter(OneInput):
    """Only rows for which the condition holds."""

    kind = "filter"
    native = realtime = keeps_columns = True
    counts_missing_as = "filtered"
    condition: str

    def _checked(self) -> Schema:
        predicate(self.condition, self.input.schema, node=self.label)
        return self.input.schema

    @property
    def detail(self) -> str:
        """The condition."""
        return self.condition

    @property
    def row_sql(self) -> tuple[str, ...]:
        """The condition."""
        return (self.condition,)


@dataclass(frozen=True, eq=False, kw_only=True)
class Drop(OneInput):
    """All columns but these."""

    kind = "drop"
    native = realtime = keeps_columns = True
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
    native = realtime = True
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

    @property
    def carried(self) -> Mapping[str, str]:
        """All, some under new names."""
        return {name: dict(self.names).get(name, name) for name in self.schema.names}


@dataclass(frozen=True, eq=False, kw_only=True)
class Union(Node):
    """The rows of all inputs."""

    kind = "union"
    keeps_columns = True
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
    native = realtime = keeps_columns = True
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
            message = "the stream already has an event time"
            raise BadValue(message, hint="call event_time() once on each path from a source")
        final_only(self)
        # Rows without a time are rejected, so the column is not null.
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

    @property
    def realtime_limits(self) -> tuple[tuple[str, str], ...]:
        """No row is rejected because its time is missing, and no source becomes idle."""
        if self.input.schema.field(self.column).nullable:
            why = f"'{self.column}' may be null, and rows without a time would be dropped uncounted"
            return ((why, f"declare '{self.column} timestamp not null' where it is read"),)
        if self.idle_after_us is not None:
            return (("idle sources are detected between epochs", "leave idle_after out"),)
        return ()


@dataclass(frozen=True, eq=False, kw_only=True)
class Side(OneInput):
    """A side output of a node: late rows as they arrived, or a named output of a function."""

    kind = "side"
    output: str

    def _checked(self) -> Schema:
        known = dict(self._outputs())
        if self.output not in known:
            message = f"{self.input.label} has no output '{self.output}'"
            raise DanglingBranch(message, hint=choices("outputs", known, self.output))
        return known[self.output]

    def _outputs(self) -> tuple[tuple[str, Schema], ...]:
        late = ((side, self.input.side_schema(side)) for side in self.input.sides)
        return (*named_outputs(self.input), *late)

    @property
    def is_late_output(self) -> bool:
        """Whether it has late rows; otherwise it is a named output of a function."""
        return self.output not in dict(named_outputs(self.input))

    @property
    def updating(self) -> bool:
        """Never: the rows of a side output are final."""
        return False

    @property
    def event_time(self) -> bool:
        """Only stateless nodes follow a late row; a row of a function's side output has the time of its input."""
        return not self.is_late_output and self.input.event_time

    @property
    def detail(self) -> str:
        """Which output."""
        return f"{self.output} of {self.input.label}"

    @property
    def side_of(self) -> Node:
        """The node that it is an output of."""
        return self.input

    @property
    def side_name(self) -> str:
        """Which output."""
        return self.output


@dataclass(frozen=True, eq=False, kw_only=True)
class Write(OneInput):
    """An output: rows into a sink; `hidden` columns are for its key and its condition of removal only."""

    kind = "write"
    realtime = True
    sink: Sink
    hidden: tuple[str, ...] = field(default=(), metadata=SINCE_LATER)

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
        rows = Schema(tuple(field for field in self.input.schema if field.name not in self.hidden))
        self.sink.validate(rows, self.input.key)
        return rows

    @property
    def detail(self) -> str:
        """The sink."""
        return type(self.sink).__name__

    @property
    def default_name(self) -> str:
        """Named after what it writes."""
        return self.name or self.sink.name

    @property
    def target(self) -> str:
        """The sink's own words."""
        return self.sink.describe_target()

    @property
    def row_sql(self) -> tuple[str, ...]:
        """The key of a row, and whether it removes that."""
        return tuple(sql for sql in (self.sink.row_key, self.sink.row_removed) if sql is not None)


def named_outputs(node: Node) -> tuple[tuple[str, Schema], ...]:
    """Return the outputs that a node's function names, besides the main one."""
    return node.outputs


def _typed(node: OneInput, columns: Columns) -> tuple[Field, ...]:
    """Check expressions against the node's input and return their columns."""
    found = []
    for name, sql in columns:
        where = node.label if name == bare(sql) else f"{node.label} '{name}'"
        expression = scalar(sql, node.input.schema, node=where)
        found.append(Field(name, expression.type, expression.nullable))
    return tuple(found)


def _keep_key(node: OneInput, kept: list[str]) -> None:
    """Refuse to drop or replace the key that identifies the row that an update replaces."""
    lost = [name for name in node.input.key if node.updating and name not in kept]
    if lost:
        message = f"key column '{lost[0]}' of an updating stream would be lost"
        raise UpdatingStream(message, hint=f"keep {', '.join(node.input.key)} as they are")


def final_only(node: Node) -> None:
    """Refuse rows that are updated later."""
    if node.updating:
        message = "its input rows are updated later"
        hint = 'only select, with_columns, filter, drop, rename and sinks may follow; use emit="final"'
        raise UpdatingStream(message, hint=hint)


def _columns_text(columns: Columns) -> str:
    return ", ".join(name if name == bare(sql) else f"{sql} as {name}" for name, sql in columns)
