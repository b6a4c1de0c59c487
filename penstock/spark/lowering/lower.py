"""One lowering per node: from the plan to Spark DataFrames. Anything that is not declared here is refused."""

from __future__ import annotations

from functools import singledispatch

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from penstock.errors import PipelineError
from penstock.native.steps import reasons as time_reasons
from penstock.plan.graph import upstream
from penstock.plan.operators.explode import Explode
from penstock.plan.operators.node import Node
from penstock.plan.operators.stateless import Drop, EventTime, Filter, Rename, Select, Union, WithColumns
from penstock.plan.physical.queries import needs_watermark, time_key
from penstock.spark.lowering.context import Context, carried_columns, column, time_column, to_spark
from penstock.spark.lowering.fallible_expressions import attempted, without_attempts
from penstock.spark.lowering.side_outputs import NewestTimes, reject_rows
from penstock.spark.tasks.internal_columns import EVENT_TIME, ORDER, ORIGIN, TICK, WATERMARK


@singledispatch
def lower(node: Node, context: Context, *inputs: DataFrame) -> DataFrame:
    """Return the rows of a node as a DataFrame."""
    message = f"{node.kind} has no lowering to Spark"
    raise PipelineError(message, node=context.name(node))


@lower.register
def _select(node: Select, context: Context, frame: DataFrame) -> DataFrame:
    frame, values = attempted(frame, node, context, [sql for _, sql in node.columns])
    chosen = [value.alias(name) for (name, _), value in zip(node.columns, values, strict=True)]
    return frame.select(*chosen, *carried_columns(frame))


@lower.register
def _with_columns(node: WithColumns, context: Context, frame: DataFrame) -> DataFrame:
    frame, values = attempted(frame, node, context, [sql for _, sql in node.columns])
    new = dict(zip(dict(node.columns), values, strict=True))
    chosen = [new[n].alias(n) if n in new else column(n) for n in node.schema.names]
    return frame.select(*chosen, *carried_columns(frame))


@lower.register
def _filter(node: Filter, context: Context, frame: DataFrame) -> DataFrame:
    frame, (condition,) = attempted(frame, node, context, [node.condition])
    return context.counted(without_attempts(frame.filter(condition)), node)


@lower.register
def _explode(node: Explode, context: Context, frame: DataFrame) -> DataFrame:
    call = {"explode": F.explode, "posexplode": F.posexplode, "inline": F.inline}
    outer = {"explode": F.explode_outer, "posexplode": F.posexplode_outer, "inline": F.inline_outer}
    frame, (value,) = attempted(frame, node, context, [node.argument])
    made = (outer if node.outer else call)[node.function](value).alias(*node.names)
    rows = frame.select(*map(column, node.input.schema.names), *carried_columns(frame), made)
    return context.counted(without_attempts(rows), node)


@lower.register
def _drop(node: Drop, context: Context, frame: DataFrame) -> DataFrame:
    return frame.select(*map(column, node.schema.names), *carried_columns(frame))


@lower.register
def _rename(node: Rename, context: Context, frame: DataFrame) -> DataFrame:
    old = dict(node.names)
    renamed = [column(old.get(name, name)).alias(name) for name in node.schema.names]
    return frame.select(*renamed, *carried_columns(frame))


@lower.register
def _union(node: Union, context: Context, *frames: DataFrame) -> DataFrame:
    # Results of state have no position in a source: then nothing of the union is ordered by it.
    # So with their partition: then the union has one watermark, whatever partitions there are.
    missing = [name for name in (ORDER, ORIGIN) if not all(name in frame.columns for frame in frames)]
    first, *others = (frame.drop(*missing) for frame in frames)
    for other in others:
        first = first.unionByName(other)
    return first


@lower.register
def _event_time(node: EventTime, context: Context, frame: DataFrame) -> DataFrame:
    return watermarked(timed(frame, node, context), node, context)


def timed(frame: DataFrame, node: EventTime, context: Context) -> DataFrame:
    """Give rows their event time, and reject those without one; Spark does not know of it yet."""
    frame = _with_usable_times(frame, node, context).drop(ORIGIN)
    return frame.select(
        *map(column, node.schema.names),
        *carried_columns(frame),
        column(node.column).alias(EVENT_TIME),
        F.lit(False).alias(TICK),
    )


def watermarked(frame: DataFrame, node: EventTime, context: Context, *, ticks: bool = True) -> DataFrame:
    """Let Spark follow the largest time of rows and clock, whatever is filtered later.

    Spark pushes filters below a watermark, which would make it depend on them; the count that stands between is a
    barrier that nothing is pushed past.
    """
    if ticks and context.clock is not None:
        mine = column("only").isNull() | (column("only") == F.lit(time_key(node)))
        frame = frame.unionByName(_ticks(frame, context.clock.filter(mine)))
    if not any(needs_watermark(one) and node in upstream(one) for one in context.nodes or context.graph.nodes):
        # No node here waits for this time, so it must not hold up others.
        return context.counted(frame, node).filter(~column(TICK)).drop(TICK)
    # Spark counts in milliseconds; it must not be ahead of the watermarks by which rows are late.
    delay_ms = -(-(node.max_delay_us + context.lateness_us(node)) // 1000)
    name = time_column(node, context)
    timed = frame.withColumn(name, to_spark(column(EVENT_TIME), context))
    delayed = timed.withWatermark(name, f"{delay_ms + _holds_sessions(node, context)} milliseconds")
    return context.counted(delayed, node).filter(~column(TICK)).drop(TICK, name)


def _holds_sessions(node: EventTime, context: Context) -> int:
    """Return 1, a millisecond, if a session follows: a row that is exactly a gap after its last one still joins it.

    Spark ends a session when its watermark has reached its end; a row at the watermark is not late.
    """
    nodes = context.nodes or context.graph.nodes
    windows = (one.window for one in nodes if one.window is not None and node in upstream(one))
    return int(any(window.kind == "session" for window in windows))


def _with_usable_times(frame: DataFrame, node: EventTime, context: Context) -> DataFrame:
    """Reject rows whose time is missing or out of range."""
    if not context.calls_python:
        return frame
    times = context.time_range(node)
    at = F.unix_micros(column(node.column))
    bad = F.coalesce((at < F.lit(times.first_us)) | (at >= F.lit(times.end_us)), F.lit(True))
    name = node.column
    newest = None
    if ORIGIN in frame.columns:
        context.partitioned.add(node)
        newest = NewestTimes(time_key(node), column(ORIGIN), at)
    return reject_rows(frame, bad, lambda rows: time_reasons(name, rows.column(name), times), node, context, newest)


def _ticks(timed: DataFrame, clock: DataFrame) -> DataFrame:
    zero = F.lit(0).cast("bigint")
    special = {EVENT_TIME: column("at"), TICK: F.lit(True), ORDER: zero}
    special |= {name: zero for name in timed.columns if name.startswith(WATERMARK)}
    return clock.select(
        *(special.get(field.name, F.lit(None).cast(field.dataType)).alias(field.name) for field in timed.schema.fields)
    )
