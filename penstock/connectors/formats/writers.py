"""Writers of Parquet, csv and json files."""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.connectors.formats.arrow_types import contains_type
from penstock.connectors.formats.csv.options import CsvOptions
from penstock.connectors.formats.csv.writer import CsvFile
from penstock.connectors.formats.json.type_conversion import holds_interval, holds_nested_key
from penstock.connectors.formats.json.writer import json_documents
from penstock.connectors.formats.wide_times import refuse_wide
from penstock.errors import BadSchema
from penstock.schema import Schema

ENDINGS = {"parquet": ".parquet", "csv": ".csv", "json": ".json"}
_GROUP_ROWS = 1 << 18
_GROUP_BYTES = 1 << 26


class Writer(Protocol):
    """An open file of one format."""

    def write_batch(self, batch: pa.RecordBatch) -> None:
        """Add rows."""

    def flush(self) -> None:
        """Write buffered rows."""

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
    """Raise BadSchema for columns that a format cannot represent."""
    for field in schema.arrow:
        kind = field.type
        unfit = (
            pa.types.is_nested(kind) or contains_type(kind, pa.types.is_binary)
            if format == "csv"
            else holds_nested_key(kind)
        )
        if format != "parquet" and (unfit or holds_interval(kind)):
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
        refuse_wide(batch, "json")
        lines = json_documents(batch, "}\n")
        self._file.write(pc.binary_join(pa.ListArray.from_arrays([0, len(lines)], lines), "")[0].as_buffer())

    def flush(self) -> None:
        """Nothing is buffered."""

    def close(self) -> None:
        """Finish the file."""
        self._file.close()
