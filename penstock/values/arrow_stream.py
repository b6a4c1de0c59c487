"""Tables as bytes: Arrow's stream format."""

from __future__ import annotations

from typing import Literal

import pyarrow as pa

# What ends a stream; Arrow takes one that is cut off between two batches for a whole one.
STREAM_END = b"\xff\xff\xff\xff\x00\x00\x00\x00"


def to_stream(table: pa.Table, compression: Literal["lz4"] | None = None) -> bytes:
    """Return a table as bytes, with its schema and the metadata of that.

    >>> from_stream(to_stream(pa.table({"a": [1, 2]}))).to_pydict()
    {'a': [1, 2]}
    """
    data: bytes = stream_buffer(table, compression).to_pybytes()
    return data


def stream_buffer(table: pa.Table, compression: Literal["lz4"] | None = None) -> pa.Buffer:
    """Return what `to_stream` does, without a copy."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return sink.getvalue()


def from_stream(data: bytes | pa.Buffer) -> pa.Table:
    """Return the table of `to_stream`."""
    with pa.ipc.open_stream(data) as reader:
        return reader.read_all()
