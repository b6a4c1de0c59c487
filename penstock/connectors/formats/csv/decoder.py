"""Decodes csv lines to typed columns; a quoted field may contain delimiters, doubled quotes and line breaks."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyarrow import csv as pacsv

from penstock.connectors.formats.csv.options import CsvOptions
from penstock.connectors.formats.csv.records import LONGEST_RECORD, CsvRecords, Record
from penstock.connectors.formats.epoch_times import RULE
from penstock.connectors.formats.text_columns import FALSE, NAIVE, TRUE, convert, misfits, overflowed, written_as
from penstock.errors import BadSchema
from penstock.schema import Schema

BOM = b"\xef\xbb\xbf"
_MANY = 64 << 10
_COUNTED = re.compile(r"[-+]?[0-9.]+([eE]|$)")
_SPACE_ONLY = re.compile(rb"(?m)^[^\S\n]+$")


class CsvDecoder:
    """Parses csv lines into declared columns, by position or by the names of a header.

    An empty field is null, and so is the null text of the options; in quotes both are text. A time without zone
    is in UTC.
    """

    def __init__(self, schema: Schema, columns: Sequence[str] | None = None, options: CsvOptions | None = None) -> None:
        _only_flat(schema)
        self._options = options or CsvOptions()
        self._quote, self._escape = self._options.quote_byte, self._options.escape_byte
        self._space = b" \t\n\r\x0b\f".replace(self._options.delimiter.encode(), b"")
        self._closed = self._options.record_pattern(self._options.field_pattern)
        self._schema, self._arrow = schema, schema.nullable().arrow
        # Columns that are not declared may share a name, which Arrow would mix up.
        names = columns or schema.names
        self._columns = [name if name in schema else f"\0{n}" for n, name in enumerate(names)]
        self._records = CsvRecords(self._options, len(self._columns))
        self._floats = [f.name for f in self._arrow if pa.types.is_floating(f.type)]
        self._integers = [f.name for f in self._arrow if pa.types.is_integer(f.type)]
        self._times = {f.name: f.type for f in self._arrow if pa.types.is_timestamp(f.type)}
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
        # How long a row is counts its line feed, which a body at the end of a block may lack.
        records = self._whole_records(data)
        count = body.count(b"\n") + (not body.endswith(b"\n"))
        count -= sum(body.count(b"\n", start, end - 1) for start, end in records)
        # Of a row with several lines it is known that it is closed. It needs its line feed: without one, Arrow takes an
        # empty field at the end of the data for a quoted one if there is a quote before it.
        closed = records and records[-1].end >= len(body)
        guarded, more = (_unmarked(body.rstrip(b"\n") + b"\n"), 0) if closed else self._guard(body)
        table = self._read(guarded)
        if table.num_rows != count + more:
            message = "a line break inside a quoted field"
            raise pa.ArrowInvalid(message)
        return self._typed(table.slice(0, count) if more else table, guarded)

    def decode_lines(self, lines: Sequence[bytes]) -> pa.RecordBatch:
        """Return one row per text, which may have several lines; raise ArrowInvalid if that is impossible."""
        body = b"".join(line + b"\n" for line in lines)
        if body.count(b"\n") == len(lines) and b"\r" not in body:
            return self._decode_each(body, len(lines))
        if any(self._odd(line) for line in lines):
            message = "a line that is not closed"
            raise pa.ArrowInvalid(message)
        body = _unmarked(body)
        table = self._read(body)
        if table.num_rows != len(lines):
            message = "a line break inside a quoted field"
            raise pa.ArrowInvalid(message)
        return self._typed(table, body)

    def records(self, block: bytes) -> list[Record]:
        """Return the rows that take several lines."""
        return self._records.find(block)

    def several_lines(self, text: bytes) -> bool:
        """Return whether a text with line breaks is one row."""
        return self._records.is_record(text)

    def blank(self, line: bytes) -> bool:
        """Skip lines of nothing but space, unless it delimits fields."""
        return not line.strip(self._space)

    def bare(self, line: bytes) -> bytes:
        """Space is part of a csv field."""
        return line

    def screen(self, lines: Sequence[bytes]) -> dict[int, str]:
        """Return the lines that are certainly bad, and why."""
        bad = {n: why for n, line in enumerate(lines) if (why := self._odd(line))}
        whole = [n for n in range(len(lines)) if n not in bad]
        body = _unmarked(b"".join(lines[n] + b"\n" for n in whole))
        counts: dict[int, str] = {}

        def count(row: Any) -> str:
            counts[row.number - 1] = f"expected {row.expected_columns} fields, got {row.actual_columns}"
            return "skip"

        try:
            table = self._read_as(body, dict.fromkeys(self._columns, pa.string()), count)
        except pa.ArrowInvalid:
            return bad
        bad |= {whole[n]: why for n, why in counts.items() if n < len(whole)}
        fit = [n for position, n in enumerate(whole) if position not in counts]
        if table.num_rows == len(fit):
            bad |= self._misfits(table, fit)
        return bad

    def reason(self, line: bytes, error: Exception) -> str:
        """Return why a line is bad that the screen let through."""
        return str(error)

    def _decode_each(self, body: bytes, count: int) -> pa.RecordBatch:
        """Return one row per line: lines that are no row together in their file, or are payloads, stay separate."""
        batch = self.decode(body)
        if batch.num_rows != count:
            message = "an odd number of quotes in the line"
            raise pa.ArrowInvalid(message)
        return batch

    def _misfits(self, table: pa.Table, positions: Sequence[int]) -> dict[int, str]:
        bad: dict[int, str] = {}
        for field in self._schema:
            text = table.column(field.name).combine_chunks()
            for row in misfits(text, self._arrow.field(field.name).type):
                value = text[row].as_py()[:200]
                rule = f": {RULE}" if field.type == "timestamp" and _COUNTED.match(value) else ""
                bad.setdefault(positions[row], f"column {field.name}: {value!r} cannot be read as {field.type}{rule}")
        return bad

    def _refuse_odd_lines(self, body: bytes) -> None:
        if b"\r" in body and body.count(b"\r") != body.count(b"\r\n"):
            message = "a carriage return inside the line"
            raise pa.ArrowInvalid(message)
        # With several columns Arrow itself refuses such a line; with one it would be a value.
        if len(self._columns) == 1 and _SPACE_ONLY.search(body):
            message = "a line of nothing but space"
            raise pa.ArrowInvalid(message)

    def _whole_records(self, body: bytes) -> list[Record]:
        """Return the rows with several lines; raise ArrowInvalid if another line has an odd number of quotes."""
        if not self._quote or self._quote not in body:
            return []
        found, odd = self._records.find_all(body)
        if odd != 2 * len(found):
            message = "an odd number of quotes in the line"
            raise pa.ArrowInvalid(message)
        return found

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
        found = {name: written_as(table.column(name)) for name in self._times}
        self._wire |= {
            name: kind if kind in (pa.string(), self._times[name]) else NAIVE for name, kind in found.items()
        }

    def _read_as(self, body: bytes, wire: dict[str, pa.DataType], on_count: Any = None) -> pa.Table:
        return pacsv.read_csv(
            pa.BufferReader(body),
            pacsv.ReadOptions(use_threads=False, block_size=len(body) + 1, column_names=self._columns),
            pacsv.ParseOptions(
                delimiter=self._options.delimiter,
                quote_char=self._options.quote or False,
                escape_char=self._options.escape or False,
                invalid_row_handler=on_count,
            ),
            pacsv.ConvertOptions(
                column_types=wire,
                include_columns=self._arrow.names,
                null_values=sorted({"", self._options.null}),
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
                true_values=TRUE,
                false_values=FALSE,
            ),
        )

    def _guard(self, body: bytes) -> tuple[bytes, int]:
        """Repeat a last line with quotes: one left open would swallow the copy, which the count then shows."""
        last = body[body.rfind(b"\n", 0, len(body) - 1) + 1 :]
        more = any(mark and mark in last for mark in (self._quote, self._escape))
        if more:
            body = body + (b"" if body.endswith(b"\n") else b"\n") + last
        return _unmarked(body), int(more)

    def _odd(self, line: bytes) -> str | None:
        """Return why a text is no row of closed fields."""
        quoted = self._quote and self._quote in line
        bare = line.removesuffix(b"\r")
        if not (quoted or b"\r" in bare or (self._escape and bare.endswith(self._escape))):
            return None
        if self._closed.fullmatch(bare) and (not quoted or not self._open(bare)):
            return None
        if b"\r" in bare and not quoted:
            return "a carriage return inside the line"
        if self._escape and bare.endswith(self._escape):
            return "an escape character at the end of the line"
        if quoted and self._open(bare):
            most = f"{len(self._columns)} fields in at most {LONGEST_RECORD >> 10} KiB"
            return f"a quote is left open: the lines up to the next one are no row of {most}"
        return "a line break or carriage return outside quotes"

    def _open(self, line: bytes) -> bool:
        return self._options.without_escapes(line).count(self._quote) % 2 == 1

    def _typed(self, table: pa.Table, body: bytes) -> pa.RecordBatch:
        if overflowed(table.column(name) for name in self._floats):
            # Infinity may be written, or be a number that is too large for the type: only the text shows which.
            wire = {field.name: field.type for field in table.schema} | dict.fromkeys(self._floats, pa.string())
            table = self._read_as(body, wire).slice(0, table.num_rows)
        whole = [column.combine_chunks() if column.num_chunks != 1 else column.chunk(0) for column in table.columns]
        columns = [
            convert(column, f.type) if column.type == pa.string() else column.cast(f.type)
            for f, column in zip(self._arrow, whole, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self._arrow)


def _ends_once(data: bytes) -> bool:
    """Return whether there is one line feed at the end, as in most blocks: to cut it off would copy the block."""
    return data.endswith(b"\n") and not data.endswith((b"\n\n", b"\r\n")) and len(data) > 1


def _unmarked(body: bytes) -> bytes:
    # Arrow drops a byte order mark at the start of what it reads, and skips an empty line.
    return b"\n" + body if body.startswith(BOM) else body


def _hexadecimal(body: bytes) -> bool:
    # The lone letter is looked for first: it is rare, and found thirty times as fast as after a digit.
    return (b"x" in body and b"0x" in body) or (b"X" in body and b"0X" in body)


def _only_flat(schema: Schema) -> None:
    for field in schema.arrow:
        if pa.types.is_nested(field.type) or pa.types.is_duration(field.type):
            message = f"csv cannot hold column '{field.name}' of type {schema.types[field.name]}"
            raise BadSchema(message, hint="declare it as a string, or use json or parquet")
