"""Where streams begin."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from penstock.connectors.datagen import DataGen
from penstock.connectors.files import FileSource
from penstock.connectors.items import ItemSource
from penstock.connectors.stdin import StdinSource
from penstock.contracts import OnError, Source
from penstock.errors import BadValue
from penstock.plan.nodes import Read
from penstock.schema import Schema, Shape
from penstock.settings import Settings
from penstock.stream import Stream


def read_files(
    path: str,
    *,
    schema: Shape | None = None,
    format: Literal["csv", "json", "parquet", "text"] | None = None,
    on_error: OnError = "reject",
) -> Stream:
    """Read a file, a folder or a glob, and what is added to it later.

    csv and json need a schema; Parquet's is read from the first file. Each file is read once: write new files, and move
    them in whole. Rows that do not fit the schema, in any column, are rejected and counted, or fail the job.
    """
    given = Schema(schema) if schema is not None else None
    return read(FileSource(path, given, format, on_error, base=Settings.load().files))


def read_stdin(*, schema: Shape | None = None, format: Literal["text", "csv", "json"] = "text") -> Stream:
    """Read lines of standard input until it ends."""
    return read(StdinSource(Schema(schema) if schema is not None else None, format))


def from_items(rows: Iterable[Any], schema: Shape) -> Stream:
    """Read rows that are given here.

    >>> from_items([{"a": 1}], "a bigint").schema
    Schema('a bigint')
    """
    return read(ItemSource(rows, Schema(schema)))


def datagen(
    what: Shape,
    *,
    rows: int | None = None,
    rate: int | None = None,
    keys: int = 1000,
    seed: int = 0,
) -> Stream:
    """Make rows: "trades", "clicks", "orders" or any schema, the same for the same seed.

    `rows` ends the stream, `rate` limits it to rows per second; without it rows come as fast as they are read.
    """
    return read(DataGen(what, rows=rows, rate=rate, keys=keys, seed=seed))


def read(source: Source) -> Stream:
    """Read any source: subclass `Source` for one of your own."""
    if not isinstance(source, Source):
        message = f"{source!r} is not a source"
        raise BadValue(message, node="read", hint="pass an object of a class that extends penstock.Source")
    return Stream(Read(source=source))
