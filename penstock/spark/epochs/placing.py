"""Rows to the partitions of a sink that writes by partition: each by its content, always to the same one, in order."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, DoubleType, FloatType, MapType, StructType, VariantType

from penstock.contracts import ROW_KEY
from penstock.plan.nodes import Write
from penstock.plan.replay import naming_columns
from penstock.spark.hidden import PREFIX, hidden
from penstock.spark.lowering.context import column

# The number of the partition travels with each row: that of the task depends on what else the query writes.
PARTITION = PREFIX + "partition"
# The number of a row among those of its task: rows that were made of one row have the same place otherwise.
_NUMBER = PREFIX + "number"


def placed(frame: DataFrame, write: Write) -> DataFrame:
    """Cut an output into as many partitions as its sink asks for; the rows of a key keep their order.

    An exchange gives the blocks of its tasks in any order, so rows that are ordered bear what orders them.
    """
    order = hidden(frame.columns)
    if write.sink.partitions is None:
        return frame.drop(*order)
    names = _placing(frame, write)
    number = F.pmod(F.xxhash64(*map(column, names)), F.lit(write.sink.partitions)) if names else F.lit(0)
    numbered = frame.withColumn(PARTITION, number.cast("int"))
    if not write.sink.keyed:
        return numbered.repartitionById(write.sink.partitions, PARTITION)
    numbered = numbered.withColumn(_NUMBER, F.monotonically_increasing_id())
    apart = numbered.repartitionById(write.sink.partitions, PARTITION)
    return apart.sortWithinPartitions(*order, _NUMBER).drop(*order, _NUMBER)


def _placing(frame: DataFrame, write: Write) -> list[str]:
    """Return the columns by which rows are placed: those of a key, else all that a replay cannot change."""
    if write.sink.row_key is not None:
        return [ROW_KEY]
    for names in (write.sink.key, write.input.key, naming_columns(write.input), write.schema.names):
        stable = [name for name in names if _stable(frame.schema[name].dataType)]
        if stable:
            return stable
    return []


def _stable(kind: DataType) -> bool:
    """Say whether equal values hash alike: sums of doubles differ in the last bit, and maps have no order."""
    if isinstance(kind, StructType):
        return all(_stable(field.dataType) for field in kind.fields)
    if isinstance(kind, ArrayType):
        return _stable(kind.elementType)
    return not isinstance(kind, FloatType | DoubleType | MapType | VariantType)
