"""Streams: a thin fluent layer over the plan; each call adds one node and changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from penstock import checks
from penstock.aggregates import Aggregator
from penstock.contracts import OnError, Sink
from penstock.durations import Span, micros
from penstock.errors import BadFunction, BadValue, PipelineError, choices
from penstock.functions import check_call, output_schema
from penstock.joining import On, Within, joined, joined_asof
from penstock.plan import nodes, stateful
from penstock.plan.expressions import scalar
from penstock.plan.joins import How
from penstock.plan.node import Node
from penstock.plan.process import KeyedProcess
from penstock.plan.splitting import branches
from penstock.process import Process
from penstock.schema import Schema, Shape, bare, quoted
from penstock.tables import Table
from penstock.windows import Window

Row = dict[str, Any]
Names = str | Sequence[str]
_WINDOWS = "tumbling(), sliding(), session(), count_window(), global_window()"
Emit = Literal["final", "updates"] | Span


@dataclass(frozen=True)
class Output:
    """A stream that ends in a sink; what a pipeline is made of."""

    node: nodes.Write

    def named(self, name: str) -> Output:
        """Name the output; counts and the sink's ledger go by it."""
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
    """Rows that keep coming. Immutable: a branch is a variable used twice."""

    def select(self, *columns: str | Mapping[str, str], **named: str) -> Stream:
        """Keep only these columns: SQL expressions, those that are computed under a name.

        >>> import penstock as ps
        >>> items = ps.from_items([{"a": 1}], "a bigint")
        >>> items.select("a", double="a * 2").schema
        Schema('a bigint, double bigint')
        """
        pairs = [_selected(column, self.schema) for column in columns if isinstance(column, str)]
        return Stream(nodes.Select(input=self.node, columns=(*pairs, *_named(columns, named))))

    def with_columns(self, *columns: Mapping[str, str], **named: str) -> Stream:
        """Add columns, or compute those of the same name anew."""
        return Stream(nodes.WithColumns(input=self.node, columns=_named(columns, named)))

    def filter(self, condition: str) -> Stream:
        """Keep the rows for which the condition holds; the others are counted as filtered."""
        return Stream(nodes.Filter(input=self.node, condition=condition))

    def drop(self, *names: str) -> Stream:
        """Keep all columns but these."""
        return Stream(nodes.Drop(input=self.node, names=names))

    def rename(self, *names: Mapping[str, str], **new: str) -> Stream:
        """Give columns new names: `rename(new="old")`."""
        return Stream(nodes.Rename(input=self.node, names=_named(names, new)))

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
        return Stream(self._python(nodes.Map, fn, schema, using, on_error, deterministic))

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
        return Stream(self._python(nodes.MapBatches, fn, schema, using, on_error, deterministic))

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
        node = self._python(nodes.FlatMap, fn, schema, using, on_error, deterministic)
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
        """Call an `async def` on each row, many at once: for lookups. The job has at most `concurrency` under way."""
        node = self._python(nodes.MapAsync, fn, schema, using, on_error, False)
        limits = {"concurrency": concurrency, "timeout_us": micros(timeout, "timeout"), "retries": retries}
        return Stream(replace(node, **limits, in_order=ordered))

    def split(self, *conditions: Mapping[str, str], **named: str) -> dict[str, Stream]:
        """Part the rows: each goes to the first branch whose condition holds, or to "rest"."""
        parts = branches(self.node, _named(conditions, named))
        return checks.Branches((name, Stream(part)) for name, part in parts.items())

    def union(self, *others: Stream) -> Stream:
        """Put streams with the same columns together."""
        streams = (self.node, *(_stream(other, "union").node for other in others))
        return Stream(nodes.Union(streams=streams)) if others else self

    def event_time(self, column: str, max_delay: Span, *, idle_after: Span | None = None) -> Stream:
        """Declare which column is the row's time, and how long one waits for rows that come late.

        Where sources meet, the one that is furthest behind holds the others up; with `idle_after`, not while it has
        given no row for so long.
        """
        delay = micros(max_delay, "max_delay")
        idle = None if idle_after is None else micros(idle_after, "idle_after")
        return Stream(nodes.EventTime(input=self.node, column=column, max_delay_us=delay, idle_after_us=idle))

    def deduplicate(self, keys: Names, within: Span, *, late_to: Sink | None = None) -> Stream:
        """Keep the first row of each key; repeats within the span of event time are counted as duplicates."""
        span, late_to = micros(within, "within"), checks.optional_sink(late_to, "deduplicate late_to")
        return Stream(stateful.Deduplicate(input=self.node, keys=_names(keys), within_us=span, late_to=late_to))

    def join(
        self, other: Stream | Table, on: On, how: How = "inner", *, within: Within | None = None, suffix: str = "_right"
    ) -> Stream:
        """Join rows of the same key: of two streams within an interval (right's time less left's) or a window.

        A table needs no `within`; `within="unbounded"` keeps all rows of both streams for ever. Results have the left's
        columns, then the right's without the keys; those that the left has too get the suffix. The event time is the
        left's, of a right join the right's.
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
        """Cut the stream into windows over all keys."""
        return KeyedStream(self.node, ()).window(window, allowed_lateness=allowed_lateness, late_to=late_to, emit=emit)

    def side(self, output: str) -> Stream:
        """Return a further output of this node: "late", or one that a function names."""
        return Stream(nodes.Side(input=self.node, output=output))

    def named(self, name: str) -> Stream:
        """Name the node; state and counts go by it."""
        return Stream(replace(self.node, name=_name(name)))

    def to(self, sink: Sink) -> Output:
        """End the stream in a sink."""
        return Output(nodes.Write(input=self.node, sink=checks.sink(sink, "to")))

    def _python(
        self,
        kind: type[nodes.PythonNode],
        fn: Callable[..., Any],
        schema: Shape | None,
        using: Callable[[], Any] | None,
        on_error: OnError | None,
        deterministic: bool,
    ) -> Any:
        checks.helper(using, kind.kind)
        takes = {"arguments": ("batch" if kind is nodes.MapBatches else "row", *(["helper"] if using else []))}
        given = {"node": kind.kind, "asynchronous": kind is nodes.MapAsync, "one": kind is nodes.Map}
        output = output_schema(fn, schema, self.schema, **given, **takes)  # type: ignore[arg-type]
        _one_of(on_error, (*get_args(OnError), None), "on_error", kind.kind)
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
        """Cut each key's rows into windows; `emit="updates"` shows results before they are final.

        With a span, such as `emit="10s"`, a result that changes is shown at most that often, and when it is final.
        """
        if not isinstance(window, Window):
            message = f"{window!r} is not a window"
            raise BadValue(message, node="window", hint=f"windows: {_WINDOWS}")
        lateness = micros(allowed_lateness, "allowed_lateness")
        late_to = checks.optional_sink(late_to, "window late_to")
        return WindowedStream(self.node, self.keys, window, _emitted(emit), lateness, late_to)

    def aggregate(self, *columns: Mapping[str, str | Aggregator], **named: str | Aggregator) -> Stream:
        """Aggregate each key over all time; every epoch shows the keys that changed."""
        return Stream(stateful.Aggregate(input=self.node, keys=self.keys, aggregates=_named(columns, named)))

    def reduce(self, fn: Callable[[Row, Row], Row]) -> Stream:
        """Make one row per key of two rows at a time, over all time."""
        return Stream(stateful.Reduce(input=self.node, keys=self.keys, fn=_callable(fn, "reduce")))

    def process(
        self, process: Process | type[Process], *, late_to: Sink | None = None, on_error: OnError | None = None
    ) -> Stream:
        """Run a process function over each key's rows: Python with state, timers and named outputs."""
        _one_of(on_error, (*get_args(OnError), None), "on_error", "process")
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
    emit: stateful.Emit
    lateness_us: int
    late_to: Sink | None

    def aggregate(self, *columns: Mapping[str, str | Aggregator], **named: str | Aggregator) -> Stream:
        """Aggregate each window: SQL aggregates, or `Aggregator` objects in Python.

        The result has the keys, `window_start`, `window_end` and the named columns.
        """
        return Stream(stateful.Aggregate(aggregates=_named(columns, named), **self._group()))

    def reduce(self, fn: Callable[[Row, Row], Row]) -> Stream:
        """Make one row per window of two rows at a time."""
        return Stream(stateful.Reduce(fn=_callable(fn, "reduce"), **self._group()))

    def top(self, n: int, by: str) -> Stream:
        """Keep the n rows of each window with the largest `by`, whole, each with its `rank`: 1 is the largest.

        Rows that are equal by it go by their columns, from left to right, the largest first. Nulls come last.
        """
        return Stream(stateful.Top(n=n, by=by, **self._group()))

    def _group(self) -> dict[str, Any]:
        return {
            "input": self.node,
            "keys": self.keys,
            "window": self.over,
            "emit": self.emit,
            "lateness_us": self.lateness_us,
            "late_to": self.late_to,
        }


def _emitted(emit: Any) -> stateful.Emit:
    """Return when results leave; a span as microseconds."""
    if emit in ("final", "updates"):
        return emit  # type: ignore[no-any-return]
    try:
        every = micros(emit, "emit")
    except BadValue:
        message = f"emit={emit!r} is not known"
        raise BadValue(message, node="window", hint='emit: "final", "updates", or a span such as "10s"') from None
    return every or "updates"


def _named(given: Iterable[Any], named: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    """Put columns from a leading dict (names that are no identifiers) and from keywords together."""
    pairs: list[tuple[str, Any]] = []
    for part in given:
        if isinstance(part, Mapping):
            pairs.extend(part.items())
    return (*pairs, *named.items())


def _selected(sql: str, schema: Schema) -> tuple[str, str]:
    """Return a column's name and SQL; a bare name that is no SQL, such as `order id`, or a word, is the column."""
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


def _callable(fn: Any, node: str) -> Callable[..., Any]:
    if not callable(fn):
        message = f"{checks.shown(fn)} is not a function"
        raise BadFunction(message, node=node, hint="SQL goes in strings to aggregate(), Python in functions")
    check_call(fn, ("a", "b"), node)
    return fn  # type: ignore[no-any-return]


def _stream(other: Any, node: str) -> Stream:
    if not isinstance(other, Stream):
        message = f"{checks.shown(other)} is not a stream"
        raise BadValue(message, node=node, hint="pass what read_files(), datagen() or another call returned")
    return other


def _joinable(other: Any, node: str) -> Node | Table:
    return other if isinstance(other, Table) else _stream(other, node).node


def _one_of(value: Any, valid: tuple[Any, ...], what: str, node: str) -> None:
    if value not in valid:
        message = f"{what}={value!r} is not known"
        raise BadValue(message, node=node, hint=choices(what, [repr(one) for one in valid if one]))
