"""Joins with a table: Spark's own broadcast hash join, over a source that reads the version for the epoch.

Spark plans the table's source once and reads it in every epoch, where the task finds the version by the epoch's number.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from penstock.connectors.tables.source import TableSource
from penstock.errors import PenstockError
from penstock.plan.operators.joins import JoinTable
from penstock.schema import Field, Schema
from penstock.spark.lowering.context import Context, carried_columns, column
from penstock.spark.lowering.lower import lower
from penstock.spark.lowering.table_versions import UNTIL, Versions
from penstock.spark.tasks.internal_columns import EVENT_TIME, PREFIX
from penstock.spark.tasks.staging import Staging
from penstock.spark.tasks.task_context import current_epoch
from penstock.storage.folders import Folder

_HOW = {"semi": "left_semi", "anti": "left_anti"}
T = PREFIX + "t_"
# More than the epochs that Spark retains by default.
KEPT_EPOCHS = 200


@lower.register
def _join_table(node: JoinTable, context: Context, frame: DataFrame) -> DataFrame:
    paired = node.paired
    table = _table(node, context)
    # Names of its own keep the table's columns apart from the stream's, whatever they are called.
    renamed = table.select(*(column(name).alias(f"{T}{name}") for name in table.columns))
    same = [column(left) == _of(right) for left, right in node.on]
    met = frame.join(F.broadcast(renamed), [*same, *_applies(node)], _HOW.get(node.how, node.how))
    rest = [_of(name).alias(new) for name, new in paired.rest.items()]
    return context.counted(met.select(*map(column, paired.left.names), *rest, *carried_columns(frame)), node)


def _applies(node: JoinTable) -> list[Column]:
    """Return the condition that a version of a row applied at the stream's event time."""
    if not node.asof or node.valid_from is None:
        return []
    time, since, until = column(EVENT_TIME), _of(node.valid_from), _of(UNTIL)
    found = [since <= time, until.isNull() | (time < until)]
    if node.max_age_us is not None:
        found.append(F.unix_micros(time) - F.unix_micros(since) <= F.lit(node.max_age_us))
    return found


def _of(name: str) -> Column:
    return F.col(f"`{T}{name.replace('`', '``')}`")


def versions_folder(node: JoinTable, context: Context) -> Folder:
    """Return the folder of the versions of a join's table."""
    return context.staging.folder / "tables" / context.name(node)


def _table(node: JoinTable, context: Context) -> DataFrame:
    name = context.name(node)
    assert isinstance(node.table, TableSource)
    versions = Versions(
        folder=versions_folder(node, context),
        source=node.table,
        key=node.table_key,
        valid_from=node.valid_from,
        refresh_s=node.refresh_us / 1_000_000,
        kept_epochs=KEPT_EPOCHS,
        max_staleness_s=node.max_staleness_us / 1_000_000,
        label=context.graph.label(node),
    )
    more = (Field(UNTIL, "timestamp"),) if node.valid_from else ()
    reader = _Reader(versions, Schema((*node.table.schema.fields, *more)).nullable(), context.staging)
    format = f"penstock-table-{name}"
    context.spark.dataSource.register(_data_source(format, reader))
    return context.spark.read.format(format).load()


@dataclass(frozen=True)
class _Reader(DataSourceReader):
    """Reads the version that the task's epoch sees."""

    versions: Versions
    shape: Schema
    staging: Staging

    def partitions(self) -> list[InputPartition]:
        """One: the table is small."""
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read it."""
        epoch = current_epoch()
        try:
            rows = self.versions.seen_by(epoch)
        except PenstockError as error:
            self.staging.put_error(epoch, error)
            raise
        yield from rows.select(self.shape.names).cast(self.shape.arrow).to_batches(max_chunksize=65_536)


def _data_source(format: str, reader: _Reader) -> type[DataSource]:
    class Bound(DataSource):
        @classmethod
        def name(cls) -> str:
            return format

        def schema(self) -> str:
            return reader.shape.ddl

        def reader(self, schema: Any) -> DataSourceReader:
            return reader

    return Bound
