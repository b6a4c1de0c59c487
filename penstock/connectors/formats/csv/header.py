"""The first line of a csv file: the names of its columns, or its first row."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyarrow import csv as pacsv

from penstock.connectors.formats.csv.decoder import BOM
from penstock.connectors.formats.csv.options import CsvOptions
from penstock.connectors.formats.csv.records import LONGEST_RECORD
from penstock.errors import BadSchema
from penstock.schema import Schema

_SHOWN = 20


def header(line: bytes, schema: Schema, path: str, options: CsvOptions | None = None) -> list[str] | None:
    r"""Return the column names of a header line, or None if the line is a row.

    >>> header(b"price,symbol\n", Schema("symbol string, price double"), "trades.csv")
    ['price', 'symbol']
    """
    options = options or CsvOptions()
    if options.header is False:
        return None
    names = _names(line.rstrip(b"\r\n"), schema, options)
    if options.header == "auto" and not set(names) & set(schema.names):
        return None
    missing = [name for name in schema.names if name not in names]
    if missing:
        _refuse(f"lacks {', '.join(missing)}", names, schema, path, options)
    twice = [name for name in schema.names if names.count(name) > 1]
    if twice:
        _refuse(f"has {', '.join(twice)} twice", names, schema, path, options)
    return names


def beginning(
    sample: bytes, schema: Schema, path: str, options: CsvOptions | None = None
) -> tuple[int, tuple[str, ...]]:
    """Return where the rows of a file begin, and the names in its header; none if it has no header."""
    options = options or CsvOptions()
    mark = len(BOM) if sample.startswith(BOM) else 0
    length = _first_row(sample[mark:], options)
    columns = header(sample[mark : mark + length], schema, path, options)
    return (mark, ()) if columns is None else (mark + length, tuple(columns))


def assumed(reason: str, options: CsvOptions) -> str:
    """Add to the reason why a first line is no row what was assumed about it."""
    if options.header is False:
        return f"{reason} (the first line, read as a row: header=False)"
    return f'{reason} (the first line, read as a row, because it names no declared column: header="auto")'


def _first_row(sample: bytes, options: CsvOptions) -> int:
    """Return the length of the first row, with its line feed; names in quotes may contain line breaks."""
    end = sample.find(b"\n") + 1 or len(sample)
    quote, first = options.quote_byte, end
    while quote and options.without_escapes(sample[:end]).count(quote) % 2:
        if end >= min(len(sample), LONGEST_RECORD):
            return first
        end = sample.find(b"\n", end) + 1 or len(sample)
    return end


def _names(line: bytes, schema: Schema, options: CsvOptions) -> list[str]:
    names = _fields(line, options)
    return [name if name in schema else name.strip() for name in names]


def _fields(line: bytes, options: CsvOptions) -> list[str]:
    """Return the fields of one line; where Arrow finds more lines in it or none, those between delimiters."""
    text = line.decode("utf-8", "replace")
    plain = text.split(options.delimiter)
    if not line or not any(mark in line for mark in (options.quote_byte or b"\r", options.escape_byte or b"\r", b"\r")):
        return plain
    try:
        table = pacsv.read_csv(
            pa.BufferReader(text.encode() + b"\n"),
            pacsv.ReadOptions(use_threads=False, block_size=2 * len(line) + 64, autogenerate_column_names=True),
            pacsv.ParseOptions(
                delimiter=options.delimiter,
                quote_char=options.quote or False,
                escape_char=options.escape or False,
            ),
            pacsv.ConvertOptions(column_types={f"f{n}": pa.string() for n in range(len(plain))}),
        )
    except pa.ArrowInvalid:
        return plain
    return [str(column[0].as_py()) for column in table.columns] if table.num_rows == 1 else plain


def _refuse(wrong: str, names: Sequence[str], schema: Schema, path: str, options: CsvOptions) -> None:
    shown = ", ".join(name if name.isprintable() and len(name) < 100 else repr(name[:100]) for name in names[:_SHOWN])
    more = ", ..." if len(names) > _SHOWN else ""
    named = [name for name in names if name in schema]
    why = "header=True" if options.header is True else f'header="auto", and the line names {", ".join(named)}'
    hint = f"its first line was read as a header ({why}): declare the columns of the file, or pass header=False"
    if len(names) == 1 and len(schema) > 1:
        hint = f"{hint}; fields were split at delimiter={options.delimiter!r}"
    if any("\r" in name for name in names):
        hint = f"{hint}; a line ends in LF or CRLF, and this one has carriage returns inside"
    message = f"{path}: the header {wrong}; it has {shown}{more}"
    raise BadSchema(message, hint=hint)
