"""Arrow batches as PostgreSQL's COPY reads them: csv, in which an empty field is null and a quoted one is text."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv as pacsv

from penstock.connectors.json_text import json_text
from penstock.connectors.value_text import decimal_text

_OPTIONS = pacsv.WriteOptions(include_header=False, quoting_style="needed")


def csv_rows(batch: pa.RecordBatch) -> bytes:
    """Return the rows of a batch as csv without a header."""
    text = pa.RecordBatch.from_arrays([_text(column) for column in batch.columns], names=batch.schema.names)
    buffer = io.BytesIO()
    pacsv.write_csv(text, buffer, _OPTIONS)
    return buffer.getvalue()


def _text(column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_timestamp(kind):
        # The session is in UTC; Arrow looks a zone up for each value, and is six times as fast without.
        return column.cast(pa.timestamp(kind.unit))
    if pa.types.is_decimal(kind):
        return decimal_text(column)
    if pa.types.is_binary(kind):
        return pa.array([None if value is None else rf"\x{value.hex()}" for value in column.to_pylist()], pa.string())
    if pa.types.is_duration(kind):
        return pc.binary_join_element_wise(column.cast(pa.int64()).cast(pa.string()), " microseconds", "")
    if pa.types.is_nested(kind):
        return pc.if_else(pc.is_valid(column), json_text(column), None)
    return column
