"""Parses blocks of text lines to Arrow batches; every invalid line is found and rejected, and no other.

A block is parsed whole by Arrow. If that fails, it is cut down to pieces with bad lines; there a screen
finds the usual ones in bulk, and what it lets through is parsed again, and bisected if that fails. The screen
refuses nothing that Arrow takes, so a line's fate does not depend on the block it came in.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from penstock.connectors.formats.csv.decoder import CsvDecoder
from penstock.connectors.formats.csv.options import CsvOptions
from penstock.connectors.formats.csv.records import Record
from penstock.connectors.formats.json.decoder import JsonDecoder
from penstock.connectors.formats.text import TextDecoder
from penstock.contracts import Rejected
from penstock.errors import BadSchema, RowRejected, one_of
from penstock.schema import Field, Schema

TEXT = Schema((Field("value", "string"),))  # of fields, because workers should not load the SQL parser
FORMATS = ("csv", "json", "parquet", "text")
ENDINGS = {
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".parquet": "parquet",
    ".txt": "text",
    ".text": "text",
    ".log": "text",
}
# Larger pieces are first cut down, for most of their lines are good.
_MOST_SCREENED = 2048
OnError = Literal["reject", "fail"]


class Decoder(Protocol):
    """One text format: lines to a batch, row n from line n."""

    def decode(self, data: bytes) -> pa.RecordBatch:
        """Return the rows of whole, non-blank lines; raise ArrowInvalid if not each line is one row."""

    def decode_lines(self, lines: Sequence[bytes]) -> pa.RecordBatch:
        """Return one row per text, each a line or a row with several lines; raise ArrowInvalid as `decode` does."""

    def records(self, block: bytes) -> list[Record]:
        """Return the rows of a block that take several lines."""

    def several_lines(self, text: bytes) -> bool:
        """Return whether a text with line breaks is one row."""

    def blank(self, line: bytes) -> bool:
        """Return whether a line is skipped silently."""

    def bare(self, line: bytes) -> bytes:
        """Return a line without the space around it that does not count."""

    def screen(self, lines: Sequence[bytes]) -> dict[int, str]:
        """Return lines that `decode` certainly refuses, and why: all it can find quickly, maybe not all."""

    def reason(self, line: bytes, error: Exception) -> str:
        """Return why a line is bad that the screen let through."""


class Parser:
    """Parses blocks of one format into one schema; a line is judged by all declared columns."""

    def __init__(self, decoder: Decoder, schema: Schema) -> None:
        self._decoder, self._schema = decoder, schema

    def parse(self, block: bytes, path: str, offset: int = 0) -> Iterator[pa.RecordBatch | Rejected]:
        """Yield the rows of complete lines, in order, and the bad ones with their position in the file."""
        try:
            batch = self._decode(block)
            lines: list[tuple[int, bytes]] | None = None
        except (pa.ArrowInvalid, UnicodeDecodeError):
            lines = self._lines(block)
            batch, lines, rejects = self._isolate(lines)
            yield from (Rejected(why, raw, f"{path}:{offset + at}") for at, raw, why in rejects)
        nulls = null_violations(batch, self._schema)
        if nulls:
            lines = self._lines(block) if lines is None else lines
            yield from (Rejected(why, lines[n][1], f"{path}:{offset + lines[n][0]}") for n, why in nulls)
            batch = without(batch, [n for n, _ in nulls])
        if batch.num_rows:
            yield batch

    def rows(self, payloads: Sequence[bytes]) -> tuple[pa.RecordBatch, dict[int, str]]:
        """Return the rows of payloads that are a line each, in order, and why others are rejected, by position."""
        return self.joined(b"\n".join(payloads), len(payloads)) or self.each(payloads)

    def joined(self, data: bytes, count: int) -> tuple[pa.RecordBatch, dict[int, str]] | None:
        """Return the rows of so many payloads with line breaks between them; None if not each of them is one line."""
        if data.count(b"\n") == count - 1:
            with contextlib.suppress(pa.ArrowInvalid, UnicodeDecodeError):
                batch = self._decode(data)
                if batch.num_rows == count:
                    return self._kept(batch, range(count), {})
        return None

    def each(self, payloads: Sequence[bytes]) -> tuple[pa.RecordBatch, dict[int, str]]:
        """Return the same for payloads, some of which are invalid."""
        bad = {n: why for n, line in enumerate(payloads) if (why := self._no_line(line))}
        batch, kept, rejects = self._isolate([(n, line) for n, line in enumerate(payloads) if n not in bad])
        return self._kept(batch, [n for n, _ in kept], bad | {n: why for n, _, why in rejects})

    def _kept(
        self, batch: pa.RecordBatch, positions: Sequence[int], bad: dict[int, str]
    ) -> tuple[pa.RecordBatch, dict[int, str]]:
        nulls = null_violations(batch, self._schema)
        if nulls:
            batch = without(batch, [n for n, _ in nulls])
        return batch, bad | {positions[n]: why for n, why in nulls}

    def _no_line(self, payload: bytes) -> str | None:
        if self._decoder.blank(payload):
            return "an empty payload"
        if b"\n" in payload and not self._decoder.several_lines(payload):
            return "a line break inside the payload"
        return None

    def _decode(self, data: bytes) -> pa.RecordBatch:
        if not data.isascii():
            data.decode()
        return self._decoder.decode(data)

    def _decode_lines(self, lines: Sequence[bytes]) -> pa.RecordBatch:
        for line in lines:
            if not line.isascii():
                line.decode()
        return self._decoder.decode_lines(lines)

    def _lines(self, block: bytes) -> list[tuple[int, bytes]]:
        """Return each line that counts, with its position in the block."""
        found, at = list[tuple[int, bytes]](), 0
        for record in self._decoder.records(block):
            found += self._simple_lines(block[at : record.start], at)
            found.append((record.start, _without_end(block[record.start : record.end])))
            at = record.end
        return found + self._simple_lines(block[at:], at) if at < len(block) or not at else found

    def _simple_lines(self, block: bytes, at: int) -> list[tuple[int, bytes]]:
        found = []
        for line in block.removesuffix(b"\n").split(b"\n") if block or not at else ():
            bare = line.removesuffix(b"\r")
            if not self._decoder.blank(bare):
                found.append((at, bare))
            at += len(line) + 1
        return found

    def _isolate(
        self, lines: list[tuple[int, bytes]]
    ) -> tuple[pa.RecordBatch, list[tuple[int, bytes]], list[tuple[int, bytes, str]]]:
        """Return the rows that parse, their lines, and the lines that do not with the reason of each."""
        bad: dict[int, str] = {}
        good: list[pa.RecordBatch] = []
        pieces = [(list(range(len(lines))), False)]
        while pieces:
            piece, screened = pieces.pop()
            texts = [lines[n][1] for n in piece]
            try:
                good.append(self._decode_lines([self._decoder.bare(text) for text in texts]))
            except (pa.ArrowInvalid, UnicodeDecodeError) as error:
                if len(piece) > _MOST_SCREENED:
                    pieces += [(part, False) for part in reversed(_cut(piece, 8))]
                elif not screened:
                    found = self._screen(texts)
                    bad |= {piece[n]: why for n, why in found.items()}
                    pieces.append(([at for n, at in enumerate(piece) if n not in found], True))
                elif len(piece) > 1:
                    pieces += [(part, True) for part in reversed(_cut(piece, 2))]
                else:
                    bad[piece[0]] = self._decoder.reason(texts[0], error)
        kept = [line for n, line in enumerate(lines) if n not in bad]
        return self._joined(good), kept, [(*lines[n], bad[n]) for n in sorted(bad)]

    def _screen(self, lines: Sequence[bytes]) -> dict[int, str]:
        bad = {n: why for n, line in enumerate(lines) if not line.isascii() and (why := not_text(line))}
        rest = [n for n in range(len(lines)) if n not in bad]
        return bad | {rest[n]: why for n, why in self._decoder.screen([lines[n] for n in rest]).items()}

    def _joined(self, batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
        schema = self._schema.nullable().arrow
        return pa.concat_batches(batches) if batches else pa.RecordBatch.from_pylist([], schema=schema)


def _cut(piece: list[int], parts: int) -> list[list[int]]:
    size = -(-len(piece) // parts)
    return [piece[at : at + size] for at in range(0, len(piece), size)]


def _without_end(line: bytes) -> bytes:
    return line.removesuffix(b"\n").removesuffix(b"\r")


def not_text(line: bytes) -> str | None:
    """Return why bytes are no text, or None if they are."""
    try:
        line.decode()
    except UnicodeDecodeError as error:
        return f"not UTF-8: byte 0x{line[error.start]:02x} at {error.start}"
    return None


def parser(
    format: str, schema: Schema, columns: Sequence[str] | None = None, options: CsvOptions | None = None
) -> Parser:
    r"""Return the parser of a text format; `columns` is the order in a csv file, if it has a header.

    >>> list(parser("csv", Schema("a int")).parse(b"1\nx\n", "f.csv"))[0]
    Rejected(reason="column a: 'x' cannot be read as int", raw=b'x', position='f.csv:2')
    """
    decoders: dict[str, Callable[[], Decoder]] = {
        "csv": lambda: CsvDecoder(schema, columns, options),
        "json": lambda: JsonDecoder(schema),
        "text": lambda: TextDecoder(schema),
    }
    return Parser(decoders[one_of(format, decoders, "format")](), schema)


def guess_format(path: str) -> str | None:
    """Return the format by a file's extension, before `.gz`; None if it is unknown.

    >>> guess_format("trades.csv.gz")
    'csv'
    """
    return ENDINGS.get(os.path.splitext(path.removesuffix(".gz"))[1].lower())


def declared(schema: Schema | None, format: str, what: str) -> Schema:
    """Return the schema to read a text format with; csv and json do not carry one."""
    if schema is None and format == "text":
        return TEXT
    if schema is None:
        message = f"{what}: {format} needs a schema"
        raise BadSchema(message, hint='pass schema="name type, ...": types are never guessed from rows')
    if format != "parquet":
        parser(format, schema)
    return schema


def null_violations(batch: pa.RecordBatch, schema: Schema) -> list[tuple[int, str]]:
    """Return the rows that violate `not null`, with the reason of each."""
    found: dict[int, str] = {}
    for field in schema:
        column = batch.column(field.name)
        if field.nullable or not column.null_count:
            continue
        for row in pc.indices_nonzero(column.is_null()).to_pylist():
            found.setdefault(row, f"column {field.name}: null, but it is declared not null")
    return sorted(found.items())


def without(batch: pa.RecordBatch, rows: Iterable[int]) -> pa.RecordBatch:
    """Return the batch without these rows."""
    dropped = set(rows)
    return batch.take(pa.array([n for n in range(batch.num_rows) if n not in dropped], pa.int64()))


def enforce(
    rows: Iterable[pa.RecordBatch | Rejected], on_error: OnError, node: str
) -> Iterator[pa.RecordBatch | Rejected]:
    """Yield all items; with `on_error="fail"` raise at the first rejected row."""
    for item in rows:
        if isinstance(item, Rejected) and on_error == "fail":
            message = f"bad row at {item.position}: {item.reason}"
            hint = 'fix the row, or pass on_error="reject" to reject such rows'
            raise RowRejected(message, node=node, hint=hint)
        yield item
