"""Functions that are not deterministic: each row goes to Python with its hash, and its answer is stored under it.

See `penstock.spark.tasks.stored_results` for where answers are stored, and when they are used again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructType, VariantType

from penstock.connectors.formats.wide_times import OUT_OF_RANGE, batch_dicts, python_values
from penstock.plan.operators.node import Node
from penstock.plan.operators.python_functions import PythonNode
from penstock.plan.physical.determinism import replay_key
from penstock.spark.lowering.context import Context, column
from penstock.spark.tasks.internal_columns import PREFIX
from penstock.spark.tasks.spark_types import array_function
from penstock.spark.tasks.staging import rejected_rows
from penstock.spark.tasks.stored_results import AnswerStore, NodeAnswers, StoredAnswer, StoredRejection, TaskAnswers
from penstock.spark.tasks.task_context import current_epoch, current_partition
from penstock.values import Column as Values
from penstock.values.arrow_stream import from_stream, to_stream

if TYPE_CHECKING:
    from penstock.spark.lowering.python.functions import FunctionCaller

KEYS = (PREFIX + "hash_1", PREFIX + "hash_2")
_DIGEST, _REJECTED = b"penstock.rows", b"penstock.rejected"
# Why each row of a batch is rejected; None for the others.
Reasons = list[str | None]
RowOf = Callable[[int], dict[str, Any]]
Make = Callable[[dict[str, Any], tuple[Any, ...]], Any]


def answers_of(node: PythonNode, context: Context) -> NodeAnswers | None:
    """Return where the answers of a node are stored; those of a deterministic one are not."""
    if node.deterministic:
        return None
    store = AnswerStore(context.staging.folder / "answers")
    # What follows a late side output runs as a batch in one partition, whatever the parallelism.
    return NodeAnswers(store, context.name(node), context.cores if context.streaming else 0)


def row_keys(frame: DataFrame, node: Node) -> list[Column]:
    """Return two hashes of each row of a node: of the columns that a replay cannot change, if these are known."""
    names = replay_key(node) or node.schema.names
    hashed = [_hashable(name, frame.schema[name].dataType) for name in names]
    return [F.xxhash64(*hashed), F.xxhash64(F.lit(1), *hashed)]


def _hashable(name: str, kind: DataType) -> Column:
    # Spark hashes neither maps nor variants.
    return F.to_json(F.struct(column(name))) if _has_map(kind) else column(name)


def _has_map(kind: DataType) -> bool:
    if isinstance(kind, StructType):
        return any(_has_map(field.dataType) for field in kind.fields)
    if isinstance(kind, ArrayType):
        return _has_map(kind.elementType)
    return isinstance(kind, MapType | VariantType)


def answered_udf(caller: FunctionCaller, make: Make, returned: str, fits: Values, answers: NodeAnswers) -> Any:
    """Return a function over rows as an Arrow UDF over a row and its hashes."""

    def call(rows: Iterator[tuple[pa.Array, ...]]) -> Iterator[pa.Array]:
        rejections: list[tuple[str, dict[str, Any]]] = []
        with caller.helper() as extra, answers.task(current_epoch(), current_partition()) as task:
            for batch, *keys in rows:
                known = _known(task, keys, len(batch))
                asked = list(zip(rows_in(batch), known, strict=True))
                array, reasons = caller.called(asked, partial(_answer, make, extra), fits, row_of(batch))
                rejections += rejected(reasons, row_of(batch))
                store(task, keys, array, reasons, [one is None for one in known])
                yield array
        # After the answers are stored: a retry of this task, which uses them, writes the same file again.
        caller.put(rejections)

    return array_function(call, returned, inputs=3).asNondeterministic()


def row_of(batch: pa.Array | pa.RecordBatch) -> RowOf:
    """Return the rows of a batch as they came: a function may have changed those that it was given."""

    def row(number: int) -> dict[str, Any]:
        one = batch.slice(number, 1)
        found: list[dict[str, Any]] = batch_dicts(one) if isinstance(one, pa.RecordBatch) else python_values(one)
        return found[0]

    return row


class WideTime(ValueError):
    """A row has a time that Python cannot have, so no function can take it."""

    def __init__(self) -> None:
        super().__init__("a time before year 1 or after 9999, which Python cannot have")


def rows_in(batch: pa.Array) -> list[Any]:
    """Return the rows of a batch; for one with a time out of range the error."""
    try:
        found: list[Any] = batch.to_pylist()
    except OUT_OF_RANGE:
        found = [_row_or_error(one) for one in batch]
    return found


def _row_or_error(one: pa.Scalar) -> Any:
    try:
        return one.as_py()
    except OUT_OF_RANGE:
        return WideTime()


def readable(row: Any) -> Any:
    """Return a row of `rows_in`, or raise its error."""
    if isinstance(row, WideTime):
        raise row
    return row


def rejected(reasons: Reasons, row: RowOf) -> list[tuple[str, dict[str, Any]]]:
    """Return the rows that are rejected, and why."""
    return [(reason, row(number)) for number, reason in enumerate(reasons) if reason is not None]


def _known(task: TaskAnswers, keys: list[pa.Array], rows: int) -> list[StoredAnswer | None]:
    if task.empty:
        return [None] * rows
    first, second = (array.to_pylist() for array in keys)
    return [task.take(key) for key in zip(first, second, strict=True)]


def _answer(make: Make, extra: tuple[Any, ...], asked: tuple[Any, StoredAnswer | None]) -> Any:
    """Return the stored answer to a row, or call the function."""
    row, stored = asked
    if stored is None:
        return make(readable(row), extra)
    if stored.refused is not None:
        raise StoredRejection(stored.refused)
    return stored.made


def store(task: TaskAnswers, keys: list[pa.Array], made: pa.Array, reasons: Reasons, new: list[bool]) -> None:
    """Store the answers that are new."""
    if all(new):
        task.put(keys, made, reasons)
    elif any(new):
        chosen = pa.array(new)
        kept = [reason for reason, is_new in zip(reasons, new, strict=True) if is_new]
        task.put([array.filter(chosen) for array in keys], made.filter(chosen), kept)


def answered_batches(
    batches: Iterator[pa.RecordBatch], caller: FunctionCaller, answers: NodeAnswers
) -> Iterator[pa.RecordBatch]:
    """Call a function over whole batches, or return what it returned for a partition of the same rows.

    Batches have no rows to compare, so the answers of a partition are used if all its rows are the same, in any order.
    The rows that were rejected are stored with them.
    """
    task = answers.task(current_epoch(), current_partition())
    digest = _Digest()
    counted = digest.over(batches)
    stored = task.tables()
    if stored:
        given = list(counted)
        found = [table for table in stored if table.schema.metadata.get(_DIGEST) == digest.text]
        if found:
            caller.put_table(from_stream(found[0].schema.metadata[_REJECTED]))
            yield from found[0].to_batches()
            return
        counted = iter(given)
    made: list[pa.RecordBatch] = []
    rejections: list[tuple[str, dict[str, Any]]] = []
    for batch in caller.call_batches(counted, rejections):
        made.append(batch)
        yield batch
    if made or rejections:
        table = pa.Table.from_batches(made, caller.output.nullable().arrow)
        rejects = rejected_rows(caller.node, current_epoch(), rejections)
        task.write(table.replace_schema_metadata({_DIGEST: digest.text, _REJECTED: to_stream(rejects)}))
        caller.put_table(rejects)


class _Digest:
    """A hash of the rows of a partition, whatever their order."""

    def __init__(self) -> None:
        self.rows = 0
        self.sums = np.zeros(len(KEYS), dtype=np.uint64)

    def over(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            self.rows += batch.num_rows
            for number, name in enumerate(KEYS):
                self.sums[number] += batch.column(name).to_numpy().view(np.uint64).sum(dtype=np.uint64)
            yield batch.drop_columns(list(KEYS))

    @property
    def text(self) -> bytes:
        return f"{self.rows} {self.sums[0]} {self.sums[1]}".encode()
