"""Lowerings of the nodes that keep state."""

from __future__ import annotations

from functools import partial

from pyspark.sql import Column, DataFrame, GroupedData
from pyspark.sql import functions as F

from penstock.keyed.deduplication import Deduplicator
from penstock.keyed.table_steps import KeyedTables
from penstock.plan.operators.deduplication import Deduplicate, Distinct
from penstock.plan.operators.grouped import Aggregate, Grouped, Reduce, Top
from penstock.plan.operators.two_phase_aggregates import TwoPhaseAggregate, two_phase
from penstock.plan.physical.watermark_lag import lag_us
from penstock.schema import Schema
from penstock.spark.lowering.buckets import bucketed_results, input_schema
from penstock.spark.lowering.context import SPARK_TIME, Context, column, from_spark, window_name, with_spark_time
from penstock.spark.lowering.fallible_expressions import checked
from penstock.spark.lowering.lower import lower
from penstock.spark.lowering.partitioning import carried_order
from penstock.spark.lowering.python.aggregators import aggregated, collected, finished, folded, reduced, running
from penstock.spark.lowering.side_outputs import divert_late_rows
from penstock.spark.lowering.window_buckets import BEST, best_rows, in_buckets, ranked
from penstock.spark.tasks.internal_columns import ASSIGNED_WINDOW, EVENT_TIME, ORDER
from penstock.windows import Window


@lower.register
def _deduplicate(node: Deduplicate, context: Context, frame: DataFrame) -> DataFrame:
    """Drop duplicates in buckets of keys; rows keep all their columns, the internal ones too.

    Spark's `dropDuplicatesWithinWatermark` compares rows with the watermark, so its result depends on where epochs end.
    """
    frame = divert_late_rows(frame, node, context)
    rows = input_schema(frame, node, context)
    output = Schema(tuple(field for field in rows if field.name != EVENT_TIME))
    dedup = Deduplicator(node.keys, node.within_us, EVENT_TIME)
    step = KeyedTables(dedup, dedup.keys, dedup.state_keys, expires_by_watermark=True)
    keys = [column(name) for name in node.keys]
    return bucketed_results(frame, keys, step, output, context, node)


@lower.register
def _distinct(node: Distinct, context: Context, frame: DataFrame) -> DataFrame:
    """Let Spark store whole rows and compare their bits: so -0.0 has to be 0.0, to which it is equal.

    Spark passes on the first of equal rows that it meets: so it gets rows in their order, which it leaves to them.
    """
    zeros = {name: F.lit(0.0) for name, kind in node.schema.types.items() if kind in ("float", "double")}
    names = list(node.schema.names)
    rows = frame.select(*(_unsigned(name, zeros) for name in names), *carried_order(frame, node))
    if ORDER in rows.columns:
        # The exchange is the one that Spark's operator needs.
        rows = rows.repartition(*map(column, names)).sortWithinPartitions(ORDER)
    return context.counted(rows.dropDuplicates(names), node)


def _unsigned(name: str, zeros: dict[str, Column]) -> Column:
    return (column(name) + zeros[name].cast("float")).alias(name) if name in zeros else column(name)


@lower.register
def _aggregate(node: Aggregate, context: Context, frame: DataFrame) -> DataFrame:
    frame = checked(divert_late_rows(frame, node, context), node, context)
    if node.bucketed:
        return in_buckets(frame, node, context)
    if node.window is None and node.python:
        return context.counted(running(frame, node, context), node)
    split = two_phase(node)
    if isinstance(split, str):
        return _results(aggregated(frame, node, partial(_grouped, node, context), context), node, context)
    return merged(_partials_of_rows(frame, node, split, context), node, split, context)


@lower.register
def _reduce(node: Reduce, context: Context, frame: DataFrame) -> DataFrame:
    frame = divert_late_rows(frame, node, context)
    if node.bucketed:
        return in_buckets(frame, node, context)
    if node.window is None:
        return context.counted(running(frame, node, context), node)
    return _results(reduced(frame, node, partial(_grouped, node, context), context), node, context)


@lower.register
def _top(node: Top, context: Context, frame: DataFrame) -> DataFrame:
    """Keep the best rows of a group in Spark's state; it drops the others before and after the shuffle."""
    frame = checked(divert_late_rows(frame, node, context), node, context)
    if node.bucketed:
        return in_buckets(frame, node, context)
    best = _grouped(node, context, frame).agg(F.expr(best_rows(node)).alias(BEST))
    return _results(ranked(best, node), node, context)


def _partials_of_rows(frame: DataFrame, node: Aggregate, split: TwoPhaseAggregate, context: Context) -> DataFrame:
    frame = folded(frame, node, context, split.fold_name)
    return frame.withColumns({split.name(i): F.expr(partial.of_row) for i, partial in enumerate(split.partials)})


def merged(frame: DataFrame, node: Aggregate, split: TwoPhaseAggregate, context: Context) -> DataFrame:
    """Merge partial results: those that the scan made, or those of single rows.

    Spark's state holds what is computed here in this order. Results stand behind the count, past which Spark moves
    nothing, so that the same merges are the same state whatever is made of them.
    """
    merges = [F.expr(sql).alias(name) for name, sql in split.merges]
    merges += [collected(split.fold_name(name), name) for name in split.folded]
    groups = context.counted(_grouped(node, context, frame).agg(*merges), node)
    results = groups.select("*", *(F.expr(sql).alias(name) for name, sql in split.finals))
    return _shaped(finished(results, node, context), node, context)


def _grouped(node: Grouped, context: Context, frame: DataFrame) -> GroupedData:
    """Group rows, or partial results of them, by keys and window."""
    keys = [column(name) for name in node.keys]
    if node.window is None:
        return frame.groupBy(*keys)
    frame = with_spark_time(frame, context, lag_us(node))
    window = _window(node.window, context, lag_us(node))
    if node.overlaps and context.watermark_column(node) in frame.columns:
        frame = _in_open_windows(frame.withColumn(ASSIGNED_WINDOW, window), node, context)
        window = column(ASSIGNED_WINDOW)
    # Spark refuses a session window that has no key beside it, and sees through a constant.
    always = F.pmod(F.unix_micros(column(EVENT_TIME)), F.lit(1)).alias("__penstock_all")
    alone = [always] if node.window.kind == "session" and not keys else []
    return frame.groupBy(*keys, *alone, window.alias(window_name(node)))


def _in_open_windows(frame: DataFrame, node: Grouped, context: Context) -> DataFrame:
    """Drop the closed ones of a row's windows: not by Spark's watermark, which other state in the query holds back."""
    end = F.unix_micros(from_spark(F.col(f"{ASSIGNED_WINDOW}.end"), context, -lag_us(node)))
    return frame.filter(end > F.col(context.watermark_column(node)) - F.lit(node.lateness_us))


def _window(window: Window, context: Context, later_us: int) -> Column:
    if window.kind == "session":
        return F.session_window(SPARK_TIME, f"{window.size_us} microseconds")
    # Windows begin where they do by the event time.
    offset = (window.offset_us + later_us - context.first_us) % window.slide_us
    size, slide, start = (f"{us} microseconds" for us in (window.size_us, window.slide_us, offset))
    return F.window(SPARK_TIME, size, slide, start)


def _results(frame: DataFrame, node: Grouped, context: Context) -> DataFrame:
    return context.counted(_shaped(frame, node, context), node)


def _shaped(frame: DataFrame, node: Grouped, context: Context) -> DataFrame:
    """Give results their window's bounds, and final ones their event time: the last instant of their window."""
    lag, window = lag_us(node), window_name(node)
    bounds = ("start", "end")
    columns = {f"window_{bound}": from_spark(F.col(f"{window}.{bound}"), context, -lag) for bound in bounds}
    given = [columns[n].alias(n) if node.window and n in columns else column(n) for n in node.schema.names]
    if node.event_time:
        given.append(from_spark(F.col(f"{window}.end"), context, -1 - lag).alias(EVENT_TIME))
    return frame.select(*given)
