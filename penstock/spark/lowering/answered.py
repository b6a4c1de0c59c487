"""Nodes that are not deterministic: each row goes to Python with its hash, and its answer is stored by it.

See `penstock.spark.epochs.answers` for where answers are stored, and when they are used again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructType, VariantType

from penstock.plan.node import Node
from penstock.plan.nodes import PythonNode
from penstock.plan.replay import naming_columns
from penstock.schema import arrow_type
from penstock.spark.epochs.answers import AnswerStore, NodeAnswers, Stored, StoredRefusal, TaskAnswers
from penstock.spark.epochs.scan import current_epoch, current_partition
from penstock.spark.hidden import PREFIX
from penstock.spark.lowering.context import Context, column
from penstock.spark.udf import array_function

if TYPE_CHECKING:
    from penstock.spark.lowering.python_nodes import Stage

KEYS = (PREFIX + "hash_1", PREFIX + "hash_2")
_DIGEST = b"penstock.rows"

Make = Callable[[dict[str, Any], tuple[Any, ...], list[Any]], Any]


def answers_of(node: PythonNode, context: Context) -> NodeAnswers | None:
    """Return where the answers of a node are stored; those of a deterministic one are not."""
    if node.deterministic:
        return None
    store = AnswerStore(context.staging.folder / "answers")
    # What follows a late side output runs as a batch in one partition, whatever the parallelism.
    return NodeAnswers(store, context.name(node), context.cores if context.streaming else 0)


def row_keys(frame: DataFrame, node: Node) -> list[Column]:
    """Return two hashes of each row of a node: of the columns that a replay cannot change, if these are known."""
    names = naming_columns(node) or node.schema.names
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


def answered_udf(stage: Stage, make: Make, returned: str, answers: NodeAnswers) -> Any:
    """Return a function over rows as an Arrow UDF over a row and its hashes."""
    kind = arrow_type(returned)

    def call(rows: Iterator[tuple[pa.Array, ...]]) -> Iterator[pa.Array]:
        refused: list[tuple[str, dict[str, Any]]] = []
        with stage.helper() as extra, answers.task(current_epoch(), current_partition()) as task:
            for batch, *keys in rows:
                given = batch.to_pylist()
                known = _known(task, keys, len(given))
                made, reasons = _made(stage, lambda row: make(row, extra, refused), given, known, refused)
                array = stage.typed(made, kind)
                store(task, keys, array, reasons, [one is None for one in known])
                yield array
        # After the answers are stored: a retry of this task, which uses them, writes the same file again.
        stage.put(refused)

    return array_function(call, returned, inputs=3).asNondeterministic()


def _known(task: TaskAnswers, keys: list[pa.Array], rows: int) -> list[Stored | None]:
    if task.empty:
        return [None] * rows
    first, second = (array.to_pylist() for array in keys)
    return [task.take(key) for key in zip(first, second, strict=True)]


def _made(
    stage: Stage, make: Callable[[Any], Any], given: list[Any], known: list[Stored | None], refused: list[Any]
) -> tuple[list[Any], list[str | None]]:
    """Return what became of rows, and why some were refused."""
    made: list[Any] = []
    reasons: list[str | None] = []
    for row, stored in zip(given, known, strict=True):
        before = len(refused)
        if stored is None:
            made.append(make(row))
        elif stored.refused is not None:
            stage.refuse(StoredRefusal(stored.refused), row, refused)
            made.append(None)
        else:
            made.append(stored.made)
        reasons.append(refused[-1][0] if len(refused) > before else None)
    return made, reasons


def store(task: TaskAnswers, keys: list[pa.Array], made: pa.Array, reasons: list[str | None], new: list[bool]) -> None:
    """Store the answers that are new."""
    if all(new):
        task.put(keys, made, reasons)
    elif any(new):
        chosen = pa.array(new)
        kept = [reason for reason, is_new in zip(reasons, new, strict=True) if is_new]
        task.put([array.filter(chosen) for array in keys], made.filter(chosen), kept)


def answered_batches(
    batches: Iterator[pa.RecordBatch],
    call: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    answers: NodeAnswers,
) -> Iterator[pa.RecordBatch]:
    """Call a function over whole batches, or return what it returned for a partition of the same rows.

    Batches have no rows to compare, so the answers of a partition are used if all its rows are the same, in any order.
    """
    task = answers.task(current_epoch(), current_partition())
    digest = _Digest()
    counted = digest.over(batches)
    stored = task.tables()
    if stored:
        given = list(counted)
        found = [table for table in stored if table.schema.metadata.get(_DIGEST) == digest.text]
        if found:
            yield from found[0].to_batches()
            return
        counted = iter(given)
    made = []
    for batch in call(counted):
        made.append(batch)
        yield batch
    if made:
        task.write(pa.Table.from_batches(made).replace_schema_metadata({_DIGEST: digest.text}))


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
