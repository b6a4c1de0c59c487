"""Count, processing-time, early-firing and max-length session windows, which Spark lacks, in buckets of keys.

Spark computes the partial results of single rows, so every expression means what it means elsewhere; a step merges them
in the bucket's state; Spark makes the results of what the step gives.
"""

from __future__ import annotations

import re
from functools import singledispatch

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from penstock.aggregates import Aggregator
from penstock.errors import PipelineError
from penstock.keyed.table_steps import KeyedTables
from penstock.native.count_windows import CountWindows
from penstock.native.early_windows import EarlyWindows
from penstock.native.panes import LISTS, Panes, merge_of
from penstock.native.session_windows import SessionWindows
from penstock.plan.operators.grouped import WINDOW_TYPES, Aggregate, Grouped, Reduce, Top, is_ordered
from penstock.plan.operators.partial_aggregates import PREFIX as PARTIAL
from penstock.plan.operators.two_phase_aggregates import TwoPhaseAggregate, two_phase
from penstock.schema import Field, Schema, quoted
from penstock.spark.lowering.buckets import bucketed
from penstock.spark.lowering.context import Context, carried_columns, column
from penstock.spark.lowering.python.aggregators import OUT, Reducer, finished, finished_row, row_partial
from penstock.spark.tasks.internal_columns import EVENT_TIME, PREFIX
from penstock.spark.tasks.spark_types import schema_of

Partials = tuple[list[Column], list[tuple[str, str]]]


def in_buckets(frame: DataFrame, node: Grouped, context: Context) -> DataFrame:
    """Return the results of a window."""
    given, panes = _partials(frame, node, context)
    names = [Field(name, WINDOW_TYPES[name]) for name in node.window_columns]
    output = Schema((*panes.rows.fields, *names))
    keys = [column(name) for name in node.keys]
    late = _late(given, node, context)
    windows = bucketed(given, keys, _step(node, panes, late), output, context, node, timed=node.event_time)
    results = _results(node, windows, context)
    time = [column(EVENT_TIME)] if node.event_time else []
    return context.counted(results.select(*map(column, node.schema.names), *time), node)


def _step(node: Grouped, panes: Panes, late: str | None) -> KeyedTables:
    step = _windows(node, panes, late)
    at_end = isinstance(step, CountWindows)
    return KeyedTables(step, panes.keys, panes.keys, closes_at_end=at_end, time=EVENT_TIME)


def _windows(node: Grouped, panes: Panes, late: str | None) -> CountWindows | SessionWindows | EarlyWindows:
    window = node.window
    assert window is not None
    is_processing_time = window.clock == "processing"
    if window.kind == "count":
        return CountWindows(panes, window)
    if window.kind == "session":
        return SessionWindows(panes, window, is_processing_time)
    every = node.emit if isinstance(node.emit, int) else 0 if node.emit == "updates" else None
    return EarlyWindows(panes, window, every, is_processing_time, late)


def _late(given: DataFrame, node: Grouped, context: Context) -> str | None:
    """Return the watermark by which windows had ended when the rows came, where one row has several windows."""
    if not node.sides or context.watermark_column(node) not in given.columns:
        return None
    return f"{context.watermark_column(node)} - {node.lateness_us}"


def _partials(frame: DataFrame, node: Grouped, context: Context) -> tuple[DataFrame, Panes]:
    """Return the partial results of single rows, and how they are merged."""
    made, merges = _columns(node, context)
    given = frame.select(*map(column, node.keys), *made, *carried_columns(frame))
    wanted = (*node.keys, *(name for name, _ in merges))
    rows = Schema(tuple(field for field in schema_of(given) if field.name in wanted))
    return given, Panes(node.keys, tuple(merges), rows)


@singledispatch
def _columns(node: Grouped, context: Context) -> Partials:
    """Return the partial columns, and the SQL that merges each."""
    message = f"{node.kind} has no form in buckets of keys"
    raise PipelineError(message, node=context.name(node))


@_columns.register
def _top_columns(node: Top, context: Context) -> Partials:
    row = F.struct(*map(column, node.input.schema.names))
    best = F.array(F.struct(F.expr(order_of(node)).alias("by"), row.alias("row")))
    return [best.alias(BEST)], [(BEST, LISTS.format(BEST))]


@_columns.register
def _reduce_columns(node: Reduce, context: Context) -> Partials:
    return [_folded(Reducer(node), node, context).alias(OUT)], [(OUT, LISTS.format(OUT))]


@_columns.register
def _aggregate_columns(node: Aggregate, context: Context) -> Partials:
    split = _split(node)
    made = [F.expr(partial.of_row).alias(split.name(i)) for i, partial in enumerate(split.partials)]
    merges = [(split.name(i), merge_of(i, split.partials, PARTIAL)) for i in range(len(split.partials))]
    for result, aggregator in node.python.items():
        name = split.fold_name(result)
        made.append(_folded(aggregator, node, context).alias(name))
        merges.append((name, LISTS.format(name)))
    return made, merges


def _folded(aggregator: Aggregator, node: Grouped, context: Context) -> Column:
    """Return a list with the accumulator of one row; rows are folded by their times, or without these as they come."""
    by_time = node.window is not None and node.window.by_event_time
    at = F.unix_micros(column(EVENT_TIME)) if by_time else F.lit(0).cast("bigint")
    return F.array(row_partial(aggregator, node, context, at))


def _split(node: Aggregate) -> TwoPhaseAggregate:
    split = two_phase(node)
    assert not isinstance(split, str)
    return split


@singledispatch
def _results(node: Grouped, windows: DataFrame, context: Context) -> DataFrame:
    """Make results of merged partials."""
    message = f"{node.kind} has no form in buckets of keys"
    raise PipelineError(message, node=context.name(node))


@_results.register
def _top_results(node: Top, windows: DataFrame, context: Context) -> DataFrame:
    sooner = "CASE WHEN a.by > b.by THEN -1 WHEN a.by < b.by THEN 1 ELSE 0 END"
    best = f"transform(slice(array_sort({BEST}, (a, b) -> {sooner}), 1, {node.n}), one -> one.row)"
    return ranked(windows.withColumn(BEST, F.expr(best)), node)


@_results.register
def _reduce_results(node: Reduce, windows: DataFrame, context: Context) -> DataFrame:
    rest = [name for name in node.schema.names if name not in (*node.keys, *node.window_columns)]
    parts = {name: F.col(f"{OUT}.{quoted(name)}") for name in rest}
    return finished_row(windows, node, context).withColumns(parts)


@_results.register
def _aggregate_results(node: Aggregate, windows: DataFrame, context: Context) -> DataFrame:
    split = _split(node)
    merged = {name: F.expr(_of_one(sql)) for name, sql in split.merges}
    merged |= {result: column(split.fold_name(result)) for result in split.folded}
    windows = windows.withColumns(merged) if merged else windows
    made = windows.withColumns({name: F.expr(sql) for name, sql in split.finals}) if split.finals else windows
    return finished(made, node, context)


def _of_one(merge: str) -> str:
    """Return the merge of a single partial: the partial itself.

    >>> _of_one("max_by(__penstock_p0, __penstock_p1)")
    '__penstock_p0'
    """
    found = re.search(rf"{PARTIAL}\d+", merge)
    assert found is not None
    return found.group()


BEST = PREFIX + "best"
_PLACE = PREFIX + "place"


def best_rows(node: Top) -> str:
    """Return the aggregate that collects whole rows, the largest first; ties are ordered by all columns."""
    row = f"struct({', '.join(map(quoted, node.input.schema.names))})"
    return f"max_by({row}, {order_of(node)}, {node.n})"


def order_of(node: Top) -> str:
    """Return what rows are ordered by, as one value: a type without an order is ordered as text."""
    ties = (quoted(f.name) if is_ordered(f.type) else f"to_json({quoted(f.name)})" for f in node.input.schema)
    parts = (f"'o{place}', {sql}" for place, sql in enumerate((node.by, *ties)))
    return f"named_struct({', '.join(parts)})"


def ranked(frame: DataFrame, node: Top) -> DataFrame:
    """Make a row of each place in the array."""
    groups = [column(name) for name in frame.columns if name != BEST]
    rows = frame.select(*groups, F.posexplode(BEST).alias(_PLACE, BEST))
    given = (*node.keys, *node.window_columns, "rank")
    rest: list[Column] = [F.col(f"{BEST}.{quoted(name)}") for name in node.schema.names if name not in given]
    return rows.select(*groups, *rest, (column(_PLACE) + 1).alias("rank"))
