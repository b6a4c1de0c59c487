"""Functions of tasks that get all rows of their partition, or an error.

Where the JVM's side of a task ends early, Spark closes the socket to the Python worker without Arrow's end-of-stream
marker, and pyarrow reads an end of file between two batches as a normal end. The worker would then commit, or stage,
part of a partition as the whole, perhaps after the task that repeats it. So the worker requires the marker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO, Any

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


def _require_end_of_stream() -> None:
    """Have this worker's Arrow readers raise InputCutShort where a stream ends without its marker."""
    ArrowStreamSerializer.load_stream = _load_stream  # type: ignore[method-assign]


class OfWholeInput:
    """What a worker is given, before it reads the first row, if it must not take some rows for all."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        _require_end_of_stream()
        self.__dict__.update(state)


@dataclass(frozen=True)
class _Called(OfWholeInput):
    function: Callable[[Any], Any]


def of_whole_input(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a function for Spark's workers whose iterator raises InputCutShort if the task is lost."""
    called = _Called(function)

    def call(rows: Any) -> Any:
        return called.function(rows)

    call.__name__ = function.__name__
    return call
