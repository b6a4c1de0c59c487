"""Payloads of records to rows, with the requested metadata columns, and rows to payloads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.connectors.formats.csv.options import CsvOptions
from penstock.connectors.formats.csv.writer import csv_lines
from penstock.connectors.formats.json.writer import json_documents
from penstock.connectors.formats.parsers import Parser, not_text, null_violations, parser, without
from penstock.connectors.formats.wide_times import refuse_wide
from penstock.connectors.formats.writers import refuse_types
from penstock.contracts import ROW_KEY, ROW_REMOVED, Rejected
from penstock.errors import BadSchema, BadValue, choices, one_of
from penstock.schema import Field, Schema

FORMATS = ("json", "csv", "raw")
_LATER = ("avro", "protobuf")
_INCLUDED = {
    "key": "binary",
    "headers": "array<struct<key:string,value:binary>>",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
}
# The columns that are fetched, named as in Spark's own connector.
RECORDS = pa.schema(
    [
        ("offset", pa.int64()),
        ("value", pa.binary()),
        ("key", pa.binary()),
        ("partition", pa.int32()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)
# Keys and payloads, in the same order.
Records = tuple[list[Any], list[Any]]


class Payloads:
    """Turns fetched records into rows; a payload that cannot be parsed becomes a Rejected with its position."""

    def __init__(self, topic: str, schema: Schema, format: str, include: Sequence[str]) -> None:
        self._topic, self._format, self._include = topic, format, include
        self._own = Schema(tuple(field for field in schema.fields[: len(schema) - len(include)]))
        self._arrow = schema.nullable().arrow
        self._parser: Parser | None = parser(format, self._own) if format != "raw" else None

    def rows(self, records: pa.RecordBatch) -> Iterator[pa.RecordBatch | Rejected]:
        """Yield the rejected records, then the rows."""
        values = records.column("value")
        batch, bad = self._parsed(values)
        for number in sorted(bad):
            where = f"{self._topic}/{records.column('partition')[number]}@{records.column('offset')[number]}"
            yield Rejected(bad[number], values[number].as_py() or b"", where)
        if batch.num_rows:
            beside = without(records, bad) if bad and self._include else records
            yield pa.RecordBatch.from_arrays(
                [*batch.columns, *(beside.column(name) for name in self._include)], schema=self._arrow
            )

    def one(self, payload: bytes) -> dict[str, object] | str:
        """Return the row of a single payload, or why it is rejected; the test kit uses it."""
        batch, bad = self._parsed(pa.array([payload], pa.binary()))
        rows: list[dict[str, object]] = batch.to_pylist()
        return bad[0] if bad else rows[0]

    def _parsed(self, values: pa.BinaryArray) -> tuple[pa.RecordBatch, dict[int, str]]:
        if self._parser is None:
            return self._raw(values)
        payloads = values.drop_null() if values.null_count else values
        batch, bad = self._parser.joined(_joined(payloads), len(payloads)) or self._one_by_one(self._parser, payloads)
        if not values.null_count:
            return batch, bad
        valid = pc.indices_nonzero(values.is_valid()).to_pylist()
        tombstones = pc.indices_nonzero(values.is_null()).to_pylist()
        return batch, {valid[n]: why for n, why in bad.items()} | dict.fromkeys(tombstones, "no payload: a tombstone")

    def _one_by_one(self, parser: Parser, payloads: pa.BinaryArray) -> tuple[pa.RecordBatch, dict[int, str]]:
        """Return the rows of payloads, some of which are invalid or have several lines."""
        texts = payloads.to_pylist()
        if not any(b"\n" in payload for payload in texts):
            return parser.each(texts)
        return parser.rows([self._line(payload) if b"\n" in payload else payload for payload in texts])

    def _line(self, payload: bytes) -> bytes:
        if self._format == "csv":
            return payload.removesuffix(b"\n").removesuffix(b"\r")
        # A document may have several lines. A tab is whitespace too, and as invalid inside a string as a line break.
        return payload.replace(b"\n", b"\t")

    def _raw(self, values: pa.BinaryArray) -> tuple[pa.RecordBatch, dict[int, str]]:
        arrow = self._own.nullable().arrow
        bad: dict[int, str] = {}
        try:
            column = values.cast(arrow.field(0).type)
        except pa.ArrowInvalid:
            bad = {
                n: why for n, value in enumerate(values.to_pylist()) if value is not None and (why := not_text(value))
            }
            column = values.filter(_all_but(len(values), bad)).cast(arrow.field(0).type)
        batch = pa.RecordBatch.from_arrays([column], schema=arrow)
        nulls = null_violations(batch, self._own)
        if not nulls:
            return batch, bad
        kept = [n for n in range(len(values)) if n not in bad]
        return without(batch, [n for n, _ in nulls]), bad | {kept[n]: why for n, why in nulls}


def _joined(payloads: pa.BinaryArray) -> bytes:
    """Return payloads with line breaks between them."""
    together = pa.ListArray.from_arrays(pa.array([0, len(payloads)], pa.int32()), payloads)
    joined: bytes = pc.binary_join(together, b"\n")[0].as_py()
    return joined


def _all_but(count: int, dropped: Iterable[int]) -> pa.BooleanArray:
    left = np.ones(count, bool)
    left[list(dropped)] = False
    return pa.array(left)


def row_schema(topic: str, schema: Schema | None, format: str, include: Sequence[str]) -> Schema:
    """Return the schema of a topic's rows: the columns of the payload, then those of `include`."""
    check_format(topic, format)
    if format == "raw":
        schema = schema or Schema("value binary")
        if len(schema) != 1 or schema.fields[0].type not in ("binary", "string"):
            message = f"{topic}: raw has one column, binary or string, not {schema.ddl!r}"
            raise BadSchema(message, hint='leave the schema out, or pass "value string"')
    elif schema is None:
        message = f"{topic}: {format} needs a schema"
        raise BadSchema(message, hint='pass schema="name type, ...": types are never guessed from rows')
    else:
        parser(format, schema)
    for name in include:
        one_of(name, _INCLUDED, "include", topic)
    return Schema((*schema.fields, *(Field(f"_{name}", _INCLUDED[name]) for name in include)))


def check_format(topic: str, format: str) -> None:
    """Raise BadValue for unknown formats, and for those that need the schema registry."""
    if format in _LATER:
        message = f"{topic}: format {format!r} comes with the schema registry, which this version does not have yet"
        raise BadValue(message, hint=choices("formats for now", FORMATS))
    one_of(format, FORMATS, "format", topic)


def check_row_format(topic: str, format: str, schema: Schema) -> None:
    """Raise if a format cannot represent rows of this schema."""
    if format == "raw" and (len(schema) != 1 or schema.fields[0].type not in ("binary", "string")):
        message = f"{topic}: raw writes one column, binary or string, not {schema.ddl!r}"
        raise BadSchema(message, hint="select() the one column before, or write json")
    if format != "raw":
        refuse_types(format, schema)


def keyed_payloads(batches: Iterable[pa.RecordBatch], format: str) -> Iterator[Records]:
    """Yield the keys and payloads of each batch; a row that is removed has no payload."""
    for batch in batches:
        keyed = ROW_KEY in batch.schema.names
        keys = batch.column(ROW_KEY).to_pylist() if keyed else [None] * batch.num_rows
        rows = batch.drop_columns([name for name in (ROW_KEY, ROW_REMOVED) if name in batch.schema.names])
        values = payloads(rows, format)
        if ROW_REMOVED in batch.schema.names:
            removed = batch.column(ROW_REMOVED).to_pylist()
            values = [None if gone else value for gone, value in zip(removed, values, strict=True)]
        yield keys, values


def payloads(batch: pa.RecordBatch, format: str, options: CsvOptions | None = None) -> list[Any]:
    """Return each row as a payload."""
    if format == "raw":
        return list(batch.column(0).to_pylist())
    if not batch.num_rows:
        return []
    if format != "json":
        return csv_lines(batch, options)
    refuse_wide(batch, "json")
    return list(json_documents(batch).to_pylist())
