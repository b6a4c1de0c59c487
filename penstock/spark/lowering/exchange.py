"""What keeps rows in order on their way from a source to a keyed sink.

Spark's `repartition(n)` sorts rows by their content, and the reader of a shuffle gets blocks in any order. So branches
share rows through an exchange that leaves the rows of a task together, and rows carry what a keyed sink orders them by:
their position in the source, or, out of a stateful operator, their event time.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from penstock.plan.graph import upstream
from penstock.plan.node import Node
from penstock.plan.nodes import Read, Write
from penstock.plan.stateful import Deduplicate
from penstock.spark.hidden import EVENT_TIME, ORDER, PREFIX
from penstock.spark.lowering.context import column

_TARGET = PREFIX + "target"


def exchanged(frame: DataFrame, partitions: int) -> DataFrame:
    """Send all rows of each task to one of so many partitions, in their order."""
    numbered = frame.withColumn(_TARGET, F.pmod(F.spark_partition_id(), F.lit(partitions)))
    return numbered.repartitionById(partitions, _TARGET).drop(_TARGET)


def in_source_order(write: Write) -> set[Node]:
    """Return the sources whose rows reach a keyed sink without a stateful operator that changes their order."""
    return _sources(write.input) if write.sink.keyed else set()


def ordering(frame: DataFrame, write: Write) -> list[Column]:
    """Return the column that orders the rows of a keyed sink; none if the tasks give them in order."""
    if not write.sink.keyed:
        return []
    if ORDER in frame.columns:
        return [column(ORDER)]
    # What Python computes for a bucket of keys comes key by key, in order.
    stateful = next((node for node in upstream(write) if node.stateful), None)
    by_time = EVENT_TIME in frame.columns and stateful is not None and not stateful.bucketed
    return [column(EVENT_TIME)] if by_time else []


def _sources(node: Node) -> set[Node]:
    if isinstance(node, Read):
        return {node}
    if node.stateful and not isinstance(node, Deduplicate):
        return set()
    return {source for one in node.inputs for source in _sources(one)}
