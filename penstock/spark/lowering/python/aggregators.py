"""Aggregates written in Python, in Spark's state.

In a window, each task folds its rows to partial accumulators (in the scan itself where the plan allows it), Spark
collects the partials of a group in its state, and the window's end merges them. Without a window there is no end, so
the accumulator itself is the state of a key, folded epoch by epoch.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark.sql import Column, DataFrame, GroupedData
from pyspark.sql import functions as F
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from penstock.aggregates import Aggregator, state_type, struct_type
from penstock.errors import FunctionFailed, PipelineError
from penstock.native.folds import ACCUMULATOR, RESULT, called, typed, unfit
from penstock.plan.operators.grouped import Aggregate, Grouped, Reduce
from penstock.plan.sql_expressions.distinct import without_distinct
from penstock.schema import arrow_type
from penstock.spark.lowering.context import Context, column, row, window_name
from penstock.spark.tasks.internal_columns import EVENT_TIME, PREFIX
from penstock.spark.tasks.spark_types import EXACT_TIMES, array_function, with_plain_names
from penstock.spark.tasks.staging import Staging
from penstock.spark.tasks.task_context import current_epoch
from penstock.values import Column as Values
from penstock.values import Misfit, column_of

OUT = PREFIX + "out"
PARTIAL = PREFIX + "partial"
Grouping = Callable[[DataFrame], GroupedData]


class Reducer(Aggregator):
    """A reduce function as an aggregator whose accumulator is a row."""

    def __init__(self, node: Reduce) -> None:
        super().__init__()
        self.fn = node.fn
        self.state = node.input.schema
        self.result = struct_type(node.input.schema)

    def start(self) -> Any:
        """No row yet."""
        return None

    def add(self, acc: Any, *values: Any) -> Any:
        """Take the first row as it is."""
        return values[0] if acc is None else self.merge(acc, values[0])

    def merge(self, a: Any, b: Any) -> Any:
        """Call the user's function."""
        return dict(self.fn(a, b))

    def finish(self, acc: Any) -> Any:
        """The row itself."""
        return acc


@dataclass(frozen=True)
class Fold:
    """An aggregator in a worker: calls it, and names the node when it raises."""

    aggregator: Aggregator
    node: str
    staging: Staging

    def call(self, step: Callable[..., Any], *given: Any) -> Any:
        """Call one step."""
        try:
            return called(self.aggregator, self.node, step, *given)
        except FunctionFailed as failed:
            self.staging.put_error(current_epoch(), failed)
            raise

    def typed(self, made: list[Any], fits: Values, what: str) -> pa.Array:
        """Return accumulators or results in Arrow."""
        try:
            return typed(self.aggregator, self.node, made, fits, what)
        except FunctionFailed as failed:
            self.staging.put_error(current_epoch(), failed)
            raise

    def unfit(self, misfit: Misfit) -> FunctionFailed:
        """Return the error for a result that does not fit, and stage it for the driver."""
        failed = unfit(self.aggregator, self.node, misfit, RESULT)
        self.staging.put_error(current_epoch(), failed)
        return failed

    def partial_udf(self) -> Any:
        """Fold the rows of each group within an Arrow batch; the group's last row carries the accumulator."""
        returned = f"struct<at:bigint,acc:{state_type(self.aggregator.state)}>"
        fits = column_of(arrow_type(returned))
        add, start = self.aggregator.add, self.aggregator.start

        def partial(rows: Iterator[tuple[pa.Array, pa.Array, pa.Array]]) -> Iterator[pa.Array]:
            for inputs, groups, times in rows:
                made: list[Any] = [None] * len(inputs)
                last: dict[Any, int] = {}
                for i, (values, group, at) in enumerate(
                    zip(inputs.to_pylist(), groups.to_pylist(), times.to_pylist(), strict=True)
                ):
                    before = last.get(group) if group is not None else None
                    acc = self.call(start) if before is None else made[before]["acc"]
                    made[i] = {"at": at, "acc": self.call(add, acc, *values.values())}
                    if before is not None:
                        made[before] = None
                    last[group] = i
                yield self.typed(made, fits, ACCUMULATOR)

        return array_function(partial, returned, inputs=3)

    def finish_udf(self) -> Any:
        """Merge the partials of a group, oldest first, and finish."""
        fits = column_of(arrow_type(self.aggregator.result))
        aggregator = self.aggregator

        def finish(rows: Iterator[pa.Array]) -> Iterator[pa.Array]:
            for batch in rows:
                made = []
                for partials in batch.to_pylist():
                    acc, *others = [one["acc"] for one in sorted(partials, key=lambda one: one["at"])]
                    for other in others:
                        acc = self.call(aggregator.merge, acc, other)
                    made.append(self.call(aggregator.finish, acc))
                yield self.typed(made, fits, RESULT)

        return array_function(finish, aggregator.result)


def aggregated(frame: DataFrame, node: Aggregate, grouped: Grouping, context: Context) -> DataFrame:
    """Aggregate by SQL and by Python side by side."""
    frame = folded(frame, node, context, PREFIX.__add__)
    results = [
        F.expr(without_distinct(what)).alias(name) if isinstance(what, str) else collected(PREFIX + name, name)
        for name, what in node.aggregates
    ]
    return finished(grouped(frame).agg(*results), node, context)


def folded(frame: DataFrame, node: Aggregate, context: Context, called: Callable[[str], str]) -> DataFrame:
    """Add the partial accumulators of each Python aggregator, under the name that it is called by."""
    for name, aggregator in node.python.items():
        fold = _fold(aggregator, node, context)
        inputs = F.struct(*(F.expr(sql).alias(f"v{i}") for i, sql in enumerate(aggregator.inputs)))
        frame = frame.withColumn(called(name), fold.partial_udf()(inputs, _group_text(node), _at()))
    return frame


def row_partial(aggregator: Aggregator, node: Grouped, context: Context, at: Column) -> Column:
    """Return the accumulator of a single row, and its place among the others."""
    alone = F.lit(None).cast("string")
    made: Column = _fold(aggregator, node, context).partial_udf()(_inputs(node, aggregator), alone, at)
    return made


def finished_row(frame: DataFrame, node: Reduce, context: Context) -> DataFrame:
    """Merge the rows that were collected to one."""
    return frame.withColumn(OUT, _fold(Reducer(node), node, context).finish_udf()(column(OUT)))


def collected(partials: str, result: str) -> Column:
    """Keep the partial accumulators of a group in Spark's state."""
    return F.collect_list(column(partials)).alias(result)


def finished(frame: DataFrame, node: Aggregate, context: Context) -> DataFrame:
    """Merge and finish what was collected."""
    for name, aggregator in node.python.items():
        frame = frame.withColumn(name, _fold(aggregator, node, context).finish_udf()(column(name)))
    return frame


def reduced(frame: DataFrame, node: Reduce, grouped: Grouping, context: Context) -> DataFrame:
    """Reduce the rows of each window to one."""
    fold = _fold(Reducer(node), node, context)
    whole = F.struct(row(node.input).alias("v0"))
    frame = frame.withColumn(PARTIAL, fold.partial_udf()(whole, _group_text(node), _at()))
    frame = grouped(frame).agg(F.collect_list(column(PARTIAL)).alias(OUT))
    frame = frame.withColumn(OUT, fold.finish_udf()(column(OUT)))
    rest = [name for name in node.schema.names if name not in (*node.keys, "window_start", "window_end")]
    return frame.select(*map(column, node.keys), window_name(node), *(F.col(OUT)[name].alias(name) for name in rest))


def running(frame: DataFrame, node: Aggregate | Reduce, context: Context) -> DataFrame:
    """Keep one accumulator per key for all time; each epoch shows the keys that changed."""
    folds = _running_folds(node, context)
    inputs = [_inputs(node, fold.aggregator).alias(f"f{i}") for i, fold in enumerate(folds.values())]
    keys = F.struct(*map(column, node.keys))
    given = frame.select(
        *map(column, node.keys), _pickled()(F.struct(*inputs), keys, _at_or_zero(frame)).alias(PARTIAL)
    )
    given = with_plain_names(given)
    folded = given.groupBy(*map(column, given.columns[:-1])).applyInPandasWithState(
        _folder(folds, OUT in folds),
        f"{OUT} binary",
        "accumulators binary",
        "update",
        GroupStateTimeout.NoTimeout,
    )
    # An Arrow function takes rows of Spark's binary kind only. These are of another kind, which a filter converts where
    # its code is generated, and which this converts in any case.
    folded = folded.select(F.explode(F.array(column(OUT))).alias(OUT))
    return folded.select(_unpickled(node, folds)(column(OUT)).alias(OUT)).select(f"{OUT}.*")


def _folder(folds: dict[str, Fold], whole_row: bool) -> Callable[..., Iterator[pd.DataFrame]]:
    def fold_key(key: Any, frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
        rows = [pickle.loads(data) for frame in frames for data in frame.iloc[:, -1]]
        rows.sort(key=lambda one: one[0])
        accs = pickle.loads(bytes(state.get[0])) if state.exists else None
        accs = accs or [fold.call(fold.aggregator.start) for fold in folds.values()]
        for _, _, inputs in rows:
            for i, fold in enumerate(folds.values()):
                accs[i] = fold.call(fold.aggregator.add, accs[i], *inputs[f"f{i}"].values())
        state.update((pickle.dumps(accs),))
        finished = {
            name: fold.call(fold.aggregator.finish, acc) for (name, fold), acc in zip(folds.items(), accs, strict=True)
        }
        made = finished[OUT] if whole_row else finished
        yield pd.DataFrame({OUT: [pickle.dumps({**made, **rows[0][1]})]})

    return fold_key


@singledispatch
def _running_folds(node: Grouped, context: Context) -> dict[str, Fold]:
    message = f"{node.kind} has no accumulator over all time"
    raise PipelineError(message, node=context.name(node))


@_running_folds.register
def _of_reduce(node: Reduce, context: Context) -> dict[str, Fold]:
    return {OUT: _fold(Reducer(node), node, context)}


@_running_folds.register
def _of_aggregate(node: Aggregate, context: Context) -> dict[str, Fold]:
    return {name: _fold(aggregator, node, context) for name, aggregator in node.python.items()}


def _inputs(node: Grouped, aggregator: Aggregator) -> Column:
    if isinstance(aggregator, Reducer):
        return F.struct(row(node.input).alias("v0"))
    return F.struct(*(F.expr(sql).alias(f"v{i}") for i, sql in enumerate(aggregator.inputs)))


def _pickled() -> Any:
    def pack(rows: Iterator[tuple[pa.Array, pa.Array, pa.Array]]) -> Iterator[pa.Array]:
        for inputs, keys, times in rows:
            parts = zip(times.to_pylist(), keys.to_pylist(), inputs.to_pylist(), strict=True)
            yield pa.array([pickle.dumps(part) for part in parts], pa.binary())

    return array_function(pack, "binary", inputs=3)


def _unpickled(node: Aggregate | Reduce, folds: dict[str, Fold]) -> Any:
    returned = struct_type(node.schema)
    fits = column_of(arrow_type(returned))
    first = next(iter(folds.values()))

    def unpack(rows: Iterator[pa.Array]) -> Iterator[pa.Array]:
        for batch in rows:
            array, wrong = fits.converted([pickle.loads(data) for data in batch.to_pylist()])
            for misfit in wrong.values():
                raise folds.get(str(misfit.path[0]) if misfit.path else OUT, first).unfit(misfit)
            yield array

    return array_function(unpack, returned)


def _fold(aggregator: Aggregator, node: Grouped, context: Context) -> Fold:
    return Fold(aggregator, context.graph.label(node), context.staging)


def _group_text(node: Grouped) -> Column:
    """The key of a group within a batch; null where only Spark knows it (sliding and session windows)."""
    if node.window is None or node.window.kind != "tumbling":
        return F.lit(None).cast("string")
    shifted = F.unix_micros(column(EVENT_TIME)) - F.lit(node.window.offset_us)
    start = shifted - F.pmod(shifted, F.lit(node.window.size_us))
    return F.to_json(F.struct(*map(column, node.keys), start.alias("__penstock_start")), EXACT_TIMES)


def _at() -> Column:
    return F.unix_micros(column(EVENT_TIME))


def _at_or_zero(frame: DataFrame) -> Column:
    return _at() if EVENT_TIME in frame.columns else F.lit(0).cast("bigint")
