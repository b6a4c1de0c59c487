"""Event time as Spark's watermark counts it.

Spark's watermark starts at 0, in 1970, and never goes back, so rows before 1970 would be late from the start. What
Spark compares with its watermark is therefore a column of its own: microseconds since `first_us`, the year 1. The
event time of rows, of marks and of results stays what it is. Checkpoints from before have `first_us` 0.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from penstock.plan.nodes import EventTime
from penstock.plan.stateful import Grouped
from penstock.spark.hidden import EVENT_TIME, OTHER_WINDOW, PREFIX
from penstock.spark.lowering.context import Context, column

SPARK_TIME = PREFIX + "spark_time"
DELAY_KEY = "spark.watermarkDelayMs"


def time_column(node: EventTime, context: Context) -> str:
    """Return the column by which Spark follows an event time; its watermark operator is found by that name."""
    return f"{SPARK_TIME}_{context.nodes.index(node)}" if node in context.nodes else SPARK_TIME


def to_spark(time: Column, context: Context, later_us: int = 0) -> Column:
    """Return an event time as Spark counts it, so much later."""
    return F.timestamp_micros(F.unix_micros(time) + F.lit(later_us - context.first_us))


def from_spark(time: Column, context: Context, later_us: int = 0) -> Column:
    """Return what Spark counts as an event time, so much later."""
    return F.timestamp_micros(F.unix_micros(time) + F.lit(later_us + context.first_us))


def known_to_spark(time: Column, name: str) -> Column:
    """Let Spark know that a column is one that its watermark is compared with."""
    return time.alias(name, metadata={DELAY_KEY: 0})


def with_spark_time(frame: DataFrame, context: Context, later_us: int = 0) -> DataFrame:
    """Add the column for Spark's own windows, so much later than the event time."""
    return frame.withColumn(SPARK_TIME, known_to_spark(to_spark(column(EVENT_TIME), context, later_us), SPARK_TIME))


def window_name(node: Grouped) -> str:
    """Return what Spark's window is called in its state: as ever, unless a column of the results has that name."""
    return OTHER_WINDOW if "window" in node.schema.names else "window"
