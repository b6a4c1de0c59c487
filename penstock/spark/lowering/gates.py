"""Gates: where Spark itself meets rows that are late or lack a time, and a task puts them aside.

The gate is a Python function that is given a row only when it must go: for all others it sees nulls, so little crosses
to Python. It is marked as not deterministic, which keeps Spark from calling it twice or moving it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from penstock.plan.joins import late_name
from penstock.plan.node import Node
from penstock.plan.stateful import Grouped
from penstock.rejected.rows import row_dicts
from penstock.spark.epochs.origins import NewestByOrigin
from penstock.spark.epochs.scan import current_epoch, current_partition
from penstock.spark.epochs.staging import rejected_rows
from penstock.spark.hidden import EVENT_TIME
from penstock.spark.lowering.context import Context, row
from penstock.spark.udf import array_function
from penstock.windows import Window

Put = Callable[[int, str, pa.Table], None]
Reasons = Callable[[pa.Table], list[str]]


class NewestTimes(NamedTuple):
    """What a gate needs to know the newest time of each partition: for which event time, and two columns."""

    key: str
    origin: Column
    at: Column


def reject_where(
    frame: DataFrame, bad: Column, reasons: Reasons, node: Node, context: Context, newest: NewestTimes | None = None
) -> DataFrame:
    """Put rows aside as rejected, each with its reason; of the others leave the newest times, if these are wanted."""
    name, staging = context.name(node), context.staging

    def put(epoch: int, part: str, rows: pa.Table) -> None:
        table = rejected_rows(name, epoch, [*zip(reasons(rows), row_dicts(rows), strict=True)])
        staging.put_rows(epoch, "rejected", name, part, table)
        staging.put_counts(epoch, f"gate={name}={part}", {name: {"rejected": rows.num_rows}})

    if newest is not None:
        return _timed_gate(frame, bad, node, put, newest, context)
    return _gate(frame, bad, node.inputs[0], put)


def late_aside(frame: DataFrame, node: Node, context: Context, side: str = "late") -> DataFrame:
    """Put late rows aside, by the watermark that the scan ships with each row; a join has two sides."""
    if not context.streaming or side not in node.sides or context.mark_column(node) not in frame.columns:
        # Rows of an earlier window cannot be late for a later one; nor can the scan's, if it parted them.
        return frame
    name, staging = late_name(context.name(node), side), context.staging

    def put(epoch: int, part: str, rows: pa.Table) -> None:
        staging.put_rows(epoch, "late", name, part, rows)
        staging.put_counts(epoch, f"gate={name}={part}", {name: {"late": rows.num_rows}})

    late = _is_late(node, F.col(context.mark_column(node)))
    if context.again(node):
        return frame.filter(~F.coalesce(late, F.lit(False)))
    return _gate(frame, late, node.inputs[node.sides.index(side)], put)


def _gate(frame: DataFrame, out: Column, node: Node, put: Put) -> DataFrame:
    schema = node.schema.nullable().arrow

    def gate(rows: Iterator[pa.Array]) -> Iterator[pa.Array]:
        found = []
        for batch in rows:
            if batch.null_count < len(batch):
                found.append(pa.Table.from_struct_array(batch.drop_null()))
            yield batch.is_null()
        if found:
            put(current_epoch(), str(current_partition()), pa.concat_tables(found).cast(schema))

    keep = array_function(gate, "boolean").asNondeterministic()
    return frame.filter(keep(F.when(out, row(node))))


def _timed_gate(
    frame: DataFrame, out: Column, node: Node, put: Put, newest: NewestTimes, context: Context
) -> DataFrame:
    """The same, and the task leaves the newest time of each partition among the rows that stay."""
    schema, name, key, staging = node.inputs[0].schema.nullable().arrow, context.name(node), newest.key, context.staging

    def gate(rows: Iterator[tuple[pa.Array, pa.Array, pa.Array]]) -> Iterator[pa.Array]:
        found, times = [], NewestByOrigin()
        for batch, origins, at in rows:
            if batch.null_count < len(batch):
                found.append(pa.Table.from_struct_array(batch.drop_null()))
            times.add(origins, at, batch.is_valid())
            yield batch.is_null()
        epoch, part = current_epoch(), str(current_partition())
        if found:
            put(epoch, part, pa.concat_tables(found).cast(schema))
        if times.found:
            staging.put_times(epoch, f"times={name}={part}", {key: times.found})

    keep = array_function(gate, "boolean", inputs=3).asNondeterministic()
    return frame.filter(keep(F.when(out, row(node.inputs[0])), newest.origin, newest.at))


def _is_late(node: Node, watermark: Column) -> Column:
    watermark = watermark - F.lit(getattr(node, "lateness_us", 0))
    time = F.unix_micros(F.col(EVENT_TIME))
    if not isinstance(node, Grouped):
        return time < watermark
    assert node.window is not None
    return time < _late_before(node.window, watermark)


def _late_before(window: Window, watermark: Column) -> Column:
    """The same bound as in the native lane (`last_end_to_start`), as a Spark expression."""
    if window.kind == "session":
        return watermark - F.lit(window.size_us - 1)
    past = watermark - F.lit(window.size_us + window.offset_us)
    step = F.lit(window.slide_us)
    return past - F.pmod(past, step) + step + F.lit(window.offset_us)
