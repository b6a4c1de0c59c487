"""Joins of two streams, as Spark's own: both sides wait in its state until the watermark has passed every match.

Each side goes in as its keys, its time and one struct with the rest, so that state keeps its form whatever is selected
after it. For Spark a row at the watermark is late, for Penstock only a row before it: hence the microsecond.
"""

from __future__ import annotations

from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from penstock.plan.operators.joins import LATE, Join, Paired
from penstock.plan.physical.watermark_lag import lag_us
from penstock.spark.lowering.context import Context, column, from_spark, known_to_spark, to_spark
from penstock.spark.lowering.lower import lower
from penstock.spark.lowering.partitioning import time_order
from penstock.spark.lowering.side_outputs import divert_late_rows
from penstock.spark.tasks.internal_columns import EVENT_TIME, PREFIX
from penstock.windows import Window

_HOW = {"semi": "left_semi", "anti": "left", "full": "full_outer"}
L, R = PREFIX + "l_", PREFIX + "r_"


@lower.register
def _join(node: Join, context: Context, left: DataFrame, right: DataFrame) -> DataFrame:
    left, right = (
        divert_late_rows(frame, node, context, side) for frame, side in zip((left, right), LATE, strict=True)
    )
    paired = node.paired
    rest = list(paired.rest) if node.how != "anti" else []
    mine = _side(left, L, [key for key, _ in node.on], paired.left.names, node, context)
    other = _side(right, R, [key for _, key in node.on], rest, node, context)
    met = mine.join(other, _condition(node, context), _HOW.get(node.how, node.how))
    if node.how == "anti":
        met = met.filter(F.col(f"{R}time").isNull())
    return _result(context.counted(met, node), node, context)


def _side(
    frame: DataFrame, prefix: str, keys: list[str], names: tuple[str, ...] | list[str], node: Join, context: Context
) -> DataFrame:
    """Return one side: keys, time a microsecond later, if there is one, and the rest of what results need of it."""
    parts = [column(name).alias(f"{prefix}k{number}") for number, name in enumerate(keys)]
    if EVENT_TIME in frame.columns:
        time, name = to_spark(column(EVENT_TIME), context, _later_us(node)), f"{prefix}time"
        # Without a bound no row is late, so Spark must not compare it with its watermark.
        parts.append(time.alias(name) if node.unbounded else known_to_spark(time, name))
    if isinstance(node.within, Window) and node.within.kind == "tumbling":
        parts.append(_start(F.unix_micros(column(EVENT_TIME)), node.within).alias(f"{prefix}w"))
    rest = [column(name) for name in names if name not in keys]
    if rest:
        parts.append(F.struct(*rest).alias(f"{prefix}row"))
    if node.unbounded:
        # A null key never meets another, and what is kept is kept for ever.
        frame = frame.filter(reduce(and_, (column(name).isNotNull() for name in keys)))
    return frame.select(*parts)


def _later_us(node: Join) -> int:
    return 1 + lag_us(node)


def _condition(node: Join, context: Context) -> Column:
    pairs = [(F.col(f"{L}k{number}"), F.col(f"{R}k{number}")) for number in range(len(node.on))]
    # Spark's state takes null keys for equal, so the condition says that they are not.
    keys = [(left == right) & left.isNotNull() & right.isNotNull() for left, right in pairs]
    if node.unbounded:
        return reduce(and_, keys)
    low, high = (F.expr(f"interval {us} microseconds") for us in node.interval)
    left, right = F.col(f"{L}time"), F.col(f"{R}time")
    near = (right >= left + low) & (right <= left + high)
    window = node.within
    if isinstance(window, Window) and window.kind == "tumbling":
        near = (F.col(f"{L}w") == F.col(f"{R}w")) & near
    elif isinstance(window, Window):
        # The last window that has the earlier row is the one that reaches farthest.
        both = (each(left, right) for each in (F.least, F.greatest))
        first, last = (F.unix_micros(from_spark(time, context, -_later_us(node))) for time in both)
        near = near & (last < _start(first, window) + F.lit(window.size_us))
    return reduce(lambda found, key: key & found, keys, near)


def _start(time_us: Column, window: Window) -> Column:
    """Return where the last window begins that a time is in."""
    shifted = time_us - F.lit(window.offset_us)
    return time_us - F.pmod(shifted, F.lit(window.slide_us))


def _result(met: DataFrame, node: Join, context: Context) -> DataFrame:
    """Give results their own columns, and their event time; those of a full join only have an order by time."""
    paired = node.paired
    given = [*_left_columns(paired), *(F.col(f"{R}row.{_quoted(n)}").alias(new) for n, new in paired.rest.items())]
    if node.event_time:
        time = F.col(f"{R if node.how == 'right' else L}time")
        given.append(from_spark(time, context, -_later_us(node)).alias(EVENT_TIME))
    elif node.how == "full":
        given.append(time_order(F.coalesce(F.col(f"{L}time"), F.col(f"{R}time"))))
    return met.select(*given)


def _left_columns(paired: Paired) -> list[Column]:
    keys = [key for key, _ in paired.on]
    found = []
    for name in paired.left.names:
        if name not in keys:
            found.append(F.col(f"{L}row.{_quoted(name)}").alias(name))
            continue
        number = keys.index(name)
        key = F.col(f"{L}k{number}")
        if paired.how in ("right", "full"):
            key = F.coalesce(key, F.col(f"{R}k{number}"))
        found.append(key.alias(name))
    return found


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"
