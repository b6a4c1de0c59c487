"""The tasks' half of writing an epoch: rows to a sink's `prepare`, tokens back.

It is the last step of the streaming query itself, so it is planned and shipped once, not once per epoch. A replayed
epoch is prepared again even for a sink that has it: the driver, which knows the ledger, then aborts those tokens.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from itertools import chain
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import DataFrame

from penstock.contracts import Epoch, Sink
from penstock.errors import PenstockError, SinkFailed
from penstock.spark.scan import current_epoch, current_partition
from penstock.spark.staging import Staging

if TYPE_CHECKING:
    from penstock.spark.compile import Query

_TOKENS = "output int, rows bigint, token binary"
_TOKENS_ARROW = pa.schema([("output", pa.int32()), ("rows", pa.int64()), ("token", pa.binary())])


def prepared(query: Query, lineage: str) -> DataFrame:
    """Add the last step to a query: each task hands its rows to a sink and returns the token."""
    outputs = [(write.sink, query.context.graph.name(write)) for write in query.outputs]
    return query.frame.mapInArrow(_preparer(outputs, query.name, lineage, query.context.staging), _TOKENS)


def epoch_of(lineage: str, query: str, sink: str, number: int) -> Epoch:
    """Name an epoch of a sink; two queries of one pipeline number theirs apart."""
    return Epoch(lineage, sink if query == "final" else f"{sink}.{query}", number)


def _preparer(
    outputs: list[tuple[Sink, str]], query: str, lineage: str, staging: Staging
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return what a task does with its rows: all of them belong to one output, for a union keeps partitions apart."""

    def prepare(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        filled = (batch for batch in batches if batch.num_rows)
        first = next(filled, None)
        if first is None:
            return
        output = 0 if len(outputs) == 1 else first.column("tag")[0].as_py()
        counter = _Counter(_untagged(chain([first], filled), output, len(outputs) > 1))
        sink, name = outputs[output]
        token = _token(sink, epoch_of(lineage, query, name, current_epoch()), counter, staging)
        counter.drain()
        made = [{"output": output, "rows": counter.rows, "token": token}]
        yield pa.RecordBatch.from_pylist(made, schema=_TOKENS_ARROW)

    return prepare


def _untagged(batches: Iterator[pa.RecordBatch], output: int, tagged: bool) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.RecordBatch.from_struct_array(batch.column(f"o{output}")) if tagged else batch


def _token(sink: Sink, epoch: Epoch, batches: Iterator[pa.RecordBatch], staging: Staging) -> bytes:
    try:
        return pickle.dumps(sink.prepare(epoch, current_partition(), batches))
    except PenstockError as error:
        error.node = error.node or f"write '{epoch.sink}'"
        staging.put_error(epoch.number, error)
        raise
    except Exception as error:
        message = f"{type(sink).__name__} could not take the rows: {type(error).__name__}: {error}"
        failed = SinkFailed(message, node=f"write '{epoch.sink}'", transient=True)
        staging.put_error(epoch.number, failed)
        raise failed from error


class _Counter:
    """Counts rows on their way to a sink, and those that the sink leaves unread."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self.rows = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self

    def __next__(self) -> pa.RecordBatch:
        batch = next(self._batches)
        self.rows += batch.num_rows
        return batch

    def drain(self) -> None:
        for _ in self:
            pass
