"""`map_async` inside Spark: an Arrow function that keeps many calls under way.

Results in order stand beside the rows they were made of, as those of `map` do. In the order in which they come they
do not, so each takes its row's hidden columns along.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from penstock.aggregates import struct_type
from penstock.plan.nodes import MapAsync
from penstock.schema import arrow_type
from penstock.spark.hidden import hidden
from penstock.spark.lowering.async_calls import Answer, AsyncCaller, Calls
from penstock.spark.lowering.context import Context, keep_hidden, row
from penstock.spark.lowering.exchange import exchanged
from penstock.spark.lowering.lower import lower
from penstock.spark.lowering.python_nodes import OUT, Stage, as_dict, stage_of
from penstock.spark.udf import array_function

_ROW, _BESIDE = "row", "beside"


@lower.register
def _map_async(node: MapAsync, context: Context, frame: DataFrame) -> DataFrame:
    if node.concurrency < context.cores:
        # The bound is the job's: fewer calls at once than tasks means fewer tasks.
        frame = exchanged(frame, node.concurrency)
    stage, calls = stage_of(node, context), _calls(node, context)
    made = struct_type(node.schema)
    if node.in_order or not hidden(frame.columns):
        called = frame.select(_udf(stage, calls, made, beside=False)(row(node.input)).alias(OUT), *keep_hidden(frame))
        return called.filter(F.col(OUT).isNotNull()).select(f"{OUT}.*", *keep_hidden(frame))
    beside = F.struct(*keep_hidden(frame))
    kinds = ", ".join(f"{name}: {frame.schema[name].dataType.simpleString()}" for name in hidden(frame.columns))
    returned = f"struct<{_ROW}: {made}, {_BESIDE}: struct<{kinds}>>"
    whole = F.struct(row(node.input).alias(_ROW), beside.alias(_BESIDE))
    called = frame.select(_udf(stage, calls, returned, beside=True)(whole).alias(OUT))
    return called.filter(F.col(OUT).isNotNull()).select(f"{OUT}.{_ROW}.*", *_restored(frame))


def _restored(frame: DataFrame) -> Iterator[Column]:
    """Yield the hidden columns out of the result, the event time with what Spark knows it by."""
    for name in hidden(frame.columns):
        yield F.col(f"{OUT}.{_BESIDE}.{name}").alias(name, metadata=frame.schema[name].metadata)


def _calls(node: MapAsync, context: Context) -> Calls:
    at_once = max(1, node.concurrency // context.cores)
    return Calls(node.fn, node.using, at_once, node.timeout_us, node.retries, node.in_order)


def _udf(stage: Stage, calls: Calls, returned: str, *, beside: bool) -> Any:
    kind = arrow_type(returned)

    def call(rows: Iterator[pa.Array]) -> Iterator[pa.Array]:
        refused: list[tuple[str, dict[str, Any]]] = []
        with AsyncCaller(calls, _argument(stage, beside=beside)) as caller:
            for answers in caller.answers(batch.to_pylist() for batch in rows):
                yield stage.typed([_made(answer, stage, refused, beside=beside) for answer in answers], kind)
        stage.put(refused)

    return array_function(call, returned).asNondeterministic()


def _argument(stage: Stage, *, beside: bool) -> Callable[[Any], Any]:
    return (lambda whole: stage.given(whole[_ROW])) if beside else stage.given


def _made(answer: Answer, stage: Stage, refused: list[Any], *, beside: bool) -> Any:
    given = answer.row[_ROW] if beside else answer.row
    try:
        if answer.error is not None:
            raise answer.error
        made = as_dict(answer.made, stage.output)
    except Exception as error:
        return stage.refuse(error, given, refused)
    return {_ROW: made, _BESIDE: answer.row[_BESIDE]} if beside else made
