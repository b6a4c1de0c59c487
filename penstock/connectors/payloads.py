"""Records of a topic to rows: the payload by its format, and what else of the record was asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from penstock.connectors.formats import Parser, not_text, parser
from penstock.connectors.rejects import broken, without
from penstock.contracts import Rejected
from penstock.errors import BadSchema, BadValue, choices
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
# What is fetched of a topic, as Spark's own connector names it too.
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


class Payloads:
    """Turns fetched records into rows; a payload that is no row is set aside with its place in the topic."""

    def __init__(self, topic: str, schema: Schema, format: str, include: Sequence[str]) -> None:
        self._topic, self._format, self._include = topic, format, include
        self._own = Schema(tuple(field for field in schema.fields[: len(schema) - len(include)]))
        self._arrow = schema.nullable().arrow
        self._parser: Parser | None = parser(format, self._own) if format != "raw" else None

    def rows(self, records: pa.RecordBatch) -> Iterator[pa.RecordBatch | Rejected]:
        """Yield the records that are no rows, then the rows."""
        values = records.column("value").to_pylist()
        batch, bad = self._parsed(values)
        for place in sorted(bad):
            where = f"{self._topic}/{records.column('partition')[place]}@{records.column('offset')[place]}"
            yield Rejected(bad[place], values[place] or b"", where)
        if batch.num_rows:
            beside = without(records, bad) if bad and self._include else records
            yield pa.RecordBatch.from_arrays(
                [*batch.columns, *(beside.column(name) for name in self._include)], schema=self._arrow
            )

    def one(self, payload: bytes) -> dict[str, object] | str:
        """Return the row of one payload alone, or why it is none; the test kit reads with it."""
        batch, bad = self._parsed([payload])
        rows: list[dict[str, object]] = batch.to_pylist()
        return bad[0] if bad else rows[0]

    def _parsed(self, values: list[bytes | None]) -> tuple[pa.RecordBatch, dict[int, str]]:
        if self._parser is None:
            return self._raw(values)
        places = [n for n, value in enumerate(values) if value is not None] if None in values else range(len(values))
        payloads = [value for value in values if value is not None]
        # Seldom: one look at all of them is cheaper than one at each.
        if b"\n" in b"".join(payloads):
            payloads = list(map(self._line, payloads))
        batch, bad = self._parser.rows(payloads)
        gone = set(range(len(values))).difference(places) if len(places) < len(values) else ()
        return batch, {places[n]: why for n, why in bad.items()} | dict.fromkeys(gone, "no payload: a tombstone")

    def _line(self, payload: bytes) -> bytes:
        if self._format == "csv":
            return payload.removesuffix(b"\n").removesuffix(b"\r")
        # A document may have many lines. A tab is space between its parts, and as wrong inside a text as a line break.
        return payload.replace(b"\n", b"\t")

    def _raw(self, values: list[bytes | None]) -> tuple[pa.RecordBatch, dict[int, str]]:
        bad: dict[int, str] = {}
        if self._own.fields[0].type == "string":
            bad = {n: why for n, value in enumerate(values) if value is not None and (why := not_text(value))}
        kept = [n for n in range(len(values)) if n not in bad]
        column = pa.array([values[n] for n in kept], pa.binary())
        arrow = self._own.nullable().arrow
        batch = pa.RecordBatch.from_arrays([column.cast(arrow.field(0).type)], schema=arrow)
        nulls = broken(batch, self._own)
        return without(batch, [n for n, _ in nulls]), bad | {kept[n]: why for n, why in nulls}


def declared_rows(topic: str, schema: Schema | None, format: str, include: Sequence[str]) -> Schema:
    """Return the schema of a topic's rows: the payload's columns, then those that are included."""
    refuse_format(topic, format)
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
        if name not in _INCLUDED:
            message = f"{topic}: include={name!r} is not known"
            raise BadValue(message, hint=choices("include", _INCLUDED, name))
    return Schema((*schema.fields, *(Field(f"_{name}", _INCLUDED[name]) for name in include)))


def refuse_format(topic: str, format: str) -> None:
    """Refuse formats that are not known, and those that need the registry."""
    if format in _LATER:
        message = f"{topic}: format {format!r} comes with the schema registry, which this version does not have yet"
        raise BadValue(message, hint=choices("formats for now", FORMATS))
    if format not in FORMATS:
        message = f"{topic}: format {format!r} is not known"
        raise BadValue(message, hint=choices("formats", FORMATS, format))
