"""csv, a row per line: a quoted field may hold commas and doubled quotes, but no line break."""

from __future__ import annotations

import contextlib
import csv
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import csv as pacsv

from penstock.connectors.text_columns import FALSE, TRUE, ZONED, convert, misfits, written_as
from penstock.errors import BadSchema
from penstock.schema import Schema

BOM = b"\xef\xbb\xbf"
_MANY = 64 << 10
_SPACE_ONLY = re.compile(rb"(?m)^[^\S\n]+$")
_FIELD = rb'(?:"(?:[^"]|"")*+"(?!")[^,]*|[^",][^,]*)?'
_CLOSED = re.compile(_FIELD + rb"(?:," + _FIELD + rb")*")


class CsvDecoder:
    """Parses csv lines into declared columns, by position or by the names of a header.

    An empty field is null, a quoted empty one the empty string. A time without zone is in UTC.
    """

    def __init__(self, schema: Schema, columns: Sequence[str] | None = None) -> None:
        _only_flat(schema)
        self._schema, self._arrow = schema, schema.nullable().arrow
        # Columns that nobody declared may share a name, which Arrow would mix up.
        names = columns or schema.names
        self._columns = [name if name in schema else f"\0{n}" for n, name in enumerate(names)]
        self._integers = [f.name for f in self._arrow if pa.types.is_integer(f.type)]
        self._times = [f.name for f in self._arrow if f.type == ZONED]
        # How times are written is learned from the first lines; it decides the speed, not the result.
        self._learned = not self._times
        # Decimals go through text, for Arrow's reader does not check their precision.
        self._wire = {f.name: pa.string() if pa.types.is_decimal(f.type) else f.type for f in self._arrow}

    def decode(self, data: bytes) -> pa.RecordBatch:
        """Return one row per line; raise ArrowInvalid if that cannot be."""
        body = data if _ends_once(data) else data.rstrip(b"\r\n")
        if not body:
            return pa.RecordBatch.from_pylist([], schema=self._arrow)
        self._refuse_odd_lines(body)
        count = body.count(b"\n") + (not body.endswith(b"\n"))
        guarded, more = _guard(body)
        table = self._read(guarded)
        if table.num_rows != count + more:
            message = "a line break inside a quoted field"
            raise pa.ArrowInvalid(message)
        return self._typed(table.slice(0, count) if more else table)

    def blank(self, line: bytes) -> bool:
        """Skip lines of nothing but space."""
        return not line.strip()

    def bare(self, line: bytes) -> bytes:
        """Space is part of a csv field."""
        return line

    def screen(self, lines: Sequence[bytes]) -> dict[int, str]:
        """Return the lines that are surely bad, and why."""
        bad = {n: why for n, line in enumerate(lines) if (why := _odd(line))}
        whole = [n for n in range(len(lines)) if n not in bad]
        body, more = _guard(b"\n".join(lines[n] for n in whole))
        counts: dict[int, str] = {}

        def count(row: Any) -> str:
            counts[row.number - 1] = f"expected {row.expected_columns} fields, got {row.actual_columns}"
            return "skip"

        try:
            table = self._read_as(body, dict.fromkeys(self._columns, pa.string()), count)
        except pa.ArrowInvalid:
            return bad
        counts.pop(len(whole), None)
        bad |= {whole[n]: why for n, why in counts.items()}
        fit = [n for place, n in enumerate(whole) if place not in counts]
        copies = more if len(whole) - 1 not in counts else 0
        if table.num_rows == len(fit) + copies:
            bad |= self._misfits(table.slice(0, len(fit)), fit)
        return bad

    def reason(self, line: bytes, error: Exception) -> str:
        """Say why a line is bad that the screen let through."""
        return str(error)

    def _misfits(self, table: pa.Table, places: Sequence[int]) -> dict[int, str]:
        bad: dict[int, str] = {}
        for field in self._schema:
            text = table.column(field.name).combine_chunks()
            for row in misfits(text, self._arrow.field(field.name).type):
                value = text[row].as_py()[:200]
                bad.setdefault(places[row], f"column {field.name}: {value!r} cannot be read as {field.type}")
        return bad

    def _refuse_odd_lines(self, body: bytes) -> None:
        if b"\r" in body and body.count(b"\r") != body.count(b"\r\n"):
            message = "a carriage return inside the line"
            raise pa.ArrowInvalid(message)
        if b'"' in body and _odd_quotes(body):
            message = "an odd number of quotes in the line"
            raise pa.ArrowInvalid(message)
        # With several columns Arrow itself refuses such a line; with one it would be a value.
        if len(self._columns) == 1 and _SPACE_ONLY.search(body):
            message = "a line of nothing but space"
            raise pa.ArrowInvalid(message)

    def _read(self, body: bytes) -> pa.Table:
        if not self._learned and len(body) > _MANY:
            self._learned = True
            with contextlib.suppress(pa.ArrowInvalid):
                self._learn(self._read_as(body[: body.find(b"\n")], self._general(self._wire)))
        wire = self._wire
        if self._integers and _hexadecimal(body):
            wire = wire | dict.fromkeys(self._integers, pa.string())
        try:
            return self._read_as(body, wire)
        except pa.ArrowInvalid:
            if wire == self._general(wire):
                raise
            table = self._read_as(body, self._general(wire))
            self._learn(table)
            return table

    def _general(self, wire: dict[str, pa.DataType]) -> dict[str, pa.DataType]:
        return wire | dict.fromkeys(self._times, pa.string())

    def _learn(self, table: pa.Table) -> None:
        self._wire |= {name: written_as(table.column(name)) for name in self._times}

    def _read_as(self, body: bytes, wire: dict[str, pa.DataType], on_count: Any = None) -> pa.Table:
        return pacsv.read_csv(
            pa.BufferReader(body),
            pacsv.ReadOptions(use_threads=False, block_size=len(body) + 1, column_names=self._columns),
            pacsv.ParseOptions(invalid_row_handler=on_count),
            pacsv.ConvertOptions(
                column_types=wire,
                include_columns=self._arrow.names,
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
                true_values=TRUE,
                false_values=FALSE,
            ),
        )

    def _typed(self, table: pa.Table) -> pa.RecordBatch:
        whole = [column.combine_chunks() if column.num_chunks != 1 else column.chunk(0) for column in table.columns]
        columns = [
            convert(column, f.type) if column.type == pa.string() else column.cast(f.type)
            for f, column in zip(self._arrow, whole, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self._arrow)


def header(line: bytes, schema: Schema, path: str) -> list[str] | None:
    r"""Return the column names of a header line, or None if the line is a row.

    >>> header(b"price,symbol\n", Schema("symbol string, price double"), "trades.csv")
    ['price', 'symbol']
    """
    cells = next(csv.reader([line.decode("utf-8", "replace").strip("\r\n")]), [])
    names = [cell.strip() for cell in cells]
    if not set(names) & set(schema.names):
        return None
    missing = [name for name in schema.names if name not in names]
    if missing:
        message = f"{path}: the header lacks {', '.join(missing)}; it has {', '.join(names)}"
        raise BadSchema(message, hint="declare the columns of the file, or mend its header")
    twice = [name for name in schema.names if names.count(name) > 1]
    if twice:
        message = f"{path}: the header has {', '.join(twice)} twice; it has {', '.join(names)}"
        raise BadSchema(message, hint="give each column a name of its own")
    return names


def _ends_once(data: bytes) -> bool:
    """Say whether there is one line feed at the end, as in most blocks: to cut it off would copy the block."""
    return data.endswith(b"\n") and not data.endswith((b"\n\n", b"\r\n")) and len(data) > 1


def _guard(body: bytes) -> tuple[bytes, int]:
    """Repeat a last line with quotes: one left open would swallow the copy, which the count then shows."""
    last = body[body.rfind(b"\n", 0, len(body) - 1) + 1 :]
    more = b'"' in last
    if more:
        body = body + (b"" if body.endswith(b"\n") else b"\n") + last
    # Arrow drops a byte order mark at the start of what it reads, and skips an empty line.
    return (b"\n" + body if body.startswith(BOM) else body), int(more)


def _odd(line: bytes) -> str | None:
    if b"\r" in line.rstrip(b"\r"):
        return "a carriage return inside the line"
    if b'"' in line and (line.count(b'"') % 2 or not _CLOSED.fullmatch(line)):
        return "a quote is left open: a row is one line, and a quoted field cannot hold a line break"
    return None


def _hexadecimal(body: bytes) -> bool:
    # The lone letter is looked for first: it is rare, and found thirty times as fast as after a digit.
    return (b"x" in body and b"0x" in body) or (b"X" in body and b"0X" in body)


def _odd_quotes(body: bytes) -> bool:
    """Say whether a line has an odd number of quotes, as both ends of a field with a line break have."""
    data = np.frombuffer(body, np.uint8)
    ends = np.append(np.flatnonzero(data == ord("\n")), len(data))
    before = np.searchsorted(np.flatnonzero(data == ord('"')), ends)
    return bool((np.diff(before, prepend=0) % 2).any())


def _only_flat(schema: Schema) -> None:
    for field in schema.arrow:
        if pa.types.is_nested(field.type) or pa.types.is_duration(field.type):
            message = f"csv cannot hold column '{field.name}' of type {schema.types[field.name]}"
            raise BadSchema(message, hint="declare it as a string, or use json or parquet")
