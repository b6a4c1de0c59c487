"""Proof that a task got all rows of its partition.

Spark feeds a Python worker Arrow batches over a socket. When the JVM's side of the task ends early (a fetch failure, a
kill, a failed operator in the same stage) it closes the socket between two batches, and pyarrow takes that for the end
of the stream. A sink that commits in its task would then commit a part as the whole. So the end-of-stream marker, which
the JVM writes only after the last row, is demanded: without it the reader raises.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO

import pyarrow as pa
from pyspark.sql.pandas.serializers import ArrowStreamSerializer


class InputCutShort(Exception):
    """The JVM's side of this task ended before it sent all rows: the task is lost, and another one repeats it."""


class _ExactStream:
    """A stream that gives as many bytes as it is asked for, or raises: an end of file is never an end of rows."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self.closed = False

    def read(self, size: int = -1) -> bytes:
        data = self._stream.read(size)
        if size > 0 and len(data) < size:
            message = "Spark ended this task before all rows of its partition had arrived"
            raise InputCutShort(message)
        return data

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self.closed = True


def _load_stream(self: ArrowStreamSerializer, stream: IO[bytes]) -> Iterator[pa.RecordBatch]:
    yield from pa.ipc.open_stream(_ExactStream(stream))


def demand_end_marker() -> None:
    """Have this worker's Arrow readers raise InputCutShort where a stream ends without its marker."""
    ArrowStreamSerializer.load_stream = _load_stream  # type: ignore[method-assign]
