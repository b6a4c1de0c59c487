"""Outputs whose rows leave their buckets of keys for the sink as they are: the sink's task unpacks the blobs itself.

So no row of them goes through the JVM. A sink that asks for partitions or keys, which Spark computes, gets rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from penstock.contracts import Sink
from penstock.spark.lowering.compile import Query
from penstock.spark.tasks.packed_rows import unpacked


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
