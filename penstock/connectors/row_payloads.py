"""Rows as the payloads of records: json documents, csv lines, or the bytes as they are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from penstock.connectors.csv_options import CsvOptions
from penstock.connectors.csv_writer import csv_lines
from penstock.connectors.json_text import json_documents
from penstock.connectors.writers import refuse_types
from penstock.contracts import ROW_KEY
from penstock.errors import BadSchema
from penstock.schema import Schema

# Keys and payloads, side by side.
Records = tuple[list[Any], list[Any]]


def refuse_rows(topic: str, format: str, schema: Schema) -> None:
    """Raise if a format cannot hold rows of this schema."""
    if format == "raw" and (len(schema) != 1 or schema.fields[0].type not in ("binary", "string")):
        message = f"{topic}: raw writes one column, binary or string, not {schema.ddl!r}"
        raise BadSchema(message, hint="select() the one column before, or write json")
    if format != "raw":
        refuse_types(format, schema)


def keyed_payloads(batches: Iterable[pa.RecordBatch], format: str) -> Iterator[Records]:
    """Yield the keys and payloads of each batch."""
    for batch in batches:
        keyed = ROW_KEY in batch.schema.names
        keys = batch.column(ROW_KEY).to_pylist() if keyed else [None] * batch.num_rows
        yield keys, payloads(batch.drop_columns([ROW_KEY]) if keyed else batch, format)


def payloads(batch: pa.RecordBatch, format: str, options: CsvOptions | None = None) -> list[Any]:
    """Return each row as a payload."""
    if format == "raw":
        return list(batch.column(0).to_pylist())
    if not batch.num_rows:
        return []
    return list(json_documents(batch).to_pylist()) if format == "json" else csv_lines(batch, options)
