"""Side outputs: where Spark meets rows that are late or bad, and a task stages them instead of passing them on.

The operator is a Python function that is given a row only when it must leave: for all others it sees nulls, so little
crosses to Python. It is marked as not deterministic, which keeps Spark from calling it twice or moving it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from penstock.plan.operators.joins import late_name
from penstock.plan.operators.node import Node
from penstock.rejected.rows import row_dicts
from penstock.spark.lowering.context import Context, row
from penstock.spark.tasks.internal_columns import EVENT_TIME
from penstock.spark.tasks.source_partitions import NewestByPartition
from penstock.spark.tasks.spark_types import array_function
from penstock.spark.tasks.staging import Staging, rejected_rows
from penstock.spark.tasks.task_context import current_epoch, current_partition
from penstock.windows import Window

Put = Callable[[int, str, pa.Table], None]
Reasons = Callable[[pa.Table], list[str]]


class NewestTimes(NamedTuple):
    """What a task needs to stage the newest time of each source partition: for which event time, and two columns."""

    key: str
    origin: Column
    at: Column


def reject_rows(
    frame: DataFrame, bad: Column, reasons: Reasons, node: Node, context: Context, newest: NewestTimes | None = None
) -> DataFrame:
    """Divert rows as rejected, each with its reason; of the others stage the newest times, if these are wanted."""
    name, staging, schema = context.name(node), context.staging, node.inputs[0].schema.nullable().arrow

    def put(epoch: int, part: str, rows: pa.Table) -> None:
        rows = rows.cast(schema)
        stage_rejected(staging, name, epoch, part, [*zip(reasons(rows), row_dicts(rows), strict=True)])

    if newest is None:
        return divert(frame, F.when(bad, row(node.inputs[0])), put)
    key = newest.key

    def put_times(epoch: int, part: str, times: dict[int, int]) -> None:
        staging.put_times(epoch, f"times={name}={part}", {key: times})

    return divert(frame, F.when(bad, row(node.inputs[0])), put, (newest.origin, newest.at), put_times)


def divert_late_rows(frame: DataFrame, node: Node, context: Context, side: str = "late") -> DataFrame:
    """Divert late rows, by the watermark that the scan ships with each row; a join has two sides."""
    if not context.streaming or side not in node.sides or context.watermark_column(node) not in frame.columns:
        # Rows of an earlier window cannot be late for a later one; nor can the scan's, if it separated them.
        return frame
    late = _is_late(node, F.col(context.watermark_column(node)))
    if context.again(node):
        return frame.filter(~F.coalesce(late, F.lit(False)))
    name, staging = late_name(context.name(node), side), context.staging
    source = node.inputs[node.sides.index(side)]
    schema = source.schema.nullable().arrow

    def put(epoch: int, part: str, rows: pa.Table) -> None:
        staging.put_rows(epoch, "late", name, part, rows.cast(schema))
        staging.put_counts(epoch, f"late={name}={part}", {name: {"late": rows.num_rows}})

    return divert(frame, F.when(late, row(source)), put)


def divert(
    frame: DataFrame,
    leaving: Column,
    put: Put,
    times: tuple[Column, ...] = (),
    put_times: Callable[[int, str, dict[int, int]], None] | None = None,
) -> DataFrame:
    """Take the rows out of a frame for which `leaving`, a struct of what to stage, is not null; tasks `put` them.

    With `times`, the source partition and the event time of a row, tasks also stage the newest time of each partition
    among the rows that stay.
    """

    def side_output(rows: Iterator[Any]) -> Iterator[pa.Array]:
        found, newest = [], NewestByPartition()
        for given in rows:
            batch, *timed = given if isinstance(given, tuple) else (given,)
            if batch.null_count < len(batch):
                found.append(pa.Table.from_struct_array(batch.drop_null()))
            if timed:
                origins, at = timed
                newest.add(origins, at, batch.is_valid())
            yield batch.is_null()
        epoch, part = current_epoch(), str(current_partition())
        if found:
            put(epoch, part, pa.concat_tables(found))
        if newest.found and put_times is not None:
            put_times(epoch, part, newest.found)

    stays = array_function(side_output, "boolean", inputs=1 + len(times)).asNondeterministic()
    return frame.filter(stays(leaving, *times))


def stage_rejected(
    staging: Staging, name: str, epoch: int, part: str, rejected: list[tuple[str, dict[str, Any]]]
) -> None:
    """Stage the rejected rows of a task, each with its reason, and their count."""
    staging.put_rows(epoch, "rejected", name, part, rejected_rows(name, epoch, rejected))
    staging.put_counts(epoch, f"rejected={name}={part}", {name: {"rejected": len(rejected)}})


def _is_late(node: Node, watermark: Column) -> Column:
    watermark = watermark - F.lit(node.lateness_us)
    time = F.unix_micros(F.col(EVENT_TIME))
    if node.window is None:
        return time < watermark
    return time < _late_before(node.window, watermark)


def _late_before(window: Window, watermark: Column) -> Column:
    """The same bound as in the native lane (`Window.late_before`), as a Spark expression."""
    if window.kind == "session":
        return watermark - F.lit(window.size_us - 1)
    past = watermark - F.lit(window.size_us + window.offset_us)
    step = F.lit(window.slide_us)
    return past - F.pmod(past, step) + step + F.lit(window.offset_us)
