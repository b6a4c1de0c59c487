"""The tasks' half of writing an epoch: rows to a sink's `prepare`, tokens back.

It is the last step of the streaming query itself, so it is planned and shipped once, not once per epoch. A replayed
epoch is prepared again even for a sink that has it: the driver, which knows the ledger, then aborts those tokens; a
sink with a ledger in each partition looks there itself.
"""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from penstock.contracts import Epoch, Sink
from penstock.errors import PenstockError, SinkFailed
from penstock.spark.epochs.outbox import Outbox, Share
from penstock.spark.epochs.placing import PARTITION, placed
from penstock.spark.epochs.scan import current_epoch, current_partition
from penstock.spark.epochs.staging import Staging
from penstock.spark.lowering.compile import Query, tagged

_TOKENS = "output int, rows bigint, token binary"
_TOKENS_ARROW = pa.schema([("output", pa.int32()), ("rows", pa.int64()), ("token", pa.binary())])


def epoch_of(lineage: str, query: str, sink: str, number: int) -> Epoch:
    """Name an epoch of a sink; two queries of one pipeline number theirs apart, and no sink's name has a "@"."""
    return Epoch(lineage, sink if query == "final" else f"{sink}@{query}", number)


@dataclass(frozen=True)
class Made:
    """What a task made of the rows of one output: how many there were, and its token."""

    output: int
    rows: int
    token: Any


def collected(frame: DataFrame) -> list[Made]:
    """Run the tasks of an epoch, and return what they made."""
    return [Made(output, rows, pickle.loads(token)) for output, rows, token in frame.collect()]


@dataclass(frozen=True)
class Preparer:
    """What tasks know of the outputs of a query: sinks and their names, and which epoch an earlier run began."""

    outputs: tuple[tuple[Sink, str], ...]
    query: str
    lineage: str
    staging: Staging
    begun: int
    outbox: Outbox | None

    def frame(self, query: Query) -> DataFrame:
        """Add the last step to a query: each task hands its rows to a sink, or to the outbox."""
        frames = [placed(frame, write) for frame, write in zip(query.frames, query.outputs, strict=True)]

        def tokens(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for made in self._task(batches):
                row = {"output": made.output, "rows": made.rows, "token": pickle.dumps(made.token)}
                yield pa.RecordBatch.from_pylist([row], schema=_TOKENS_ARROW)

        return tagged(frames).mapInArrow(tokens, _TOKENS)

    def shares(self, spark: SparkSession, epoch: int, shares: Sequence[Share]) -> list[Made]:
        """Hand the rows of the outbox to their sinks, in tasks of their own."""
        outbox = self.outbox
        if outbox is None or not shares:
            return []

        def prepare(share: Share) -> Iterator[Made]:
            return self._prepared(epoch, share.output, share.partition, outbox.batches(share))

        return spark.sparkContext.parallelize(shares, len(shares)).flatMap(prepare).collect()

    def _task(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Made]:
        """Handle the rows of one task: all of them belong to one output, for a union keeps partitions apart."""
        filled = (batch for batch in batches if batch.num_rows)
        first = next(filled, None)
        if first is None:
            return
        output = 0 if len(self.outputs) == 1 else first.column("tag")[0].as_py()
        rows = self._untagged(chain([first], filled), output)
        first = next(rows)
        rows = chain([first], rows)
        partition = current_partition()
        if PARTITION in first.schema.names:
            partition = first.column(PARTITION)[0].as_py()
            rows = (batch.drop_columns([PARTITION]) for batch in rows)
        if self.outbox is None:
            yield from self._prepared(current_epoch(), output, partition, rows)
        else:
            counter = _Counter(rows)
            share = self.outbox.put(current_epoch(), output, partition, counter)
            yield Made(output, counter.rows, share)

    def _untagged(self, batches: Iterable[pa.RecordBatch], output: int) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            many = len(self.outputs) > 1
            yield pa.RecordBatch.from_struct_array(batch.column(f"o{output}")) if many else batch

    def _prepared(self, number: int, output: int, partition: int, batches: Iterator[pa.RecordBatch]) -> Iterator[Made]:
        sink, name = self.outputs[output]
        counter = _Counter(batches)
        if not self._may_write(sink, number, f"{name}={partition}"):
            counter.drain()
            self.staging.put_counts(number, f"write={name}={partition}", {name: {"dropped": counter.rows}})
            return
        epoch = epoch_of(self.lineage, self.query, name, number)
        try:
            with failures(sink, name, "take the rows"):
                token = sink.prepare(epoch, partition, counter)
        except PenstockError as error:
            self.staging.put_error(number, error)
            raise
        counter.drain()
        yield Made(output, counter.rows, token)

    def _may_write(self, sink: Sink, number: int, what: str) -> bool:
        """Say whether rows may be written that must not be there twice: no run and no task has begun with them."""
        if sink.guarantee != "at_most_once":
            return True
        return number > self.begun and self.staging.claim(number, what)


@contextlib.contextmanager
def failures(sink: Sink, name: str, doing: str) -> Iterator[None]:
    """Let errors of a sink, a user's own too, say which one it was."""
    try:
        yield
    except PenstockError as error:
        error.node = error.node or f"write '{name}'"
        raise
    except Exception as error:
        message = f"{type(sink).__name__} could not {doing}: {type(error).__name__}: {error}"
        raise SinkFailed(message, node=f"write '{name}'", transient=True) from error


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
