"""Batches to files: Parquet, csv, json."""

from __future__ import annotations

import base64
import json
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.connectors.binary_text import holds_binary
from penstock.connectors.csv_options import CsvOptions
from penstock.connectors.csv_writer import CsvFile
from penstock.connectors.json_numbers import json_number
from penstock.connectors.value_text import decimal_text, iso
from penstock.errors import BadSchema
from penstock.schema import Schema

ENDINGS = {"parquet": ".parquet", "csv": ".csv", "json": ".json"}
_GROUP_ROWS = 1 << 18
_GROUP_BYTES = 1 << 26
_ESCAPED = r'["\\\x00-\x1f]'


class Writer(Protocol):
    """An open file of one format."""

    def write_batch(self, batch: pa.RecordBatch) -> None:
        """Add rows."""

    def flush(self) -> None:
        """Hold no rows in memory."""

    def close(self) -> None:
        """Finish the file."""


def open_writer(format: str, path: str, schema: pa.Schema, options: CsvOptions | None = None) -> Writer:
    """Open a file to write; times are in UTC, in csv and json as ISO-8601 text; bytes in json are base64."""
    if format == "parquet":
        return ParquetFile(path, schema)
    if format == "csv":
        return CsvFile(path, schema, options)
    return JsonFile(path)


def refuse_types(format: str, schema: Schema) -> None:
    """Raise BadSchema for columns that a format cannot hold."""
    for field in schema.arrow:
        kind = field.type
        unfit = pa.types.is_nested(kind) or holds_binary(kind) if format == "csv" else False
        if format != "parquet" and (unfit or _holds_duration(kind)):
            message = f"{format} cannot hold column '{field.name}' of type {schema.types[field.name]}"
            raise BadSchema(message, hint="write parquet, or make it text before: base64(c), to_json(c)")


class ParquetFile:
    """Parquet, zstd, with row groups that are large whatever the size of the batches."""

    def __init__(self, path: str, schema: pa.Schema) -> None:
        self._writer = pq.ParquetWriter(path, schema, compression="zstd")
        self._held: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0

    def write_batch(self, batch: pa.RecordBatch) -> None:
        """Add rows."""
        self._held.append(batch)
        self._rows += batch.num_rows
        self._bytes += batch.nbytes
        if self._rows >= _GROUP_ROWS or self._bytes >= _GROUP_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write a row group of what is held."""
        if self._held:
            self._writer.write_table(pa.Table.from_batches(self._held), row_group_size=_GROUP_ROWS)
            self._held, self._rows, self._bytes = [], 0, 0

    def close(self) -> None:
        """Finish the file."""
        self.flush()
        self._writer.close()


class JsonFile:
    """json, a document per line, nulls written out."""

    def __init__(self, path: str) -> None:
        self._file = open(path, "wb")  # noqa: SIM115 (closed by `close`)

    def write_batch(self, batch: pa.RecordBatch) -> None:
        """Add rows."""
        if not batch.num_rows:
            return
        lines = json_documents(batch, "}\n")
        self._file.write(pc.binary_join(pa.ListArray.from_arrays([0, len(lines)], lines), "")[0].as_buffer())

    def flush(self) -> None:
        """Nothing is held."""

    def close(self) -> None:
        """Finish the file."""
        self._file.close()


def json_documents(batch: pa.RecordBatch, end: str = "}") -> pa.Array:
    """Return each row as a JSON document."""
    parts: list[pa.Array | str] = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        parts += [f"{', ' if parts else '{'}{json.dumps(name, ensure_ascii=False)}: ", json_text(column)]
    return pc.binary_join_element_wise(*parts, end, "")


def json_text(column: pa.Array) -> pa.Array:
    """Return each value as JSON text."""
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        text = _quoted(iso(column) if pa.types.is_timestamp(kind) else column.cast(pa.string()))
    elif pa.types.is_nested(kind) or pa.types.is_binary(kind) or _not_finite(column):
        text = pa.array([json.dumps(_plain(v, kind), ensure_ascii=False) for v in column.to_pylist()])
    else:
        text = decimal_text(column) if pa.types.is_decimal(kind) else column.cast(pa.string())
    return pc.fill_null(text, "null")


def _quoted(text: pa.Array) -> pa.Array:
    if pc.any(pc.match_substring_regex(text, _ESCAPED)).as_py():
        return pa.array([v if v is None else json.dumps(v, ensure_ascii=False) for v in text.to_pylist()])
    return pc.binary_join_element_wise('"', text, '"', "")


def _plain(value: object, kind: pa.DataType) -> object:
    """Return a value as `json.dumps` takes it; bytes are text in base64, as Spark and Kafka Connect write them."""
    if value is None or pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        return value
    if isinstance(value, float):
        return json_number(value)
    if isinstance(value, list) and pa.types.is_map(kind):
        return {str(key): _plain(item, kind.item_type) for key, item in value}
    if isinstance(value, list):
        return [_plain(part, kind.value_type) for part in value]
    if isinstance(value, dict):
        return {part.name: _plain(value[part.name], part.type) for part in kind}
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    scalar = pa.array([value], kind)
    if pa.types.is_decimal(kind):
        return decimal_text(scalar)[0].as_py()
    return (iso(scalar) if pa.types.is_timestamp(kind) else scalar.cast(pa.string()))[0].as_py()


def _holds_duration(kind: pa.DataType) -> bool:
    if pa.types.is_nested(kind):
        return any(_holds_duration(kind.field(n).type) for n in range(kind.num_fields))
    return bool(pa.types.is_duration(kind))


def _not_finite(column: pa.Array) -> bool:
    return pa.types.is_floating(column.type) and pc.all(pc.is_finite(column)).as_py() is False
