"""Targets of a replay: a topic gets records, a folder gets a file.

The checkpoint has a journal per source, with one file per replay. A replay first records the ids of its rows under the
next number, then writes the rows. The source itself shows whether it did: a topic has the number in a ledger that is
written in the same transaction, a folder has the file. So an interrupted replay is detected, and its rows are part of
the next one.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.connectors.files.listing import base_folder, is_glob
from penstock.connectors.files.source import SAMPLE, FileSource
from penstock.connectors.formats.csv.decoder import BOM
from penstock.connectors.formats.csv.header import beginning
from penstock.connectors.formats.csv.options import CsvOptions
from penstock.connectors.formats.csv.writer import header_line
from penstock.connectors.formats.json.encodings import from_base64
from penstock.connectors.formats.lines import first_bytes, recoded
from penstock.connectors.formats.wide_times import DAY_US, wide_us
from penstock.connectors.topics.ledger import Entry, SinkPartition
from penstock.connectors.topics.payloads import payloads
from penstock.connectors.topics.producers import TransactionalWriter
from penstock.connectors.topics.source import TopicSource
from penstock.contracts import Source
from penstock.errors import CannotReplay
from penstock.schema import Schema
from penstock.storage.file_names import source_folder
from penstock.storage.folders import Folder, LocalFolder


class Target(Protocol):
    """A source to which rows are written back."""

    said: str

    def newest(self, *, alone: bool) -> int:
        """Return the number of the last replay that was written, or -1; if `alone`, other writers are fenced."""

    def write(self, number: int, rows: Sequence[ReturnedRow]) -> None:
        """Write a replay, all or nothing."""


def target_of(source: Source, job: str, replays: Replays) -> Target:
    """Return a source as a target."""
    if isinstance(source, TopicSource):
        return TopicTarget(source, job)
    if isinstance(source, FileSource):
        return FileTarget(source, replays)
    message = f"rows cannot be written back to '{source.name}': {type(source).__name__} is neither a topic nor files"
    raise CannotReplay(message, hint="write them to its input by other means")


class TopicTarget:
    """A topic: records and the replay's number in one transaction."""

    def __init__(self, source: TopicSource, job: str) -> None:
        self.said = f"topic '{source.name}'"
        self._source = source
        self._place = SinkPartition(source.cluster.connection, source.name, f"penstock.replay.{job}.{source.name}")
        self._writer: TransactionalWriter | None = None

    def newest(self, *, alone: bool) -> int:
        """Return the number in the ledger; creating the writer fences any other."""
        if alone:
            self._writer = TransactionalWriter(self._place)
            return self._writer.newest
        with self._place.consumer() as consumer:
            entry = self._place.read(consumer)
        return -1 if entry is None else entry.epoch

    def write(self, number: int, rows: Sequence[ReturnedRow]) -> None:
        """Produce the records."""
        entry, source = Entry(number, 1), self._source
        assert self._writer is not None
        if not self._writer.begin(entry):
            message = f"{self.said}: another replay took over"
            raise CannotReplay(message, hint="wait for it, then run this again", transient=True)
        own = Schema(source.schema.fields[: len(source.schema) - len(source.include)])
        self._writer.write(entry, [([_key(row) for row in rows], payloads_of(rows, own, source.format))])


class FileTarget:
    """A folder: one more file, named by the replay's number."""

    def __init__(self, source: FileSource, replays: Replays) -> None:
        self._source, self._replays = source, replays
        self._folder, self._pattern = _folder_and_pattern(source)
        self.said = f"files in '{self._folder}'"

    def newest(self, *, alone: bool) -> int:
        """Return the last replay whose file was written; only the last in the journal may lack it."""
        last = max(self._replays.numbers(), default=-1)
        begins = self._pattern.partition("*")[0] + f"replayed-{last}-"
        there = any(name.startswith(begins) for name in os.listdir(self._folder))
        return last if there or last < 0 or self._replays.is_finished(last) else last - 1

    def write(self, number: int, rows: Sequence[ReturnedRow]) -> None:
        """Write the file atomically."""
        content = self._content(rows)
        name = self._pattern.replace("*", f"replayed-{number}-{hashlib.sha256(content).hexdigest()[:12]}")
        whole = gzip.compress(content, mtime=0) if name.endswith(".gz") else content
        LocalFolder(self._folder).write(name, whole)

    def _content(self, rows: Sequence[ReturnedRow]) -> bytes:
        source = self._source
        if source.format == "parquet":
            return _parquet(batch(rows, source.schema))
        lines = payloads_of(rows, source.schema, source.format, source.options)
        heads = {self._head(row) for row in rows} if source.format == "csv" else set()
        if len(heads) > 1:
            message = f"{self.said}: the rows come from files with different headers"
            raise CannotReplay(message, hint="replay the rows of one reason or node at a time: --reason, --node")
        text = b"".join(line + b"\n" for line in (*filter(None, heads), *lines))
        return recoded(text, source.options.encoding)

    def _head(self, row: ReturnedRow) -> bytes:
        """Return the csv header of a line's file; for values, the declared one."""
        options = self._source.options
        if row.raw is None:
            return header_line(self._source.schema.names, options) if options.header is not False else b""
        path = (row.position or "").rpartition(":")[0]
        try:
            line = first_bytes(path, SAMPLE, options.encoding)
        except OSError as error:
            message = f"{path}, which a rejected line comes from, cannot be read: {error.strerror}"
            raise CannotReplay(message, hint="its header is needed to order the columns: restore the file") from error
        start, names = beginning(line, self._source.schema, path, options)
        return line[:start].removeprefix(BOM).rstrip(b"\r\n") if names else b""


def _folder_and_pattern(source: FileSource) -> tuple[str, str]:
    path, ending = source.where, {"text": "txt"}.get(source.format, source.format)
    if os.path.isdir(path):
        return path, f"*.{ending}"
    folder, name = os.path.split(path)
    if not is_glob(folder) and name.count("*") == 1 and not set(name) & set("?["):
        return folder or ".", name
    if is_glob(path) and "**" in path:
        return base_folder(path), f"*.{ending}"
    message = f"'{source.name}' reads {path!r}, which would not read one more file"
    raise CannotReplay(message, hint="read the folder, or a pattern such as 'data/*.csv'")


def _key(row: ReturnedRow) -> bytes | None:
    key = row.values.get("_key")
    # Bytes are base64 in the row's JSON.
    return from_base64(key) if isinstance(key, str) else None


def _parquet(rows: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_batches([rows]), sink)
    written: bytes = sink.getvalue().to_pybytes()
    return written


@dataclass(frozen=True)
class ReturnedRow:
    """One row to write back: its original bytes or its values, and its position."""

    raw: bytes | None
    values: dict[str, Any]
    position: str | None


def payloads_of(
    rows: Sequence[ReturnedRow], schema: Schema, format: str, options: CsvOptions | None = None
) -> list[bytes]:
    """Return each row as a payload: its original bytes, or its values in the format."""
    made = [row for row in rows if row.raw is None]
    written = iter(payloads(batch(made, schema), "raw" if format == "text" else format, options) if made else ())
    return [row.raw if row.raw is not None else _bytes(next(written)) for row in rows]


def batch(rows: Sequence[ReturnedRow], schema: Schema) -> pa.RecordBatch:
    """Return values from JSON as a batch of a schema."""
    arrow = schema.nullable().arrow
    try:
        columns = [
            pa.array([_value(row.values.get(field.name), field.type) for row in rows], field.type) for field in arrow
        ]
    except (pa.ArrowException, ValueError, TypeError, AttributeError, ArithmeticError, LookupError) as error:
        message = f"a rejected row does not fit {schema.ddl!r}: {error}"
        raise CannotReplay(message, hint="leave such rows out with --node or --reason") from error
    return pa.RecordBatch.from_arrays(columns, schema=arrow)


def _value(value: Any, kind: pa.DataType) -> Any:
    """Return a value of JSON, written by `row_json` or by Spark's `to_json`, for Arrow."""
    if value is None:
        return None
    if pa.types.is_list(kind):
        return [_value(part, kind.value_type) for part in value]
    if pa.types.is_map(kind):
        pairs = value.items() if isinstance(value, dict) else value
        return [(_value(key, kind.key_type), _value(item, kind.item_type)) for key, item in pairs]
    if pa.types.is_struct(kind):
        return {part.name: _value(value.get(part.name), part.type) for part in kind}
    return _plain_value(value, kind)


def _plain_value(value: Any, kind: pa.DataType) -> Any:
    if pa.types.is_binary(kind):
        return from_base64(value)
    if pa.types.is_timestamp(kind):
        return _time(value, kind)
    if pa.types.is_date(kind):
        return _date(value)
    if pa.types.is_decimal(kind):
        return Decimal(value)
    if pa.types.is_floating(kind):
        return float(value)
    if pa.types.is_integer(kind) and isinstance(value, str):
        # Keys of maps, as Spark writes them.
        return int(value)
    if pa.types.is_boolean(kind) and isinstance(value, str):
        return {"true": True, "false": False}[value]
    return value


def _date(value: str) -> date | int:
    wide = wide_us(f"{value}T00")
    # Arrow takes the number of days.
    return date.fromisoformat(value) if wide is None else wide // DAY_US


def _time(value: str, kind: pa.DataType) -> datetime | int:
    if (wide := wide_us(value)) is not None:
        return wide
    found = datetime.fromisoformat(value)
    if kind.tz is None:
        return found.replace(tzinfo=None)
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _bytes(payload: str | bytes | None) -> bytes:
    return payload.encode() if isinstance(payload, str) else payload or b""


class Replays:
    """The journal of replays into one source of one checkpoint: a file per replay."""

    def __init__(self, checkpoint: Folder, source: str) -> None:
        # With the dot it survives when a changed plan starts a new generation.
        self._folder = checkpoint / ".replays" / source_folder(source)

    def numbers(self) -> list[int]:
        """Return the numbers of all replays in the journal."""
        names = (name.removesuffix(".json") for name in self._folder.names())
        return sorted(int(name) for name in names if name.isdigit())

    def ids(self, number: int) -> list[str]:
        """Return the rows of a replay."""
        found: list[str] = json.loads(self._folder.read(f"{number}.json") or "[]")
        return found

    def replayed(self, newest: int) -> set[str]:
        """Return the rows of all replays up to one."""
        return {one for number in self.numbers() if number <= newest for one in self.ids(number)}

    def finish(self, number: int) -> None:
        """Record that a replay was written: its file may be removed once it was read."""
        self._folder.write(f"{number}.done", b"")

    def is_finished(self, number: int) -> bool:
        """Return whether a replay is known to be written."""
        return self._folder.read(f"{number}.done") is not None

    def record(self, number: int, ids: list[str]) -> None:
        """Record the rows of a replay before it is written; replaces the entry of one that crashed."""
        self._folder.remove(f"{number}.json")
        self._folder.write(f"{number}.json", json.dumps(ids).encode(), once=True)
