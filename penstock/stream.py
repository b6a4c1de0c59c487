"""Streams: a thin fluent layer over the plan; each call adds one node and changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from penstock import argument_checks as checks
from penstock.aggregates import Aggregator
from penstock.argument_checks import On, Within, joined, joined_asof
from penstock.contracts import OnError, Sink, own_sink
from penstock.durations import Span, micros
from penstock.errors import BadFunction, BadValue, choices, one_of
from penstock.flows import Flow, Names, Output, as_names, checked_name, named_columns, selected
from penstock.plan.operators import deduplication, grouped, python_functions, stateless
from penstock.plan.operators.joins import How
from penstock.plan.operators.node import Node
from penstock.plan.operators.process import KeyedProcess
from penstock.plan.operators.split import branches
from penstock.plan.operators.views import MaintainView
from penstock.plan.relations import Top
from penstock.process import Process
from penstock.schema import Schema, Shape
from penstock.signatures import output_schema
from penstock.tables import Table
from penstock.views import Relational, aggregated, latest, maintained, order, written
from penstock.windows import Window

Row = dict[str, Any]
_WINDOWS = "tumbling(), sliding(), session(), count_window(), global_window()"
Emit = Literal["final", "updates"] | Span


class Stream(Flow):
    """An unbounded stream of rows. Immutable: a branch is a variable used twice."""

    def select(self, *columns: str | Mapping[str, str], **named: str) -> Stream:
        """Keep only these columns: names, or SQL expressions as `name="expression"`.

        >>> import penstock as ps
        >>> items = ps.from_items([{"a": 1}], "a bigint")
        >>> items.select("a", double="a * 2").schema
        Schema('a bigint, double bigint')
        """
        pairs = [selected(column, self.schema) for column in columns if isinstance(column, str)]
        return Stream(stateless.Select(input=self.node, columns=(*pairs, *named_columns(columns, named))))

    def with_columns(self, *columns: Mapping[str, str], **named: str) -> Stream:
        """Add columns, or replace those of the same name."""
        return Stream(stateless.WithColumns(input=self.node, columns=named_columns(columns, named)))

    def filter(self, condition: str) -> Stream:
        """Keep the rows for which the condition holds; the others are counted as filtered."""
        return Stream(stateless.Filter(input=self.node, condition=condition))

    def drop(self, *names: str) -> Stream:
        """Keep all columns but these."""
        return Stream(stateless.Drop(input=self.node, names=names))

    def rename(self, *names: Mapping[str, str], **new: str) -> Stream:
        """Give columns new names: `rename(new="old")`."""
        return Stream(stateless.Rename(input=self.node, names=named_columns(names, new)))

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
        parts = branches(self.node, named_columns(conditions, named))
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
        return Stream(deduplication.Deduplicate(input=self.node, keys=as_names(keys), within_us=span, late_to=late_to))

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

    def view(
        self, key: Names = (), value: Names | None = None, *, remove: str | None = None, ttl: Span | None = None
    ) -> View:
        """Return the stream as a view: the last row of each key, or without a key all rows.

        `value` names the columns besides the key, by default all others. A row for which `remove` holds deletes its
        key; without a key it takes out one row with the same values. Rows leave the view `ttl` after their event time.
        """
        lifetime = None if ttl is None else micros(ttl, "ttl")
        values = None if value is None else as_names(value)
        relation, stream = latest(self.node, as_names(key), values, remove, lifetime)
        return View(relation, (stream,))

    def side(self, output: str) -> Stream:
        """Return a side output of this node: "late", or a named output of a function."""
        return Stream(stateless.Side(input=self.node, output=output))

    def named(self, name: str) -> Stream:
        """Name the node; its state and counts use this name."""
        return Stream(replace(self.node, name=checked_name(name)))

    def to(self, sink: Sink) -> Output:
        """End the stream in a sink."""
        return Output(stateless.Write(input=self.node, sink=own_sink(checks.sink(sink, "to"))))

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
        one_of(on_error, (*get_args(OnError), None), "on_error", kind.kind)
        return kind(
            input=self.node,
            fn=fn,
            output=output,
            using=using,
            on_error=on_error,
            deterministic=deterministic,
        )


@dataclass(frozen=True)
class KeyedStream(Flow):
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
        return Stream(grouped.Aggregate(input=self.node, keys=self.keys, aggregates=named_columns(columns, named)))

    def reduce(self, fn: Callable[[Row, Row], Row]) -> Stream:
        """Reduce the rows of each key to one, two rows at a time, over all time."""
        return Stream(grouped.Reduce(input=self.node, keys=self.keys, fn=checks.reducer(fn, "reduce")))

    def process(
        self, process: Process | type[Process], *, late_to: Sink | None = None, on_error: OnError | None = None
    ) -> Stream:
        """Run a process function over each key's rows: Python with state, timers and named outputs."""
        one_of(on_error, (*get_args(OnError), None), "on_error", "process")
        made = process() if isinstance(process, type) and issubclass(process, Process) else process
        if not isinstance(made, Process):
            message = f"{process!r} is not a process function"
            raise BadFunction(message, node="process", hint="pass an instance of your subclass of ps.Process")
        late_to = checks.optional_sink(late_to, "process late_to")
        return Stream(KeyedProcess(input=self.node, keys=self.keys, process=made, late_to=late_to, on_error=on_error))


@dataclass(frozen=True)
class WindowedStream(Flow):
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
        return Stream(grouped.Aggregate(aggregates=named_columns(columns, named), **self._group()))

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


class View(Relational):
    """A result that follows its inputs: each epoch changes it by what the epoch's rows change."""

    def group_by(self, *names: str, **named: str) -> GroupedView:
        """Group by columns, or by SQL expressions under a name; without any all rows are one group."""
        return GroupedView(*self._group_keys(names, named))

    def aggregate(self, *columns: Mapping[str, str], **named: str) -> View:
        """Aggregate all rows: one row, also of no rows."""
        return self.group_by().aggregate(*columns, **named)

    def changes(self) -> Stream:
        """Return the changes as a stream; `_change` is "insert", "update" or "delete".

        An update has the new row. Where no columns are known to be unique, a changed row is a delete and an insert.
        """
        return Stream(self._node(self.unique))

    def to(self, sink: Sink, *, whole: bool = False) -> Output:
        """End the view in a sink: a table or a keyed topic follows it by upserts and deletes.

        Files get the whole view, with `whole=True`: each epoch that changes it replaces the file. Other sinks get
        the changes, with `_change`.
        """
        return written(checks.sink(sink, "to"), self._node, self.unique, whole=whole)

    def _node(self, replaces: tuple[str, ...] | None) -> MaintainView:
        return maintained(self, replaces)


@dataclass(frozen=True)
class GroupedView:
    """A view grouped by keys."""

    view: View
    keys: tuple[str, ...]

    def aggregate(self, *columns: Mapping[str, str], **named: str) -> View:
        """Aggregate each group with SQL; `count(DISTINCT x)`, min, max and percentiles follow deletes too."""
        return self.view._over(aggregated(self.view.relation, self.keys, columns, named))

    def top(self, n: int, by: Names, *, rank: str | None = None) -> View:
        """Keep the n rows of each group with the largest `by`; `rank` is the name of a column for their places."""
        return self.view._over(Top(self.view.relation, self.keys, n, order(by), rank))


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


def _stream(other: Any, node: str) -> Stream:
    if not isinstance(other, Stream):
        message = f"{checks.shown(other)} is not a stream"
        raise BadValue(message, node=node, hint="pass a Stream, as read_files() or datagen() return it")
    return other


def _joinable(other: Any, node: str) -> Node | Table:
    return other if isinstance(other, Table) else _stream(other, node).node
