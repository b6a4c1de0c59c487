"""Partitioning: exchanges that keep rows in order between a source and a keyed sink, and the partitions of sinks.

Spark's `repartition(n)` sorts rows by their content, and the reader of a shuffle gets blocks in any order. So branches
share rows through an exchange that keeps the rows of a task together, and rows carry what a keyed sink orders them by:
their position in the source, or, out of a stateful operator, their event time.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, DoubleType, FloatType, MapType, StructType, VariantType

from penstock.contracts import ROW_KEY
from penstock.plan.operators.node import Node
from penstock.plan.operators.stateless import Write
from penstock.plan.physical.determinism import replay_key, varies_in_replay
from penstock.spark.lowering.context import column
from penstock.spark.tasks.internal_columns import EVENT_TIME, ORDER, PREFIX, internal_columns

_TARGET = PREFIX + "target"


def exchanged(frame: DataFrame, partitions: int) -> DataFrame:
    """Send all rows of each task to one of so many partitions, in their order."""
    numbered = frame.withColumn(_TARGET, F.pmod(F.spark_partition_id(), F.lit(partitions)))
    return numbered.repartitionById(partitions, _TARGET).drop(_TARGET)


def in_source_order(write: Write) -> set[Node]:
    """Return the sources whose rows reach a keyed sink without a stateful operator that changes their order."""
    return _sources(write.input) if write.sink.keyed else set()


def ordering(frame: DataFrame, write: Write) -> list[Column]:
    """Return the column that orders the rows of a keyed sink; none if tasks return them in order."""
    if not write.sink.keyed:
        return []
    if ORDER in frame.columns:
        return [column(ORDER)]
    return [column(EVENT_TIME)] if EVENT_TIME in frame.columns and _lost_order(write.input) else []


def with_order(frame: DataFrame, node: Node) -> DataFrame:
    """Add the order by event time to the rows of a node, if they have none and tasks return them in any order."""
    if ORDER in frame.columns or EVENT_TIME not in frame.columns or not _lost_order(node):
        return frame
    return frame.withColumn(ORDER, time_order(column(EVENT_TIME)))


def carried_order(frame: DataFrame, node: Node) -> list[Column]:
    """Return what a node whose results have no event time carries, so that they stay in the order of its input."""
    if ORDER in frame.columns:
        return [column(ORDER)]
    by_time = EVENT_TIME in frame.columns and any(_last_stateful(one) for one in node.inputs)
    return [time_order(column(EVENT_TIME))] if by_time else []


def time_order(time: Column) -> Column:
    """Return the column that orders rows by this time."""
    return F.unix_micros(time).alias(ORDER)


def _lost_order(node: Node) -> bool:
    """Return whether rows come from a stateful operator that returns them in any order, on one path at least."""
    return any(not one.emits_in_order for one in _last_stateful(node))


def _last_stateful(node: Node) -> set[Node]:
    """Return the last stateful operator of each path to a node."""
    return {node} if node.stateful else {found for one in node.inputs for found in _last_stateful(one)}


def _sources(node: Node) -> set[Node]:
    if not node.inputs:
        return {node}
    if not node.keeps_order:
        return set()
    return {source for one in node.inputs for source in _sources(one)}


# Each row carries the number of its sink partition: that of the task depends on what else the query writes.
PARTITION = PREFIX + "partition"
# The number of a row within its task: rows that come from one row would have equal positions without it.
_NUMBER = PREFIX + "number"


def to_sink_partitions(frame: DataFrame, write: Write, cores: int, *, keeps_splits: bool) -> DataFrame:
    """Split an output into as many partitions as its sink asks for; the rows of a key keep their order.

    With `keeps_splits` the rows stay in the tasks that have read them.

    A keyed sink that asks for none gets one per core: its rows, too, must not be written by several tasks.
    An exchange returns the blocks of its tasks in any order, so ordered rows carry the column that orders them.
    """
    order = internal_columns(frame.columns)
    partitions = write.sink.partitions or (cores if write.sink.keyed else None)
    if partitions is None or keeps_splits:
        return frame.drop(*order)
    names = _partition_columns(frame, write)
    number = F.pmod(F.xxhash64(*map(column, names)), F.lit(partitions)) if names else F.lit(0)
    numbered = frame.withColumn(PARTITION, number.cast("int"))
    if not write.sink.keyed:
        return numbered.repartitionById(partitions, PARTITION)
    numbered = numbered.withColumn(_NUMBER, F.monotonically_increasing_id())
    partitioned = numbered.repartitionById(partitions, PARTITION)
    return partitioned.sortWithinPartitions(*order, _NUMBER).drop(*order, _NUMBER)


def _partition_columns(frame: DataFrame, write: Write) -> list[str]:
    """Return the columns that choose a row's partition: those of a key, else all that a replay cannot change."""
    if write.sink.row_key is not None:
        return [ROW_KEY]
    if write.sink.key:
        # Without a column that is stable all rows go to one partition, for those of a key must not be split.
        return _stable_columns(frame, write.sink.key)
    # A text may show the last digit of a sum of doubles: without a key of the group, all rows go to one partition too.
    content = () if varies_in_replay(write.input) else write.schema.names
    choices = (write.input.key, replay_key(write.input), content)
    return next(filter(None, (_stable_columns(frame, names) for names in choices)), [])


def _stable_columns(frame: DataFrame, names: Iterable[str]) -> list[str]:
    return [name for name in names if _stable(frame.schema[name].dataType)]


def _stable(kind: DataType) -> bool:
    """Return whether equal values hash alike: sums of doubles differ in the last bit, and maps have no order."""
    if isinstance(kind, StructType):
        return all(_stable(field.dataType) for field in kind.fields)
    if isinstance(kind, ArrayType):
        return _stable(kind.elementType)
    return not isinstance(kind, FloatType | DoubleType | MapType | VariantType)
