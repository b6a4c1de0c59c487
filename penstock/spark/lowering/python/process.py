"""Process functions on Spark: the same engine as in tests, over buckets of keys."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from penstock.keyed.process_operator import MAIN, ProcessOperator, ProcessResult
from penstock.plan.operators.process import KeyedProcess
from penstock.spark.lowering.buckets import Invocation, bucketed
from penstock.spark.lowering.context import Context, carried_columns, column
from penstock.spark.lowering.lower import lower
from penstock.spark.lowering.python.functions import OUT, counted_outputs, flat_schema
from penstock.spark.lowering.side_outputs import divert_late_rows
from penstock.spark.tasks.internal_columns import EVENT_TIME, ORDER
from penstock.spark.tasks.staging import Staging, rejected_rows
from penstock.spark.tasks.task_context import current_epoch


@lower.register
def _process(node: KeyedProcess, context: Context, frame: DataFrame) -> DataFrame:
    frame = divert_late_rows(frame, node, context)
    rows = frame if context.packed_rows(node) else _needed(frame, node)
    output = flat_schema(node)
    keys = [column(name) for name in node.keys]
    step = _Step(_keyed(node, context), context.name(node), output.nullable().arrow, context.staging)
    made = bucketed(rows, keys, step, output, context, node, timed=node.event_time)
    made = made.select(F.struct(*map(column, output.names)).alias(OUT), *carried_columns(made))
    return counted_outputs(made, node, context)


def _needed(frame: DataFrame, node: KeyedProcess) -> DataFrame:
    kept = [name for name in (EVENT_TIME, ORDER) if name in frame.columns]
    return frame.select(*map(column, node.input.schema.names), *map(column, kept))


def _keyed(node: KeyedProcess, context: Context) -> ProcessOperator:
    return ProcessOperator(
        process=node.process,
        keys=node.keys,
        names=node.input.schema.names,
        time=EVENT_TIME if node.input.event_time else None,
        rejects=context.rejects if node.on_error is None else node.on_error == "reject",
        label=context.graph.label(node),
    )


@dataclass(frozen=True)
class _Step:
    """What a task does with a bucket."""

    expires_by_watermark: ClassVar[bool] = False
    keyed: ProcessOperator
    node: str
    made: pa.Schema
    staging: Staging

    def __call__(self, call: Invocation) -> Iterator[pa.Table]:
        turned = self.keyed.run(call.rows, call.store, call.watermark_us, call.now_us, ended=call.ended)
        call.store = turned.store
        self._refuse(turned, call.bucket)
        for output, (table, times) in turned.tables.items():
            yield self._shaped(output, table, times)

    def _refuse(self, turned: ProcessResult, bucket: int) -> None:
        if turned.refused:
            epoch, part = current_epoch(), f"bucket{bucket}"
            self.staging.put_rows(epoch, "rejected", self.node, part, rejected_rows(self.node, epoch, turned.refused))
            self.staging.put_counts(epoch, f"{self.node}={part}", {self.node: {"rejected": len(turned.refused)}})

    def _shaped(self, output: str, table: pa.Table, times: list[int]) -> pa.Table:
        """Return rows as one column for each output; only theirs is set."""
        mine = output if output == MAIN else f"side_{output}"
        whole = table.combine_chunks()
        rows = pa.StructArray.from_arrays(
            [column.combine_chunks() for column in whole.columns], fields=list(self.made.field(mine).type)
        )
        columns = {name: pa.nulls(table.num_rows, self.made.field(name).type) for name in self.made.names}
        columns[mine] = rows
        if self.keyed.time:
            columns[EVENT_TIME] = pa.array(times, pa.timestamp("us", "UTC"))
        return pa.table(columns)
