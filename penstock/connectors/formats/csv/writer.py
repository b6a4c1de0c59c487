"""Writes csv that `read_files` reads back unchanged."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv as pacsv

from penstock.connectors.formats.csv.options import CsvOptions
from penstock.connectors.formats.text_columns import decimal_text, has_exponents, iso
from penstock.connectors.formats.wide_times import refuse_wide
from penstock.errors import SinkFailed

_QUOTE = '"'


class CsvFile:
    """csv with a header; an empty field, or the null text, is null, a quoted one text.

    Every text is in quotes, and may contain line breaks.
    """

    def __init__(self, path: str, schema: pa.Schema, options: CsvOptions | None = None) -> None:
        self._file = open(path, "wb")  # noqa: SIM115 (closed by `close`)
        self._options = options or CsvOptions()
        self._file.write(header_line(schema.names, self._options) + b"\n")

    def write_batch(self, batch: pa.RecordBatch) -> None:
        """Add rows."""
        self._file.write(csv_text(batch, self._options))

    def flush(self) -> None:
        """Nothing is buffered."""

    def close(self) -> None:
        """Finish the file."""
        self._file.close()


def header_line(names: Sequence[str], options: CsvOptions) -> bytes:
    """Return the names of columns as a line."""
    batch = pa.RecordBatch.from_arrays([pa.array([name]) for name in names], names=[str(n) for n in range(len(names))])
    return _bytes(batch, options).removesuffix(b"\n")


def csv_text(batch: pa.RecordBatch, options: CsvOptions) -> Any:
    """Return rows as csv lines; raise SinkFailed for one that no reader would take for a row."""
    if batch.num_columns == 1 and not options.null and batch.column(0).null_count:
        message = (
            f"csv of the one column '{batch.schema.names[0]}' cannot hold null: an empty line is no row to readers"
        )
        raise SinkFailed(message, hint=r'pass null="\\N", filter() such rows before, or write json or parquet')
    if not batch.num_rows:
        return b""
    refuse_wide(batch, "csv")
    columns = [iso(column) if pa.types.is_timestamp(column.type) else column for column in batch.columns]
    if options.quote == _QUOTE and not options.escape and not any(map(has_exponents, columns)):
        return _by_arrow(pa.RecordBatch.from_arrays(columns, names=batch.schema.names), options)
    fields = [_quoted(column, options) for column in columns]
    lines = pc.binary_join_element_wise(
        *fields, options.delimiter, null_handling="replace", null_replacement=options.null
    )
    return pc.binary_join(pa.ListArray.from_arrays([0, len(lines)], lines), "\n")[0].as_py().encode() + b"\n"


def _by_arrow(batch: pa.RecordBatch, options: CsvOptions) -> pa.Buffer:
    chosen = {"delimiter": options.delimiter, "null_string": options.null, "quoting_style": "needed"}
    sink = pa.BufferOutputStream()
    pacsv.write_csv(batch, sink, pacsv.WriteOptions(include_header=False, **chosen))
    return sink.getvalue()


def _quoted(column: pa.Array, options: CsvOptions) -> pa.Array:
    """Return fields of text, in quotes where they were text before."""
    if pa.types.is_decimal(column.type):
        return decimal_text(column)
    if not pa.types.is_string(column.type):
        return column.cast(pa.string())
    quote, escape, text = options.quote or "", options.escape or "", column
    for mark in (escape, quote) if escape else (quote,):
        text = pc.replace_substring(text, mark, f"{escape or quote}{mark}")
    return pc.binary_join_element_wise(quote, text, quote, "")


def csv_lines(batch: pa.RecordBatch, options: CsvOptions | None = None) -> list[bytes]:
    """Return each row as a line without its end; a row with line breaks in a text has several."""
    options = options or CsvOptions()
    lines = _bytes(batch, options).removesuffix(b"\n").split(b"\n")
    if len(lines) == batch.num_rows:
        return lines
    return [_bytes(batch.slice(n, 1), options).removesuffix(b"\n") for n in range(batch.num_rows)]


def _bytes(batch: pa.RecordBatch, options: CsvOptions) -> bytes:
    buffer = io.BytesIO()
    buffer.write(csv_text(batch, options))
    return buffer.getvalue()
