"""Python functions over rows and batches, as Arrow functions inside Spark.

A row-wise function is an Arrow UDF over a struct of the row, which keeps the event time that `mapInArrow` would lose.
A row on which the function raises goes to the rejected rows, or stops the job, as the user chose.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from penstock.aggregates import struct_type
from penstock.errors import FunctionFailed
from penstock.functions import row_class
from penstock.plan.node import Node
from penstock.plan.nodes import FlatMap, Map, MapBatches, PythonNode, named_outputs
from penstock.schema import Schema, arrow_type
from penstock.spark.epochs.answers import NodeAnswers, StoredRefusal
from penstock.spark.epochs.scan import current_epoch, current_partition
from penstock.spark.epochs.staging import Staging, rejected_rows
from penstock.spark.lowering.answered import KEYS, answered_batches, answered_udf, answers_of, row_keys
from penstock.spark.lowering.context import Context, keep_hidden, row
from penstock.spark.lowering.lower import lower
from penstock.spark.udf import array_function

OUT = "__penstock_out"


@lower.register
def _map(node: Map, context: Context, frame: DataFrame) -> DataFrame:
    stage = stage_of(node, context)
    made = _called(frame, node, stage, stage.rows_udf(struct_type(node.schema), one=True))
    return made.select(f"{OUT}.*", *keep_hidden(frame))


@lower.register
def _flat_map(node: FlatMap, context: Context, frame: DataFrame) -> DataFrame:
    stage = stage_of(node, context)
    returned = f"array<{struct_type(flat_schema(node))}>"
    made = _called(frame, node, stage, stage.rows_udf(returned, one=False))
    return counted_outputs(made.select(F.explode(OUT).alias(OUT), *keep_hidden(made)), node, context)


@lower.register
def _map_batches(node: MapBatches, context: Context, frame: DataFrame) -> DataFrame:
    stage = stage_of(node, context)
    columns = [F.col(f"`{name}`") for name in node.input.schema.names]
    if stage.answers is not None:
        columns += [key.alias(name) for name, key in zip(KEYS, row_keys(frame, node.input), strict=True)]
    rows = frame.select(*columns)
    return context.counted(rows.mapInArrow(stage.batches, node.schema.nullable().ddl), node)


def flat_schema(node: Node) -> Schema:
    """One column per output of a node: which of them is set says where a row goes."""
    outputs = {"main": struct_type(node.schema)}
    outputs |= {f"side_{name}": struct_type(schema) for name, schema in named_outputs(node)}
    return Schema(outputs)


def counted_outputs(frame: DataFrame, node: Node, context: Context) -> DataFrame:
    """Count the rows of each output."""
    frame = context.counted(frame, node, rows=F.col(f"{OUT}.main"))
    for name, _ in named_outputs(node):
        frame = context.counted(frame, node, rows=F.col(f"{OUT}.`side_{name}`"), output=name)
    return frame


def flat_output(frame: DataFrame, output: str) -> DataFrame:
    """Return the rows of one output of a node that has several."""
    chosen = f"{OUT}.`{output}`"
    return frame.filter(F.col(chosen).isNotNull()).select(f"{chosen}.*", *keep_hidden(frame))


def _called(frame: DataFrame, node: PythonNode, stage: Stage, udf: Any) -> DataFrame:
    keys = row_keys(frame, node.input) if stage.answers is not None else []
    made = frame.select(udf(row(node.input), *keys).alias(OUT), *keep_hidden(frame))
    return made.filter(F.col(OUT).isNotNull())


@dataclass(frozen=True)
class Stage:
    """What a worker needs to call the user's function."""

    node: str
    kind: str
    fn: Callable[..., Any]
    using: Callable[[], Any] | None
    takes: type | None
    output: Schema
    sides: tuple[str, ...]
    rejects: bool
    staging: Staging
    answers: NodeAnswers | None = None

    @property
    def label(self) -> str:
        """The node as an error names it."""
        return f"{self.kind} '{self.node}'"

    def rows_udf(self, returned: str, *, one: bool) -> Any:
        """Return the function as an Arrow UDF from a row to a row, or to a list of rows."""
        kind = arrow_type(returned)
        make = self._one if one else self._many
        if self.answers is not None:
            return answered_udf(self, make, returned, self.answers)

        def call(rows: Iterator[pa.Array]) -> Iterator[pa.Array]:
            refused: list[tuple[str, dict[str, Any]]] = []
            with self.helper() as extra:
                for batch in rows:
                    made = [make(given, extra, refused) for given in batch.to_pylist()]
                    yield self.typed(made, kind)
            self.put(refused)

        # Not deterministic for Spark: it must neither be called twice nor moved.
        return array_function(call, returned).asNondeterministic()

    def batches(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Call the function on Arrow batches."""
        if self.answers is not None:
            yield from answered_batches(batches, self._batches, self.answers)
        else:
            yield from self._batches(batches)

    def _batches(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        schema = self.output.nullable().arrow
        with self.helper() as extra:
            for batch in batches:
                try:
                    made = self.fn(batch, *extra)
                    yield pa.RecordBatch.from_arrays(
                        [made.column(field.name).cast(field.type) for field in schema], schema=schema
                    )
                except Exception as error:
                    raise self._failed(error, batch.slice(0, 1).to_pylist()[0]) from error

    def _one(self, given: dict[str, Any], extra: tuple[Any, ...], refused: list[Any]) -> Any:
        try:
            return as_dict(self.fn(self.given(given), *extra), self.output)
        except Exception as error:
            return self.refuse(error, given, refused)

    def _many(self, given: dict[str, Any], extra: tuple[Any, ...], refused: list[Any]) -> Any:
        try:
            return [self._emitted(one) for one in self.fn(self.given(given), *extra) or ()]
        except Exception as error:
            return self.refuse(error, given, refused)

    def _emitted(self, emit: Any) -> dict[str, Any]:
        if isinstance(emit, tuple) and len(emit) == 2 and emit[0] in self.sides:
            return {f"side_{emit[0]}": as_dict(emit[1], None)}
        return {"main": as_dict(emit, self.output)}

    def given(self, row: dict[str, Any]) -> Any:
        """Return a row as the function takes it."""
        return row if self.takes is None else self.takes(**row)

    def refuse(self, error: Exception, given: dict[str, Any], refused: list[Any]) -> None:
        """Put a row among the refused, or stop the job."""
        if not self.rejects:
            raise self._failed(error, given) from error
        reason = str(error) if isinstance(error, StoredRefusal) else f"{type(error).__name__}: {error}"
        refused.append((reason, given))

    def typed(self, made: list[Any], kind: pa.DataType) -> pa.Array:
        """Return what the function made as Arrow; what does not fit its schema stops the job."""
        try:
            return pa.array(made, kind)
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            wrong = next((one for one in made if not _fits(one, kind)), None)
            raise self._failed(error, wrong) from error

    def _failed(self, error: Exception, given: Any) -> FunctionFailed:
        name = getattr(self.fn, "__qualname__", repr(self.fn))
        message = f"{name} raised {type(error).__name__}: {error}; the row was {given}"
        hint = 'mend the function, or send such rows aside: Pipeline(..., rejected_to=sink) or on_error="reject"'
        failed = FunctionFailed(message, node=self.label, hint=hint)
        self.staging.put_error(current_epoch(), failed)
        return failed

    def put(self, refused: list[tuple[str, dict[str, Any]]]) -> None:
        """Leave the refused rows of this task, and their number."""
        if refused:
            epoch, part = current_epoch(), str(current_partition())
            table = rejected_rows(self.node, epoch, refused)
            self.staging.put_rows(epoch, "rejected", self.node, part, table)
            self.staging.put_counts(epoch, f"{self.node}={part}", {self.node: {"rejected": len(refused)}})

    @contextlib.contextmanager
    def helper(self) -> Iterator[tuple[Any, ...]]:
        """Make what `using` makes, once per task, and close it."""
        if self.using is None:
            yield ()
            return
        made = self.using()
        try:
            yield (made,)
        finally:
            close = getattr(made, "close", None)
            if callable(close):
                close()


def stage_of(node: PythonNode, context: Context) -> Stage:
    """Return what a worker needs to call a node's function."""
    rejects = context.rejects if node.on_error is None else node.on_error == "reject"
    return Stage(
        node=context.name(node),
        kind=node.kind,
        fn=node.fn,
        using=node.using,
        takes=row_class(node.fn) if not isinstance(node, MapBatches) else None,
        output=node.output,
        sides=tuple(name for name, _ in node.outputs) if isinstance(node, FlatMap) else (),
        rejects=rejects,
        staging=context.staging,
        answers=answers_of(node, context),
    )


def as_dict(made: Any, schema: Schema | None) -> dict[str, Any]:
    """Return a row that a function made; raises if it is none, or has a column too many."""
    if dataclasses.is_dataclass(made) and not isinstance(made, type):
        return dataclasses.asdict(made)
    if not isinstance(made, dict):
        message = f"returned {type(made).__name__} {made!r}, not a dict or a dataclass"
        raise TypeError(message)
    unknown = [name for name in made if schema is not None and name not in schema]
    if unknown:
        message = f"returned the column '{unknown[0]}', which its schema ({schema.ddl if schema else ''}) lacks"
        raise TypeError(message)
    return made


def _fits(one: Any, kind: pa.DataType) -> bool:
    try:
        pa.array([one], kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return False
    return True
