"""json, a document per line."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import json as pajson

from penstock.connectors.binary_text import is_base64, typed
from penstock.connectors.json_alike import Alike
from penstock.connectors.json_numbers import NON_FINITE, refuse_overflow, unquoted
from penstock.connectors.text_columns import misfits
from penstock.connectors.text_format import LineDecoder
from penstock.errors import BadSchema
from penstock.schema import Field, Schema

DEEPEST = 1000
"""How deep a document may nest: as deep as Spark's own reader takes it."""

_SPACE = b" \t\r\n"
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*+"')
_ROW = re.compile(r" in row \d+$")


class JsonDecoder(LineDecoder):
    """Parses JSON objects, one per line; keys that nobody declared are ignored, missing ones are null.

    Times are strings, without zone in UTC; dates are strings; bytes are strings in base64. Numbers are never read
    from strings, except "NaN", "Infinity", "-Infinity", and decimals, for which strings are the one exact form that
    every writer has.
    """

    def __init__(self, schema: Schema) -> None:
        _only_readable(schema)
        self._schema, self._arrow = schema, schema.nullable().arrow
        self._wire = pa.schema([(f.name, _wire(f.type)) for f in self._arrow])
        self._alike = Alike(schema, self._parsed)

    def decode(self, data: bytes) -> pa.RecordBatch:
        """Return one row per line; raise ArrowInvalid if that cannot be."""
        return self._alike.read(data)

    def blank(self, line: bytes) -> bool:
        """Skip lines of nothing but space."""
        return not line.strip(_SPACE)

    def bare(self, line: bytes) -> bytes:
        """Space around a document does not count."""
        return line.strip(_SPACE)

    def screen(self, lines: Sequence[bytes]) -> dict[int, str]:
        """Return the lines that are surely bad, and why."""
        bad: dict[int, str] = {}
        documents: dict[int, dict[str, Any]] = {}
        for number, line in enumerate(lines):
            document = _document(line)
            if isinstance(document, dict):
                documents[number] = document
            elif document is not None:
                bad[number] = document
        for field in self._schema:
            bad = self._misfits(field, documents) | bad
        return bad

    def reason(self, line: bytes, error: Exception) -> str:
        """Say which key is wrong and what it holds."""
        document = _document(line)
        culprit = self._culprit(line, document) if isinstance(document, dict) else document
        return culprit or _ROW.sub("", str(error))

    def _parsed(self, data: bytes) -> pa.RecordBatch:
        body = data.strip(_SPACE)
        if not body:
            return pa.RecordBatch.from_pylist([], schema=self._arrow)
        # A line may hold two documents and a document two lines. If each line starts with { and ends
        # with }, no document spans lines, and as many rows as lines means one each. This also keeps
        # a lone `null` from Arrow, which crashes on it (26.0).
        count = body.count(b"\n") + 1
        edges = body.count(b"}\n{") + (body.count(b"}\r\n{") if b"\r" in body else 0)
        if not body.startswith(b"{") or not body.endswith(b"}") or edges != count - 1:
            message = "not a JSON object"
            raise pa.ArrowInvalid(message)
        _refuse_deep(body)
        table = self._read_numbers(body)
        if table.num_rows != count:
            message = "more than one JSON document in the line"
            raise pa.ArrowInvalid(message)
        columns = [_typed(column.combine_chunks(), self._arrow.field(n).type) for n, column in enumerate(table.columns)]
        return pa.RecordBatch.from_arrays(columns, schema=self._arrow)

    def _misfits(self, field: Field, documents: dict[int, dict[str, Any]]) -> dict[int, str]:
        kind = self._arrow.field(field.name).type
        found = [n for n, row in documents.items() if _other_kind(row.get(field.name), kind)]
        if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
            text = {n: row[field.name] for n, row in documents.items() if isinstance(row.get(field.name), str)}
            # No time has other letters, and Arrow has no form for half a surrogate pair.
            values = pa.array([value if value.isascii() else "?" for value in text.values()], pa.string())
            places = list(text)
            found += [places[n] for n in misfits(values, kind)]
        if pa.types.is_binary(kind):
            given = ((n, row.get(field.name)) for n, row in documents.items())
            found += [n for n, value in given if isinstance(value, str) and not is_base64(value)]
        return {n: _misfit(field, documents[n].get(field.name)) for n in found}

    def _read(self, body: bytes, schema: pa.Schema) -> pa.Table:
        return pajson.read_json(
            pa.BufferReader(body),
            pajson.ReadOptions(use_threads=False, block_size=len(body) + 1),
            pajson.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
        )

    def _read_numbers(self, body: bytes) -> pa.Table:
        try:
            return self._read(body, self._wire)
        except pa.ArrowInvalid:
            bare = unquoted(body, self._arrow)
            if bare is body:
                raise
            return self._read(bare, self._wire)

    def _culprit(self, line: bytes, document: dict[str, Any]) -> str | None:
        line = unquoted(line, self._arrow)
        try:
            self._read(line, pa.schema([]))
        except pa.ArrowInvalid:
            # No column alone is at fault.
            return None
        for field in self._schema:
            try:
                table = self._read(line, pa.schema([self._wire.field(field.name)]))
                _typed(table.column(0).combine_chunks(), self._arrow.field(field.name).type)
            except pa.ArrowInvalid as error:
                if "twice" in str(error):
                    return f"column {field.name}: the key is there twice"
                return _misfit(field, document.get(field.name))
        return None


def _document(line: bytes) -> dict[str, Any] | str | None:
    """Return a line's object, or why it is none, or None where Arrow may see it otherwise than Python."""
    if _deep(line):
        return f"nested deeper than {DEEPEST} levels"
    try:
        document = json.loads(line.decode())
    except ValueError as error:
        # Arrow takes Inf for Infinity, Python does not.
        return f"not JSON: {error}" if b"Inf" not in line else None
    except RecursionError:
        return None
    return document if isinstance(document, dict) else "not a JSON object"


def _refuse_deep(body: bytes) -> None:
    # If there is a line feed in each half of what a deep line needs at the least, no line is that long.
    step = DEEPEST // 2
    if all(body.find(b"\n", at, at + step) >= 0 for at in range(0, len(body) - step, step)):
        return
    if any(_deep(line) for line in body.split(b"\n")):
        message = f"nested deeper than {DEEPEST} levels"
        raise pa.ArrowInvalid(message)


def _deep(line: bytes) -> bool:
    if len(line) <= DEEPEST or line.count(b"{") + line.count(b"[") <= DEEPEST:
        return False
    marks = np.frombuffer(_STRING.sub(b"", line), np.uint8)
    opened, closed = (marks | 32 == ord(mark) for mark in "{}")
    return bool(np.cumsum(opened.astype(np.int64) - closed).max(initial=0) > DEEPEST)


def _misfit(field: Field, value: Any) -> str:
    return f"column {field.name}: {json.dumps(value)[:200]} cannot be read as {field.type}"


def _other_kind(value: Any, kind: pa.DataType) -> bool:
    """Say whether a JSON value is surely not of a type; what needs a closer look is left to Arrow."""
    if value is None:
        return False
    if pa.types.is_list(kind):
        return not isinstance(value, list) or any(_other_kind(part, kind.value_type) for part in value)
    if pa.types.is_struct(kind):
        return not isinstance(value, dict) or any(_other_kind(value.get(p.name), p.type) for p in kind)
    if pa.types.is_boolean(kind):
        return not isinstance(value, bool)
    if pa.types.is_integer(kind):
        limit = 1 << (kind.bit_width - 1)
        return type(value) is not int or not -limit <= value < limit
    if pa.types.is_floating(kind):
        return type(value) not in (int, float) and value not in NON_FINITE
    if pa.types.is_decimal(kind):
        return type(value) not in (int, float, str)
    return not isinstance(value, str)


def _wire(kind: pa.DataType) -> pa.DataType:
    """Return the type that Arrow's JSON reader is asked for: strings where it knows only numbers, or no base64."""
    if pa.types.is_date(kind) or pa.types.is_binary(kind) or kind == pa.timestamp("us"):
        return pa.string()
    if pa.types.is_floating(kind):
        # A number that is too large for a double is refused; one that is too large for less would be infinity.
        return pa.float64()
    if pa.types.is_decimal(kind):
        # Arrow's reader does not check a decimal's precision; the cast from a wide one does.
        return pa.decimal256(76, kind.scale)
    if pa.types.is_list(kind):
        return pa.list_(_wire(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([(part.name, _wire(part.type)) for part in kind])
    return kind


def _typed(values: pa.Array, kind: pa.DataType) -> pa.Array:
    return refuse_overflow(values, typed(values, kind))


def _only_readable(schema: Schema) -> None:
    for field in schema:
        if "map<" in field.type or "interval" in field.type:
            message = f"json cannot hold column '{field.name}' of type {field.type}"
            hint = "declare a struct with the keys you need, or a string and use from_json later"
            raise BadSchema(message, hint=hint)
