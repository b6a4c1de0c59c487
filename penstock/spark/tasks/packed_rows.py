"""Packed rows: the rows of a bucket of keys in one blob, an Arrow message without its schema.

A blob crosses between Python and the JVM, and the shuffle, as one value: no operator of Spark touches a single row.
Rows are packed by the scan where the native lane reaches that far, else by a task of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from penstock.native.key_buckets import KeyBuckets
from penstock.schema import Field, Schema
from penstock.spark.tasks.internal_columns import EVENT_TIME, PREFIX, TICK

BUCKET = PREFIX + "bucket"
PACK_BYTES = 32 << 20
_TYPES = {BUCKET: "int", "at": "timestamp", "stream": "int", "part": "int", "number": "int", "data": "binary"}
# `stream` is which input of the operator the rows are of. Blobs of one are put in order by the task that packed them,
# and their number there; `at` is for Spark's timeouts. Schemas are not written as SQL here: tasks should not load its
# parser.
BLOB = Schema(tuple(Field(name, kind) for name, kind in _TYPES.items()))
# What leaves a bucket: blobs with rows that the step made, and how many; and one without, with how its state has grown.
MADE = Schema(
    (Field("data", "binary"), Field("rows", "int"), Field("state_rows", "bigint"), Field("state_bytes", "bigint"))
)
_BLOB_ARROW = BLOB.nullable().arrow
_TIMES = (Field(EVENT_TIME, "timestamp"), Field(TICK, "boolean"))

Numbers = npt.NDArray[np.int64]


def packed(rows: pa.Table, buckets: Numbers, stream: int, part: int, number: int) -> pa.RecordBatch:
    """Return a blob for each bucket that has rows, which keep their order."""
    order = np.argsort(buckets, kind="stable")
    buckets = buckets[order]
    whole = rows.take(pa.array(order)).combine_chunks()
    firsts = np.flatnonzero(np.r_[True, buckets[1:] != buckets[:-1]]) if len(buckets) else np.array([], int)
    lasts = np.r_[firsts[1:], len(buckets)]
    parts = [whole.slice(a, b - a).to_batches()[0] for a, b in zip(firsts, lasts, strict=False)]
    columns = [
        pa.array(buckets[firsts], pa.int32()),
        # Spark needs a time for its timeouts, and drops rows older than the watermark; a null is never older.
        pa.nulls(len(parts), pa.timestamp("us", "UTC")),
        *(pa.array([one] * len(parts), pa.int32()) for one in (stream, part, number)),
        pa.array([blob(one) for one in parts], pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_BLOB_ARROW)


def blob(rows: pa.RecordBatch) -> bytes:
    """Return rows as one value."""
    data: bytes = rows.serialize().to_pybytes()
    return data


def unpacked(data: pa.Array, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of each blob of a column; they share its memory."""
    for one in data:
        yield pa.ipc.read_record_batch(pa.py_buffer(one.as_buffer()), schema)


def in_packs(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, pa.Table]]:
    """Yield rows in tables that are small enough to be packed at once, and the number of each."""
    waiting: list[pa.RecordBatch] = []
    size = number = 0
    for batch in batches:
        waiting.append(batch)
        size += batch.nbytes
        if size >= PACK_BYTES:
            yield number, pa.Table.from_batches(waiting)
            waiting, size, number = [], 0, number + 1
    if waiting:
        yield number, pa.Table.from_batches(waiting)


class PackedFrame(NamedTuple):
    """A frame with a blob in each row, and the columns of the rows in the blobs."""

    frame: DataFrame
    rows: Schema


@dataclass(frozen=True)
class ScanPacker:
    """Packs the rows of a scan by their keys; `rows` is what a blob has, `output` what leaves the scan.

    They are input number `stream` of the operator. Without keys all are in one bucket.

    Where rows have an event time, each blob carries the newest time of those that were packed with it, so that Spark's
    watermark follows. Rows that carry a declared time and nothing else leave as they are.
    """

    keys: tuple[str, ...]
    buckets: KeyBuckets
    rows: Schema
    stream: int = 0

    @property
    def output(self) -> Schema:
        """The blobs, with their time."""
        return Schema((*BLOB.fields, *(_TIMES if EVENT_TIME in self.rows.names else ())))

    def pack(self, batches: Iterable[pa.RecordBatch], part: int) -> Iterator[pa.RecordBatch]:
        """Pack the rows of a task, and pass on its declared times."""
        for number, table in in_packs(batches):
            ticks = table.filter(table.column(TICK)) if TICK in table.column_names else None
            if ticks is not None and ticks.num_rows:
                yield self._ticks(ticks.column(EVENT_TIME))
                table = table.filter(pc.invert(table.column(TICK)))
            if table.num_rows:
                yield self._packed(table, part, number)

    def _packed(self, table: pa.Table, part: int, number: int) -> pa.RecordBatch:
        keys = [table.column(name).combine_chunks() for name in self.keys]
        buckets = self.buckets.of(keys, table.num_rows)
        rows = table.select(self.rows.names).cast(self.rows.nullable().arrow)
        blobs = packed(rows, buckets, self.stream, part, number)
        if EVENT_TIME not in self.rows.names:
            return blobs
        newest = pa.repeat(pc.max(table.column(EVENT_TIME)), blobs.num_rows)
        return self._with_times(blobs.columns, newest, tick=False)

    def _ticks(self, times: pa.ChunkedArray) -> pa.RecordBatch:
        nothing = [pa.nulls(len(times), field.type) for field in _BLOB_ARROW]
        return self._with_times(nothing, times.combine_chunks(), tick=True)

    def _with_times(self, blobs: list[pa.Array], times: pa.Array, *, tick: bool) -> pa.RecordBatch:
        ticks = pa.repeat(pa.scalar(tick), len(times))
        return pa.RecordBatch.from_arrays([*blobs, times, ticks], schema=self.output.nullable().arrow)
