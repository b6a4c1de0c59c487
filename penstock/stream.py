"""Streams: a thin fluent layer over the plan; each call adds one node and changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from penstock import argument_checks as checks
from penstock.aggregates import Aggregator
from penstock.argument_checks import On, Within, joined, joined_asof
from penstock.contracts import OnError, Sink
from penstock.durations import Span, micros
from penstock.errors import BadFunction, BadValue, PipelineError, choices
from penstock.plan.operators import deduplication, grouped, python_functions, stateless
from penstock.plan.operators.joins import How
from penstock.plan.operators.node import Node
from penstock.plan.operators.process import KeyedProcess
from penstock.plan.operators.split import branches
from penstock.plan.sql_expressions.expression import scalar
from penstock.process import Process
from penstock.schema import Schema, Shape, bare, quoted
from penstock.signatures import output_schema
from penstock.tables import Table
from penstock.windows import Window

Row = dict[str, Any]
Names = str | Sequence[str]
_WINDOWS = "tumbling(), sliding(), session(), count_window(), global_window()"
Emit = Literal["final", "updates"] | Span


@dataclass(frozen=True)
class Output:
    """A stream that ends in a sink: an argument of `Pipeline`."""

    node: stateless.Write

    def named(self, name: str) -> Output:
        """Name the output; counts and the sink's ledger use this name."""
        return Output(replace(self.node, name=_name(name)))


@dataclass(frozen=True)
class _Flow:
    node: Node

    @property
    def schema(self) -> Schema:
        """The columns of every row."""
        return self.node.schema

    @property
    def name(self) -> str:
        """The node's name, or its kind."""
        source = getattr(self.node, "source", None)
        return self.node.name or (source.name if source else self.node.kind)


class Stream(_Flow):
    """An unbounded stream of rows. Immutable: a branch is a variable used twice."""

    def select(self, *columns: str | Mapping[str, str], **named: str) -> Stream:
        """Keep only these columns: names, or SQL expressions as `name="expression"`.

        >>> import penstock as ps
        >>> items = ps.from_items([{"a": 1}], "a bigint")
        >>> items.select("a", double="a * 2").schema
        Schema('a bigint, double bigint')
        """
        pairs = [_selected(column, self.schema) for column in columns if isinstance(column, str)]
        return Stream(stateless.Select(input=self.node, columns=(*pairs, *_named(columns, named))))

    def with_columns(self, *columns: Mapping[str, str], **named: str) -> Stream:
        """Add columns, or replace those of the same name."""
        return Stream(stateless.WithColumns(input=self.node, columns=_named(columns, named)))

    def filter(self, condition: str) -> Stream:
        """Keep the rows for which the condition holds; the others are counted as filtered."""
        return Stream(stateless.Filter(input=self.node, condition=condition))

    def drop(self, *names: str) -> Stream:
        """Keep all columns but these."""
        return Stream(stateless.Drop(input=self.node, names=names))

    def rename(self, *names: Mapping[str, str], **new: str) -> Stream:
        """Give columns new names: `rename(new="old")`."""
        return Stream(stateless.Rename(input=self.node, names=_named(names, new)))

    def map(
        self,
        fn: Callable[..., Any],
        schema: Shape | None = None,
        *,
        using: Callable[[], Any] | None = None,
        on_error: OnError | None = None,
        deterministic: bool = True,
    ) -> Stream:
        """Call a Python function on each row; it returns the new row as a dict or a dataclass."""
        return Stream(self._python(python_functions.Map, fn, schema, using, on_error, deterministic))

    def map_batches(
        self,
        fn: Callable[..., Any],
        schema: Shape | None = None,
        *,
        using: Callable[[], Any] | None = None,
        on_error: OnError | None = None,
        deterministic: bool = True,
    ) -> Stream:
        """Call a Python function on Arrow record batches: the fast form. Event time ends here."""
        return Stream(self._python(python_functions.MapBatches, fn, schema, using, on_error, deterministic))

    def flat_map(
        self,
        fn: Callable[..., Any],
        schema: Shape | None = None,
        *,
        using: Callable[[], Any] | None = None,
        on_error: OnError | None = None,
        deterministic: bool = True,
        sides: Mapping[str, Shape] | None = None,
    ) -> Stream:
        """Call a Python function on each row; it yields any number of rows, or `("side", row)`."""
        node = self._python(python_functions.FlatMap, fn, schema, using, on_error, deterministic)
        outputs = tuple((name, Schema(shape)) for name, shape in (sides or {}).items())
        return Stream(replace(node, outputs=outputs) if outputs else node)

    def map_async(
        self,
        fn: Callable[..., Any],
        schema: Shape | None = None,
        *,
        using: Callable[[], Any] | None = None,
        on_error: OnError | None = None,
        concurrency: int = 64,
        timeout: Span = "10s",
        retries: int = 2,
        ordered: bool = True,
    ) -> Stream:
        """Call an `async def` on each row, for lookups; the job has at most `concurrency` calls in flight."""
        node = self._python(python_functions.MapAsync, fn, schema, using, on_error, False)
        limits = {"concurrency": concurrency, "timeout_us": micros(timeout, "timeout"), "retries": retries}
        return Stream(replace(node, **limits, in_order=ordered))

    def split(self, *conditions: Mapping[str, str], **named: str) -> dict[str, Stream]:
        """Split the rows into branches: each goes to the first whose condition holds, or to "rest"."""
        parts = branches(self.node, _named(conditions, named))
        return checks.Branches((name, Stream(part)) for name, part in parts.items())

    def union(self, *others: Stream) -> Stream:
        """Return the rows of all streams, which must have the same columns."""
        streams = (self.node, *(_stream(other, "union").node for other in others))
        return Stream(stateless.Union(streams=streams)) if others else self

    def event_time(self, column: str, max_delay: Span, *, idle_after: Span | None = None) -> Stream:
        """Declare the event-time column, and how long the watermark waits for rows that are out of order.

        Where several sources meet, the slowest holds back the watermark; with `idle_after`, not while it has had no row
        for that long.
        """
        delay = micros(max_delay, "max_delay")
        idle = None if idle_after is None else micros(idle_after, "idle_after")
        return Stream(stateless.EventTime(input=self.node, column=column, max_delay_us=delay, idle_after_us=idle))

    def deduplicate(self, keys: Names, within: Span, *, late_to: Sink | None = None) -> Stream:
        """Keep the first row of each key; repeats within the span of event time are counted as duplicates."""
        span, late_to = micros(within, "within"), checks.optional_sink(late_to, "deduplicate late_to")
        return Stream(deduplication.Deduplicate(input=self.node, keys=_names(keys), within_us=span, late_to=late_to))

    def join(
        self, other: Stream | Table, on: On, how: How = "inner", *, within: Within | None = None, suffix: str = "_right"
    ) -> Stream:
        """Join rows of the same key: of two streams within an interval (right's time less left's) or a window.

        A table needs no `within`; `within="unbounded"` stores all rows of both streams forever. Results have the left's
        columns, then the right's without the keys; those that the left has too get the suffix. The event time is that
        of the left row, in a right join that of the right.
        """
        return Stream(joined(self.node, _joinable(other, "join"), on, how, within, suffix))

    def join_asof(
        self, other: Stream | Table, on: On, how: How = "left", *, max_age: Span | None = None, suffix: str = "_right"
    ) -> Stream:
        """Join each row with the newest right row of its key that is not newer, nor older than `max_age`."""
        return Stream(joined_asof(self.node, _joinable(other, "join_asof"), on, how, max_age, suffix))

    def key_by(self, *names: str, **named: str) -> KeyedStream:
        """Group by columns, or by SQL expressions under a name."""
        stream = self.with_columns(**named) if named else self
        keys = (*names, *named)
        for name in keys:
            checks.column(stream.schema, name, "key_by")
        if not keys:
            message = "no key is given"
            raise BadValue(message, node="key_by", hint=choices("columns here", self.schema.names))
        return KeyedStream(stream.node, keys)

    def window(
        self,
        window: Window,
        *,
        allowed_lateness: Span = "0s",
        late_to: Sink | None = None,
        emit: Emit = "final",
    ) -> WindowedStream:
        """Group the stream into windows over all keys."""
        return KeyedStream(self.node, ()).window(window, allowed_lateness=allowed_lateness, late_to=late_to, emit=emit)

    def side(self, output: str) -> Stream:
        """Return a side output of this node: "late", or a named output of a function."""
        return Stream(stateless.Side(input=self.node, output=output))

    def named(self, name: str) -> Stream:
        """Name the node; its state and counts use this name."""
        return Stream(replace(self.node, name=_name(name)))

    def to(self, sink: Sink) -> Output:
        """End the stream in a sink."""
        return Output(stateless.Write(input=self.node, sink=checks.sink(sink, "to")))

    def _python(
        self,
        kind: type[python_functions.PythonNode],
        fn: Callable[..., Any],
        schema: Shape | None,
        using: Callable[[], Any] | None,
        on_error: OnError | None,
        deterministic: bool,
    ) -> Any:
        checks.helper(using, kind.kind)
        takes = {
            "arguments": ("batch" if kind is python_functions.MapBatches else "row", *(["helper"] if using else []))
        }
        given = {
            "node": kind.kind,
            "asynchronous": kind is python_functions.MapAsync,
            "one": kind is python_functions.Map,
        }
        output = output_schema(fn, schema, self.schema, **given, **takes)  # type: ignore[arg-type]
        checks.one_of(on_error, (*get_args(OnError), None), "on_error", kind.kind)
        return kind(
            input=self.node,
            fn=fn,
            output=output,
            using=using,
            on_error=on_error,
            deterministic=deterministic,
        )


@dataclass(frozen=True)
class KeyedStream(_Flow):
    """A stream grouped by keys."""

    keys: tuple[str, ...]

    def window(
        self,
        window: Window,
        *,
        allowed_lateness: Span = "0s",
        late_to: Sink | None = None,
        emit: Emit = "final",
    ) -> WindowedStream:
        """Group each key's rows into windows; `emit="updates"` emits results before they are final.

        With a span, such as `emit="10s"`, a result that changes is emitted at most that often, and when it is final.
        """
        if not isinstance(window, Window):
            message = f"{window!r} is not a window"
            raise BadValue(message, node="window", hint=f"windows: {_WINDOWS}")
        lateness = micros(allowed_lateness, "allowed_lateness")
        late_to = checks.optional_sink(late_to, "window late_to")
        return WindowedStream(self.node, self.keys, window, _emitted(emit), lateness, late_to)

    def aggregate(self, *columns: Mapping[str, str | Aggregator], **named: str | Aggregator) -> Stream:
        """Aggregate each key over all time; every epoch emits the keys that changed."""
        return Stream(grouped.Aggregate(input=self.node, keys=self.keys, aggregates=_named(columns, named)))

    def reduce(self, fn: Callable[[Row, Row], Row]) -> Stream:
        """Reduce the rows of each key to one, two rows at a time, over all time."""
        return Stream(grouped.Reduce(input=self.node, keys=self.keys, fn=checks.reducer(fn, "reduce")))

    def process(
        self, process: Process | type[Process], *, late_to: Sink | None = None, on_error: OnError | None = None
    ) -> Stream:
        """Run a process function over each key's rows: Python with state, timers and named outputs."""
        checks.one_of(on_error, (*get_args(OnError), None), "on_error", "process")
        made = process() if isinstance(process, type) and issubclass(process, Process) else process
        if not isinstance(made, Process):
            message = f"{process!r} is not a process function"
            raise BadFunction(message, node="process", hint="pass an instance of your subclass of ps.Process")
        late_to = checks.optional_sink(late_to, "process late_to")
        return Stream(KeyedProcess(input=self.node, keys=self.keys, process=made, late_to=late_to, on_error=on_error))


@dataclass(frozen=True)
class WindowedStream(_Flow):
    """A stream grouped by keys and windows."""

    keys: tuple[str, ...]
    over: Window
    emit: grouped.Emit
    lateness_us: int
    late_to: Sink | None

    def aggregate(self, *columns: Mapping[str, str | Aggregator], **named: str | Aggregator) -> Stream:
        """Aggregate each window: SQL aggregates, or `Aggregator` objects in Python.

        The result has the keys, `window_start`, `window_end` and the named columns.
        """
        return Stream(grouped.Aggregate(aggregates=_named(columns, named), **self._group()))

    def reduce(self, fn: Callable[[Row, Row], Row]) -> Stream:
        """Reduce the rows of each window to one, two rows at a time."""
        return Stream(grouped.Reduce(fn=checks.reducer(fn, "reduce"), **self._group()))

    def top(self, n: int, by: str) -> Stream:
        """Keep the n rows of each window with the largest `by`, whole, each with its `rank`: 1 is the largest.

        Ties are broken by the columns, from left to right, the largest first. Nulls come last.
        """
        return Stream(grouped.Top(n=n, by=by, **self._group()))

    def _group(self) -> dict[str, Any]:
        return {
            "input": self.node,
            "keys": self.keys,
            "window": self.over,
            "emit": self.emit,
            "lateness_us": self.lateness_us,
            "late_to": self.late_to,
        }


def _emitted(emit: Any) -> grouped.Emit:
    """Return when results are emitted; a span as microseconds."""
    if emit in ("final", "updates"):
        return emit  # type: ignore[no-any-return]
    try:
        every = micros(emit, "emit")
    except BadValue:
        message = f"emit={emit!r} is not known"
        raise BadValue(message, node="window", hint='emit: "final", "updates", or a span such as "10s"') from None
    return every or "updates"


def _named(given: Iterable[Any], named: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    """Merge columns from a leading dict (names that are not identifiers) and from keywords."""
    pairs: list[tuple[str, Any]] = []
    for part in given:
        if isinstance(part, Mapping):
            pairs.extend(part.items())
    return (*pairs, *named.items())


def _selected(sql: str, schema: Schema) -> tuple[str, str]:
    """Return a column's name and SQL; a bare name that is not SQL, such as `order id`, or a word, is the column."""
    if sql in schema and quoted(sql) != sql and (sql.isidentifier() or not _is_sql(sql, schema)):
        return sql, quoted(sql)
    return bare(sql), sql


def _is_sql(sql: str, schema: Schema) -> bool:
    try:
        scalar(sql, schema, node="select")
    except PipelineError:
        return False
    return True


def _names(names: Names) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


def _name(name: str) -> str:
    return checks.name(name, "named")


def _stream(other: Any, node: str) -> Stream:
    if not isinstance(other, Stream):
        message = f"{checks.shown(other)} is not a stream"
        raise BadValue(message, node=node, hint="pass a Stream, as read_files() or datagen() return it")
    return other


def _joinable(other: Any, node: str) -> Node | Table:
    return other if isinstance(other, Table) else _stream(other, node).node
