"""What tasks do to write an epoch: they pass rows to a sink's `prepare`, and return its tokens.

It is the last step of the streaming query itself, so it is planned and shipped once, not once per epoch. A replayed
epoch is prepared again even for a sink that has it: the driver, which knows the ledger, then aborts those tokens; a
sink with a ledger in each partition checks that itself.

Rows in buckets of keys stay packed on their way to a sink, and its task unpacks them: so none goes through the JVM.
A sink that asks for partitions or keys, which Spark computes, gets rows.
"""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from penstock.contracts import Sink
from penstock.errors import PenstockError, SinkFailed, SparkFailed
from penstock.spark.epochs.epoch_names import EpochNames
from penstock.spark.epochs.result_staging import ResultStaging, StagedPartition
from penstock.spark.lowering.compile import Query, tagged
from penstock.spark.lowering.partitioning import PARTITION, to_sink_partitions
from penstock.spark.tasks.end_of_stream import InputCutShort
from penstock.spark.tasks.packed_rows import unpacked
from penstock.spark.tasks.spark_types import map_in_arrow
from penstock.spark.tasks.staging import Staging
from penstock.spark.tasks.task_context import current_bounds, current_epoch, current_partition
from penstock.storage.file_names import file_name


@dataclass(frozen=True)
class PackedOutput:
    """The columns of the rows in the blobs, and the names of those that the sink gets."""

    rows: pa.Schema
    names: tuple[str, ...]

    def unpack(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield the rows of each blob of a batch."""
        for rows in unpacked(batch.column("data"), self.rows):
            yield rows.select(self.names)


def packed_outputs(query: Query) -> dict[int, PackedOutput]:
    """Return the outputs of a query that tasks unpack, by their number; sinks know by now what they ask for."""
    return {
        number: PackedOutput(packed.rows.nullable().arrow, write.schema.names)
        for number, (packed, write) in enumerate(zip(query.packed, query.outputs, strict=True))
        if packed is not None and _takes_rows_only(write.sink)
    }


def _takes_rows_only(sink: Sink) -> bool:
    return sink.partitions is None and not sink.keyed and sink.row_removed is None


_IN_PIECES = (
    "do not run the job again, and report this: a sink whose tasks commit (a table, a topic, your own with partitions) "
    "may have the first piece, and would take it for all rows of the epoch"
)
_TOKENS = "output int, rows bigint, token binary"
_TOKENS_ARROW = pa.schema([("output", pa.int32()), ("rows", pa.int64()), ("token", pa.binary())])


@dataclass(frozen=True)
class Prepared:
    """What a task prepared for one output: how many rows, and the sink's token."""

    output: int
    rows: int
    token: Any


def run_tasks(frame: DataFrame) -> list[Prepared]:
    """Run the tasks of an epoch, and return what they prepared."""
    return [Prepared(output, rows, pickle.loads(token)) for output, rows, token in frame.collect()]


@dataclass(frozen=True)
class Preparer:
    """What tasks know of the outputs of a query: sinks and their names, and which epoch an earlier run started last.

    `nodes` are the names that rows of the outputs are counted by, `packed` the outputs whose rows come in blobs.
    """

    outputs: tuple[tuple[Sink, str], ...]
    nodes: tuple[str, ...]
    epochs: EpochNames
    staging: Staging
    started: int
    results: ResultStaging | None
    packed: Mapping[int, PackedOutput]

    def frame(self, query: Query) -> DataFrame:
        """Add the last step to a query: each task passes its rows to a sink, or stages them."""
        frames = [self._output(query, number) for number in range(len(query.outputs))]

        def tokens(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for one in self._task(batches):
                row = {"output": one.output, "rows": one.rows, "token": pickle.dumps(one.token)}
                yield pa.RecordBatch.from_pylist([row], schema=_TOKENS_ARROW)

        return map_in_arrow(tagged(frames), tokens, _TOKENS)

    def _output(self, query: Query, number: int) -> DataFrame:
        blobs = query.packed[number]
        if number in self.packed and blobs is not None:
            return blobs.frame.select("data")
        frame, write = query.frames[number], query.outputs[number]
        return to_sink_partitions(frame, write, query.context.cores, keeps_splits=query.keeps_splits)

    def prepare_staged(
        self, spark: SparkSession, epoch: int, bounds: str, partitions: Sequence[StagedPartition]
    ) -> list[Prepared]:
        """Pass staged rows to their sinks, in tasks of their own."""
        results = self.results
        if results is None or not partitions:
            return []

        def prepare(staged: StagedPartition) -> Iterator[Prepared]:
            return self._prepared(epoch, bounds, staged.output, staged.partition, results.batches(staged))

        return spark.sparkContext.parallelize(partitions, len(partitions)).flatMap(prepare).collect()

    def _task(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Prepared]:
        """Handle the rows of one task: most often of one output, but a union may put several into one task."""
        seen: set[tuple[int, int | None]] = set()
        for (output, partition), rows in groupby(self._split(batches), key=lambda part: part[:2]):
            if (output, partition) in seen:
                message = f"the rows of one partition for '{self.outputs[output][1]}' came in pieces in one task"
                raise SparkFailed(message, hint=_IN_PIECES)
            seen.add((output, partition))
            yield from self._written(output, partition, (batch for *_, batch in rows))

    def _written(self, output: int, partition: int | None, rows: Iterator[pa.RecordBatch]) -> Iterator[Prepared]:
        partition = current_partition() if partition is None else partition
        if self.results is None:
            yield from self._prepared(current_epoch(), current_bounds(), output, partition, rows)
        else:
            counter = _Counter(rows)
            staged = self.results.put(current_epoch(), output, partition, counter)
            yield Prepared(output, counter.rows, staged)

    def _split(self, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, int | None, pa.RecordBatch]]:
        """Yield the rows with the number of their output and of its partition, if it has partitions of its own."""
        for batch in batches:
            for output, rows in self._by_output(batch):
                if output in self.packed:
                    yield from ((output, None, one) for one in self.packed[output].unpack(rows))
                    continue
                if PARTITION not in rows.schema.names:
                    yield output, None, rows
                    continue
                for partition, part in equal_runs(rows, PARTITION):
                    yield output, partition, part.drop_columns([PARTITION])

    def _by_output(self, batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
        if len(self.outputs) == 1:
            yield from [(0, batch)] if batch.num_rows else []
            return
        for output, part in equal_runs(batch, "tag"):
            yield output, pa.RecordBatch.from_struct_array(part.column(f"o{output}"))

    def _prepared(
        self, number: int, bounds: str, output: int, partition: int, batches: Iterator[pa.RecordBatch]
    ) -> Iterator[Prepared]:
        sink, name = self.outputs[output]
        counter = _Counter(batches)
        part = f"{file_name(name)}={partition}"
        if not self._may_write(sink, number, part):
            counter.drain()
            self.staging.put_counts(
                number, f"write={name}={partition}", {self.nodes[output]: {"dropped": counter.rows}}
            )
            return
        epoch = self.epochs.of(name, number, bounds)
        try:
            with failures(sink, name, "take the rows"):
                token = sink.prepare(epoch, partition, counter)
            counter.drain()
        except PenstockError as error:
            self.staging.put_error(number, error)
            raise
        yield Prepared(output, counter.rows, token)

    def _may_write(self, sink: Sink, number: int, what: str) -> bool:
        """Return whether rows may be written that must not be there twice: no run and no task has started to."""
        if sink.guarantee != "at_most_once":
            return True
        return number > self.started and self.staging.claim(number, what)


@contextlib.contextmanager
def failures(sink: Sink, name: str, doing: str) -> Iterator[None]:
    """Add the name of a sink to its errors, also to those of a user's own sink."""
    try:
        yield
    except PenstockError as error:
        error.node = error.node or f"write '{name}'"
        raise
    except InputCutShort:
        raise
    except Exception as error:  # a sink may be user code, which may raise anything
        message = f"{type(sink).__name__} could not {doing}: {type(error).__name__}: {error}"
        raise SinkFailed(message, node=f"write '{name}'", transient=True) from error


def equal_runs(batch: pa.RecordBatch, name: str) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Cut a batch where the number in a column changes, and yield each number with its rows."""
    if not batch.num_rows:
        return
    numbers = batch.column(name).to_numpy()
    edges = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(numbers)]
    for first, last in pairwise(edges):
        yield int(numbers[first]), batch.slice(first, last - first)


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
