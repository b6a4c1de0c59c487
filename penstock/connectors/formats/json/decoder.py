"""Decodes json, one document per line."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import json as pajson

from penstock.connectors.formats.epoch_times import RULE, ZONED, epoch_us
from penstock.connectors.formats.json.encodings import NON_FINITE, is_base64, refuse_overflow
from penstock.connectors.formats.json.layout import LayoutReader
from penstock.connectors.formats.json.type_conversion import (
    DUPLICATE_KEY,
    DocumentRewriter,
    holds_interval,
    holds_nested_key,
    typed,
    wire,
)
from penstock.connectors.formats.text import LineDecoder
from penstock.connectors.formats.text_columns import misfits
from penstock.errors import BadSchema
from penstock.schema import Field, Schema

DEEPEST = 1000
"""How deep a document may nest: as deep as Spark's own reader takes it."""

_SPACE = b" \t\r\n"
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*+"')
_ROW = re.compile(r" in row \d+$")


class JsonDecoder(LineDecoder):
    """Parses JSON objects, one per line; undeclared keys are ignored, missing ones are null.

    Times are strings, without zone in UTC, or numbers as in `epoch_times`; dates are strings; bytes are strings
    in base64; maps are objects. Numbers are never read from strings, except "NaN", "Infinity", "-Infinity", decimals,
    for which strings are the one exact form that every writer has, and the keys of maps.
    """

    def __init__(self, schema: Schema) -> None:
        _only_readable(schema)
        self._schema, self._arrow = schema, schema.nullable().arrow
        self._columns = _Columns(self._arrow)
        self._alike = LayoutReader(schema, self._parsed)

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
        """Return the lines that are certainly bad, and why."""
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
        """Return which key is wrong and what it contains."""
        document = _document(line)
        culprit = self._culprit(line, document) if isinstance(document, dict) else document
        return culprit or _ROW.sub("", str(error))

    def _parsed(self, data: bytes) -> pa.RecordBatch:
        body = data.strip(_SPACE)
        if not body:
            return pa.RecordBatch.from_pylist([], schema=self._arrow)
        # A line may contain two documents and a document two lines. If each line starts with { and ends
        # with }, no document spans lines, and as many rows as lines means one each. This also keeps
        # a lone `null` from Arrow, which crashes on it (26.0).
        count = body.count(b"\n") + 1
        edges = body.count(b"}\n{") + (body.count(b"}\r\n{") if b"\r" in body else 0)
        if not body.startswith(b"{") or not body.endswith(b"}") or edges != count - 1:
            message = "not a JSON object"
            raise pa.ArrowInvalid(message)
        _refuse_deep(body)
        batch = self._columns.read(body)
        if batch.num_rows != count:
            message = "more than one JSON document in the line"
            raise pa.ArrowInvalid(message)
        return batch

    def _misfits(self, field: Field, documents: dict[int, dict[str, Any]]) -> dict[int, str]:
        kind = self._arrow.field(field.name).type
        found = [n for n, row in documents.items() if _other_kind(row.get(field.name), kind)]
        if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
            text = {n: row[field.name] for n, row in documents.items() if isinstance(row.get(field.name), str)}
            # No time has other letters, and Arrow has no form for half a surrogate pair.
            values = pa.array([value if value.isascii() else "?" for value in text.values()], pa.string())
            positions = list(text)
            found += [positions[n] for n in misfits(values, kind)]
        if pa.types.is_binary(kind):
            given = ((n, row.get(field.name)) for n, row in documents.items())
            found += [n for n, value in given if isinstance(value, str) and not is_base64(value)]
        return {n: _misfit(field, documents[n].get(field.name)) for n in found}

    def _culprit(self, line: bytes, document: dict[str, Any]) -> str | None:
        try:
            _Columns(pa.schema([])).read(line)
        except pa.ArrowInvalid:
            # No column alone is at fault.
            return None
        for field in self._schema:
            try:
                _Columns(pa.schema([self._arrow.field(field.name)])).read(line)
            except pa.ArrowInvalid as error:
                if DUPLICATE_KEY in str(error):
                    return f"column {field.name}: {error}"
                if "twice" in str(error):
                    return f"column {field.name}: the key is there twice"
                return _misfit(field, document.get(field.name))
        return None


class _Columns:
    """Reads lines into columns, by the first way that takes them all; what fits does not depend on which one that is.

    Instants may be texts that Arrow reads itself, other texts, or whole numbers. If they are mixed, or something else
    is not as Arrow has it, the lines are rewritten first.
    """

    def __init__(self, arrow: pa.Schema) -> None:
        self._arrow, self._rewriter = arrow, DocumentRewriter(arrow)
        kinds = (ZONED, pa.string(), pa.int64()) if self._rewriter.instants else (ZONED,)
        self._wires = [pa.schema([(f.name, wire(f.type, times)) for f in arrow]) for times in kinds]
        self._direct = self._learned = self._wires[0]

    def read(self, body: bytes) -> pa.RecordBatch:
        """Return a row for each document; raise ArrowInvalid if one does not fit."""
        if self._rewriter.always:
            return self._by(self._direct, self._rewriter.rewritten(body))
        try:
            return self._by(self._learned, body)
        except pa.ArrowInvalid:
            if not self._rewriter.concerns(body):
                raise
        return self._otherwise(body)

    def _otherwise(self, body: bytes) -> pa.RecordBatch:
        for wires in self._wires if self._rewriter.unusual_times(body) else ():
            with contextlib.suppress(pa.ArrowInvalid):
                found = self._by(wires, body)
                self._learned = wires
                return found
        return self._by(self._direct, self._rewriter.rewritten(body))

    def _by(self, wires: pa.Schema, body: bytes) -> pa.RecordBatch:
        table = pajson.read_json(
            pa.BufferReader(body),
            pajson.ReadOptions(use_threads=False, block_size=len(body) + 1),
            pajson.ParseOptions(explicit_schema=wires, unexpected_field_behavior="ignore"),
        )
        columns = [_typed(column.combine_chunks(), self._arrow.field(n).type) for n, column in enumerate(table.columns)]
        return pa.RecordBatch.from_arrays(columns, schema=self._arrow)


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
    rule = f": {RULE}" if field.type == "timestamp" and type(value) in (int, float) else ""
    return f"column {field.name}: {json.dumps(value)[:200]} cannot be read as {field.type}{rule}"


def _other_kind(value: Any, kind: pa.DataType) -> bool:
    """Return whether a JSON value is certainly not of a type; doubtful cases are left to Arrow."""
    if value is None:
        return False
    if pa.types.is_list(kind):
        return not isinstance(value, list) or any(_other_kind(part, kind.value_type) for part in value)
    if pa.types.is_struct(kind):
        return not isinstance(value, dict) or any(_other_kind(value.get(p.name), p.type) for p in kind)
    if pa.types.is_map(kind):
        return not isinstance(value, dict) or any(_other_kind(part, kind.item_type) for part in value.values())
    if kind == ZONED and type(value) in (int, float):
        # A float may have lost digits that decide.
        return type(value) is int and epoch_us(str(value)) is None
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


def _typed(values: pa.Array, kind: pa.DataType) -> pa.Array:
    return refuse_overflow(values, typed(values, kind))


def _only_readable(schema: Schema) -> None:
    for field in schema.arrow:
        if holds_interval(field.type) or holds_nested_key(field.type):
            message = f"json cannot hold column '{field.name}' of type {schema.types[field.name]}"
            hint = "declare a string and use from_json later; the keys of a map are plain values"
            raise BadSchema(message, hint=hint)
