"""`map_async` inside Spark: an Arrow function with many calls in flight.

Results in order stand beside the rows they were made of, as those of `map` do. In the order in which they come they
do not, so each takes its row's internal columns along.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from penstock.aggregates import struct_type
from penstock.connectors.formats.wide_times import python_values
from penstock.plan.operators.python_functions import MapAsync
from penstock.schema import arrow_type
from penstock.spark.lowering.context import Context, carried_columns, row
from penstock.spark.lowering.lower import lower
from penstock.spark.lowering.partitioning import exchanged
from penstock.spark.lowering.python.async_calls import Answer, AsyncCaller, Calls
from penstock.spark.lowering.python.functions import OUT, FunctionCaller, as_dict, caller_of
from penstock.spark.lowering.python.nondeterministic_functions import WideTime, rejected, row_keys, rows_in, store
from penstock.spark.tasks.internal_columns import internal_columns
from penstock.spark.tasks.spark_types import array_function
from penstock.spark.tasks.stored_results import StoredAnswer, StoredRejection, TaskAnswers
from penstock.spark.tasks.task_context import current_epoch, current_partition
from penstock.values import Rows, rows_of

_ROW, _BESIDE = "row", "beside"


@lower.register
def _map_async(node: MapAsync, context: Context, frame: DataFrame) -> DataFrame:
    if node.concurrency < context.cores:
        # The bound is the job's: fewer calls at once than tasks means fewer tasks.
        frame = exchanged(frame, node.concurrency)
    function, calls = caller_of(node, context), _calls(node, context)
    made, keys, fits = struct_type(node.schema), row_keys(frame, node.input), rows_of(node.schema)
    if node.in_order or not internal_columns(frame.columns):
        called = frame.select(
            _udf(function, calls, made, fits, beside=False)(row(node.input), *keys).alias(OUT), *carried_columns(frame)
        )
        return called.filter(F.col(OUT).isNotNull()).select(f"{OUT}.*", *carried_columns(frame))
    beside = F.struct(*carried_columns(frame))
    kinds = ", ".join(
        f"{name}: {frame.schema[name].dataType.simpleString()}" for name in internal_columns(frame.columns)
    )
    returned = f"struct<{_ROW}: {made}, {_BESIDE}: struct<{kinds}>>"
    whole = F.struct(row(node.input).alias(_ROW), beside.alias(_BESIDE))
    called = frame.select(_udf(function, calls, returned, fits, beside=True)(whole, *keys).alias(OUT))
    return called.filter(F.col(OUT).isNotNull()).select(f"{OUT}.{_ROW}.*", *_restored(frame))


def _restored(frame: DataFrame) -> Iterator[Column]:
    """Yield the internal columns of the result, the event time with the metadata by which Spark knows it."""
    for name in internal_columns(frame.columns):
        yield F.col(f"{OUT}.{_BESIDE}.{name}").alias(name, metadata=frame.schema[name].metadata)


def _calls(node: MapAsync, context: Context) -> Calls:
    at_once = max(1, node.concurrency // context.cores)
    return Calls(node.fn, node.using, at_once, node.timeout_us, node.retries, node.in_order)


class _Asked(NamedTuple):
    """A row, its hashes, and its answer if an earlier attempt got one."""

    row: Any
    first: int
    second: int
    wide: bool = False
    stored: StoredAnswer | None = None


def _udf(function: FunctionCaller, calls: Calls, returned: str, fits: Rows, *, beside: bool) -> Any:
    kind = arrow_type(returned)
    stored = function.answers
    assert stored is not None

    def call(rows: Iterator[tuple[pa.Array, ...]]) -> Iterator[pa.Array]:
        refused: list[tuple[str, dict[str, Any]]] = []
        with (
            stored.task(current_epoch(), current_partition()) as task,
            AsyncCaller(calls, _argument(function, beside=beside), _known) as caller,
        ):
            for answers in caller.answers(_asked(task, batch) for batch in rows):
                made = _stored(task, answers, function, fits, refused, beside=beside)
                yield _with_beside(made, answers, kind) if beside else made
        # After the answers are stored: a retry of this task, which uses them, writes the same file again.
        function.put(refused)

    return array_function(call, returned, inputs=3).asNondeterministic()


def _asked(task: TaskAnswers, batch: tuple[pa.Array, ...]) -> list[_Asked]:
    whole, *keys = batch
    rows, hashes = rows_in(whole), [array.to_pylist() for array in keys]
    wide = [isinstance(row, WideTime) for row in rows]
    # Of a row that no function can take, the values are shown as text.
    shown = python_values(whole) if any(wide) else rows
    asked = list(map(_Asked, shown, *hashes, wide))
    return asked if task.empty else [one._replace(stored=task.take((one.first, one.second))) for one in asked]


def _known(asked: _Asked) -> Answer | None:
    if asked.stored is None:
        return Answer(asked, None, WideTime()) if asked.wide else None
    refused = asked.stored.refused
    return Answer(asked, asked.stored.made, None if refused is None else StoredRejection(refused))


def _argument(function: FunctionCaller, *, beside: bool) -> Callable[[_Asked], Any]:
    # A copy: what the function does to it must not show in a rejected row.
    return lambda asked: function.given(dict(_row(asked, beside=beside)))


def _row(asked: _Asked, *, beside: bool) -> dict[str, Any]:
    row: dict[str, Any] = asked.row[_ROW] if beside else asked.row
    return row


def _stored(
    task: TaskAnswers, answers: list[Answer], function: FunctionCaller, fits: Rows, refused: list[Any], *, beside: bool
) -> pa.Array:
    """Return answers as Arrow, and store those that are new."""

    def row(number: int) -> dict[str, Any]:
        return _row(answers[number].row, beside=beside)

    array, reasons = function.called(answers, partial(_made, function), fits, row)
    refused += rejected(reasons, row)
    keys = [pa.array([answer.row[number] for answer in answers], pa.int64()) for number in (1, 2)]
    store(task, keys, array, reasons, [answer.row.stored is None for answer in answers])
    return array


def _made(function: FunctionCaller, answer: Answer) -> dict[str, Any]:
    if answer.error is not None:
        raise answer.error
    return as_dict(answer.made, function.output)


def _with_beside(made: pa.Array, answers: list[Answer], kind: pa.DataType) -> pa.Array:
    """Return each result with the internal columns of its row; null where there is no result."""
    found = [None if answer.row.wide else answer.row.row[_BESIDE] for answer in answers]
    beside = pa.array(found, kind.field(_BESIDE).type)
    return pa.StructArray.from_arrays([made, beside], fields=list(kind), mask=made.is_null())
