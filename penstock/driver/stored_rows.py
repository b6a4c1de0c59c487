"""Rows that a source or a sink of a job has now: the newest records of a topic or file, some rows of a table."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from penstock.connectors.files.source import FileSource
from penstock.connectors.tables.source import DatabaseTable
from penstock.connectors.topics.source import TopicSource
from penstock.contracts import Offsets, Rejected, Sink, Source
from penstock.errors import RequestRefused
from penstock.schema import Schema
from penstock.settings import Settings

Where = Literal["topic", "file", "table", "source"]
# What a row of a topic has besides its own columns.
RECORD = ("partition", "offset", "timestamp")
_MOST_FILES = 20


@dataclass(frozen=True)
class StoredRows:
    """Rows, where they are from, and what a reader should know of them."""

    rows: pa.Table
    where: Where
    note: str


def rows_of_source(source: Source, job: str, settings: Settings, limit: int) -> StoredRows:
    """Return rows of a source with its columns."""
    if isinstance(source, TopicSource):
        own = Schema(source.schema.fields[: len(source.schema) - len(source.include)])
        return _records(source.name, own, source.format, str(source.private_spec()), settings, limit, source.include)
    source.set_base_path(settings.files)
    source.configure(job, settings)
    source.check()
    if isinstance(source, FileSource):
        return _newest_files(source, source.schema, limit)
    if not source.replayable:
        message = f"source '{source.name}' can be read once only, by its job"
        raise RequestRefused(message, hint="look at a node or a sink downstream of it")
    rows, bad = _taken(source, limit)
    return StoredRows(rows, "source", _note(f"the first rows of {source.name}", bad))


def rows_of_sink(
    sink: Sink, schema: Schema, job: str, settings: Settings, limit: int, include: tuple[str, ...] = ()
) -> StoredRows:
    """Return rows that a sink has written; `schema` is that of its rows. A sink that cannot be read is refused."""
    spec = sink.spec() or {}
    kind = spec.get("kind")
    if kind == "topic":
        return _records(sink.name, schema, spec["format"], str(sink.private_spec()), settings, limit, include)
    if kind == "files" and "://" not in spec["path"] + settings.files:
        columns = Schema(tuple(field for field in schema if field.name not in spec["partition_by"]))
        source = FileSource(spec["path"], columns.nullable(), spec["format"], base=settings.files)
        source.check()
        return _newest_files(source, columns.nullable(), limit)
    if kind == "table":
        table = DatabaseTable(sink.name, str(sink.private_spec()), at=settings)
        return StoredRows(table.first_rows(limit), "table", f"rows of table {sink.name}, in no order")
    message = f"sink '{sink.name}' ({sink.describe_target() or kind or 'a function'}) cannot be read again"
    raise RequestRefused(message, hint="topics, tables and files on a disk can be read")


def _records(
    topic: str,
    schema: Schema,
    format: str,
    connection: str,
    settings: Settings,
    limit: int,
    include: tuple[str, ...],
) -> StoredRows:
    columns = None if format == "raw" else schema.nullable()
    source = TopicSource(topic, columns, format, include=include, on_loss="continue", connection=connection)
    source.configure("dashboard", settings)
    source.check()
    start, _ = source.drop_oldest(source.initial(), limit)
    rows, bad = _read(source, start, source.latest(start, None), limit)
    return StoredRows(rows, "topic", _note(f"the newest records of topic {topic}", bad))


def _newest_files(source: FileSource, schema: Schema, limit: int) -> StoredRows:
    found, bad, paths = [schema.arrow.empty_table()], 0, source.paths()
    for path in itertools.islice(reversed(paths), _MOST_FILES):
        left = limit - sum(table.num_rows for table in found)
        if left <= 0:
            break
        one = FileSource(path, schema, source.format, options=source.options)
        rows, more = _taken(one, left)
        found, bad = [*found, rows], bad + more
    what = f"rows of the newest of {len(paths):,} files" if paths else "there is no file yet"
    return StoredRows(pa.concat_tables(found), "file", _note(what, bad))


def _taken(source: Source, limit: int) -> tuple[pa.Table, int]:
    start = source.initial()
    return _read(source, start, source.latest(start, limit), limit)


def _read(source: Source, start: Offsets, end: Offsets, limit: int) -> tuple[pa.Table, int]:
    """Return at most so many rows between two offsets, and how many could not be parsed."""
    batches: list[pa.RecordBatch] = []
    rows = bad = 0
    for item in _items(source, start, end):
        if isinstance(item, Rejected):
            bad += 1
        else:
            batches.append(item.slice(0, limit - rows))
            rows += batches[-1].num_rows
        if rows >= limit or bad >= limit:
            break
    return pa.Table.from_batches(batches, source.schema.arrow if not batches else None), bad


def _items(source: Source, start: Offsets, end: Offsets) -> Iterator[pa.RecordBatch | Rejected]:
    for split in source.splits(start, end, 1):
        yield from source.read_split(split)


def _note(what: str, bad: int) -> str:
    return f"{what}; {bad:,} could not be parsed" if bad else what
