"""Python functions over rows and batches, as Arrow functions inside Spark.

A row-wise function is an Arrow UDF over a struct of the row, which keeps the event time that `mapInArrow` would lose.
A row on which the function raises goes to the rejected rows, or stops the job, as the user chose.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from penstock.aggregates import struct_type
from penstock.connectors.formats.wide_times import batch_dicts
from penstock.errors import BadResult, FunctionFailed, choices
from penstock.plan.operators.node import Node
from penstock.plan.operators.python_functions import FlatMap, Map, MapBatches, PythonNode
from penstock.plan.operators.stateless import named_outputs
from penstock.schema import Schema, arrow_type
from penstock.signatures import name_of, raised, row_class
from penstock.spark.lowering.context import Context, carried_columns, column, row
from penstock.spark.lowering.lower import lower
from penstock.spark.lowering.python.nondeterministic_functions import (
    KEYS,
    Reasons,
    RowOf,
    WideTime,
    answered_batches,
    answered_udf,
    answers_of,
    readable,
    rejected,
    row_keys,
    row_of,
    rows_in,
)
from penstock.spark.tasks.spark_types import array_function, map_in_arrow
from penstock.spark.tasks.staging import Staging, rejected_rows
from penstock.spark.tasks.stored_results import NodeAnswers, StoredRejection
from penstock.spark.tasks.task_context import current_epoch, current_partition
from penstock.values import Column, Lists, Misfit, Rows, fit_batch, rows_of

OUT = "__penstock_out"
_SIDE = "side_"
Rejection = tuple[str, dict[str, Any]]


@lower.register
def _map(node: Map, context: Context, frame: DataFrame) -> DataFrame:
    caller = caller_of(node, context)
    made = _called(frame, node, caller, caller.rows_udf(struct_type(node.schema), rows_of(node.schema), one=True))
    return made.select(f"{OUT}.*", *carried_columns(frame))


@lower.register
def _flat_map(node: FlatMap, context: Context, frame: DataFrame) -> DataFrame:
    caller = caller_of(node, context)
    returned = f"array<{struct_type(flat_schema(node))}>"
    made = _called(frame, node, caller, caller.rows_udf(returned, _lists_of(node), one=False))
    return counted_outputs(made.select(F.explode(OUT).alias(OUT), *carried_columns(made)), node, context)


@lower.register
def _map_batches(node: MapBatches, context: Context, frame: DataFrame) -> DataFrame:
    caller = caller_of(node, context)
    columns = [column(name) for name in node.input.schema.names]
    if caller.answers is not None:
        columns += [key.alias(name) for name, key in zip(KEYS, row_keys(frame, node.input), strict=True)]
    rows = frame.select(*columns)
    return context.counted(map_in_arrow(rows, caller.batches, node.schema.nullable().ddl), node)


def flat_schema(node: Node) -> Schema:
    """One column per output of a node: the one that is set is the output of the row."""
    outputs = {"main": struct_type(node.schema)}
    outputs |= {f"side_{name}": struct_type(schema) for name, schema in named_outputs(node)}
    return Schema(outputs)


def _lists_of(node: FlatMap) -> Lists:
    """Return how lists of rows for several outputs are converted."""
    parts = (rows_of(node.schema), *(rows_of(schema) for _, schema in named_outputs(node)))
    kind = arrow_type(struct_type(flat_schema(node)))
    return Lists(pa.list_(kind), Rows(kind, parts))


def counted_outputs(frame: DataFrame, node: Node, context: Context) -> DataFrame:
    """Count the rows of each output."""
    frame = context.counted(frame, node, count=F.count(F.col(f"{OUT}.main")))
    for name, _ in named_outputs(node):
        frame = context.counted(frame, node, count=F.count(F.col(OUT)[f"side_{name}"]), output=name)
    return frame


def flat_output(frame: DataFrame, output: str) -> DataFrame:
    """Return the rows of one output of a node that has several."""
    chosen = f"{OUT}.`{output.replace('`', '``')}`"
    return frame.filter(F.col(chosen).isNotNull()).select(f"{chosen}.*", *carried_columns(frame))


def _called(frame: DataFrame, node: PythonNode, caller: FunctionCaller, udf: Any) -> DataFrame:
    keys = row_keys(frame, node.input) if caller.answers is not None else []
    made = frame.select(udf(row(node.input), *keys).alias(OUT), *carried_columns(frame))
    return made.filter(F.col(OUT).isNotNull())


@dataclass(frozen=True)
class FunctionCaller:
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

    def rows_udf(self, returned: str, fits: Column, *, one: bool) -> Any:
        """Return the function as an Arrow UDF from a row to a row, or to a list of rows."""
        make = self._one if one else self._many
        if self.answers is not None:
            return answered_udf(self, make, returned, fits, self.answers)

        def call(rows: Iterator[pa.Array]) -> Iterator[pa.Array]:
            rejections: list[Rejection] = []
            with self.helper() as extra:
                for batch in rows:
                    row = row_of(batch)
                    array, reasons = self.called(rows_in(batch), lambda given: make(readable(given), extra), fits, row)
                    rejections += rejected(reasons, row)
                    yield array
            self.put(rejections)

        # Not deterministic for Spark: it must neither be called twice nor moved.
        return array_function(call, returned).asNondeterministic()

    def called(
        self, given: list[Any], make: Callable[[Any], Any], fits: Column, row: RowOf
    ) -> tuple[pa.Array, Reasons]:
        """Call the function on rows; return its results in Arrow, null for rows that are rejected, and why they are."""
        made: list[Any] = []
        failed: dict[int, Exception] = {}
        for number, one in enumerate(given):
            try:
                made.append(make(one))
            except Exception as error:  # user code may raise anything
                self._stop(error, row, number)
                failed[number] = error
                made.append(None)
        return self.typed(made, failed, fits, row)

    def typed(
        self, made: list[Any], failed: dict[int, Exception], fits: Column, row: RowOf
    ) -> tuple[pa.Array, Reasons]:
        """Return results in Arrow, null where the function failed or a value does not fit its type, and why."""
        array, wrong = fits.converted(made)
        failed = failed | {number: BadResult(_located(misfit, fits)) for number, misfit in wrong.items()}
        reasons: Reasons = [None] * len(made)
        for number in sorted(failed):
            self._stop(failed[number], row, number)
            reasons[number] = _reason(failed[number])
        return array, reasons

    def batches(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Call the function on Arrow batches."""
        if self.answers is not None:
            yield from answered_batches(batches, self, self.answers)
        else:
            rejections: list[Rejection] = []
            yield from self.call_batches(batches, rejections)
            self.put(rejections)

    def call_batches(self, batches: Iterator[pa.RecordBatch], rejections: list[Rejection]) -> Iterator[pa.RecordBatch]:
        """Yield what the function returns for batches; all rows of a batch that fails are rejected."""
        with self.helper() as extra:
            for batch in batches:
                try:
                    made = fit_batch(self.fn(batch, *extra), self.output)
                except Exception as error:
                    # User code may raise anything; which of the rows it was cannot be known.
                    self._stop(error, row_of(batch), 0)
                    rejections += [(_reason(error), row) for row in batch_dicts(batch)]
                else:
                    yield made

    def _one(self, given: dict[str, Any], extra: tuple[Any, ...]) -> Any:
        return as_dict(self.fn(self.given(given), *extra), self.output)

    def _many(self, given: dict[str, Any], extra: tuple[Any, ...]) -> Any:
        made = self.fn(self.given(given), *extra)
        if isinstance(made, dict | str) or not (made is None or isinstance(made, Iterable)):
            message = f"it returned {made!r}, which is not a list of rows: return [row], or yield rows"
            raise BadResult(message)
        return [self._emitted(one) for one in made or ()]

    def _emitted(self, emit: Any) -> dict[str, Any]:
        if isinstance(emit, tuple) and len(emit) == 2 and emit[0] in self.sides:
            return {f"{_SIDE}{emit[0]}": as_dict(emit[1], None)}
        if isinstance(emit, tuple) and len(emit) == 2 and isinstance(emit[0], str):
            message = f"it has no side output {emit[0]!r}: {choices('sides', self.sides, emit[0])}"
            raise BadResult(message)
        return {"main": as_dict(emit, self.output)}

    def given(self, row: dict[str, Any]) -> Any:
        """Return a row as the function takes it."""
        return row if self.takes is None else self.takes(**row)

    def _stop(self, error: Exception, row: RowOf, number: int) -> None:
        """Stop the job, unless its bad rows are rejected."""
        if not self.rejects:
            raise self._failed(error, row(number)) from error

    def _failed(self, error: Exception, given: Any) -> FunctionFailed:
        name = name_of(self.fn)
        misfit = isinstance(error, BadResult)
        what = f"returned what does not fit: {error}" if misfit else f"raised {_raised(error)}"
        if isinstance(error, WideTime):
            what = f"cannot be called: the row has {error}"
        hint = 'fix the function, or reject such rows: Pipeline(..., rejected_to=sink) or on_error="reject"'
        which = "the first input row of the batch" if self.kind == MapBatches.kind else "the input row"
        failed = FunctionFailed(f"{name} {what}; {which} was {given}", node=self.label, hint=hint)
        self.staging.put_error(current_epoch(), failed)
        return failed

    def put(self, rejections: list[Rejection]) -> None:
        """Stage the rejected rows of this task, and their count."""
        if rejections:
            self.put_table(rejected_rows(self.node, current_epoch(), rejections))

    def put_table(self, rejects: pa.Table) -> None:
        """Stage rejected rows of this task, and their count."""
        if rejects.num_rows:
            epoch, part = current_epoch(), str(current_partition())
            self.staging.put_rows(epoch, "rejected", self.node, part, rejects)
            self.staging.put_counts(epoch, f"{self.node}={part}", {self.node: {"rejected": rejects.num_rows}})

    @contextlib.contextmanager
    def helper(self) -> Iterator[tuple[Any, ...]]:
        """Call `using` once per task, and close what it returns."""
        if self.using is None:
            yield ()
            return
        try:
            made = self.using()
        except Exception as error:  # user code may raise anything
            hint = "fix what using= names: it is called once per worker, without arguments"
            message = f"using={name_of(self.using)} raised {raised(error)}"
            failed = FunctionFailed(message, node=self.label, hint=hint)
            self.staging.put_error(current_epoch(), failed)
            raise failed from error
        try:
            yield (made,)
        finally:
            close = getattr(made, "close", None)
            if callable(close):
                close()


def caller_of(node: PythonNode, context: Context) -> FunctionCaller:
    """Return what a worker needs to call a node's function."""
    rejects = context.rejects if node.on_error is None else node.on_error == "reject"
    return FunctionCaller(
        node=context.name(node),
        kind=node.kind,
        fn=node.fn,
        using=node.using,
        takes=row_class(node.fn) if node.row_wise else None,
        output=node.output,
        sides=tuple(name for name, _ in node.outputs),
        rejects=rejects,
        staging=context.staging,
        answers=answers_of(node, context),
    )


def as_dict(made: Any, schema: Schema | None) -> dict[str, Any]:
    """Return a function's result as a row; raises if it is not one, or has an unknown column."""
    if not isinstance(made, dict):
        if not dataclasses.is_dataclass(made) or isinstance(made, type):
            message = f"it returned {made!r} ({type(made).__name__}), not a dict or a dataclass"
            raise BadResult(message)
        return dataclasses.asdict(made)
    # Checked for every row, and most often there is none: so first by the sets of keys.
    if schema is not None and not made.keys() <= schema.types.keys():
        unknown = next(name for name in made if name not in schema)
        message = f"it returned the column '{unknown}', which its schema ({schema.ddl}) lacks"
        raise BadResult(message)
    return made


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, StoredRejection | WideTime) else f"{type(error).__name__}: {error}"


def _raised(error: Exception) -> str:
    return str(error) if isinstance(error, StoredRejection) else raised(error)


def _located(misfit: Misfit, fits: Column) -> str:
    """Return what does not fit; in a list of rows for several outputs, with its output."""
    if not isinstance(fits, Lists):
        return misfit.text
    output = str(misfit.path[1]) if len(misfit.path) > 1 else "main"
    text = misfit.without(2).text
    return text if output == "main" else f"output '{output.removeprefix(_SIDE)}': {text}"
