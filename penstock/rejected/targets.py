"""Sources as rejected rows go back into them: a topic gets records, a folder gets a file."""

from __future__ import annotations

import gzip
import hashlib
import os
from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.connectors.binary_text import from_base64
from penstock.connectors.csv_format import BOM
from penstock.connectors.csv_header import beginning
from penstock.connectors.csv_writer import header_line
from penstock.connectors.encodings import recoded
from penstock.connectors.files import SAMPLE, FileSource
from penstock.connectors.lines import first_bytes
from penstock.connectors.listing import base_folder, is_glob
from penstock.connectors.topic_ledger import Entry, Place
from penstock.connectors.topics import TopicSource
from penstock.connectors.transactions import Writer
from penstock.contracts import Source
from penstock.errors import CannotReplay
from penstock.folders import LocalFolder
from penstock.rejected.journal import Replays
from penstock.rejected.payloads import Return, batch, returned
from penstock.schema import Schema


class Target(Protocol):
    """Where rows go back to."""

    said: str

    def newest(self, *, alone: bool) -> int:
        """Return the number of the last replay that was written, or -1; if `alone`, nobody else writes one after."""

    def write(self, number: int, rows: Sequence[Return]) -> None:
        """Write a replay, all of it or nothing."""


def target_of(source: Source, job: str, replays: Replays) -> Target:
    """Return a source as a target."""
    if isinstance(source, TopicSource):
        return TopicTarget(source, job)
    if isinstance(source, FileSource):
        return FileTarget(source, replays)
    message = f"rows cannot go back into '{source.name}': {type(source).__name__} is neither a topic nor files"
    raise CannotReplay(message, hint="write them where it reads from by other means")


class TopicTarget:
    """A topic: records and the replay's number in one transaction."""

    def __init__(self, source: TopicSource, job: str) -> None:
        self.said = f"topic '{source.name}'"
        self._source = source
        self._place = Place(source.cluster.connection, source.name, f"penstock.replay.{job}.{source.name}")
        self._writer: Writer | None = None

    def newest(self, *, alone: bool) -> int:
        """Return what the ledger says; to make the writer is to fence any other."""
        if alone:
            self._writer = Writer(self._place)
            return self._writer.newest
        with self._place.consumer() as consumer:
            entry = self._place.read(consumer)
        return -1 if entry is None else entry.epoch

    def write(self, number: int, rows: Sequence[Return]) -> None:
        """Produce the records."""
        entry, source = Entry(number, 1), self._source
        assert self._writer is not None
        if not self._writer.begin(entry):
            message = f"{self.said}: another replay took over"
            raise CannotReplay(message, hint="wait for it, then run this again", transient=True)
        own = Schema(source.schema.fields[: len(source.schema) - len(source.include)])
        self._writer.write(entry, [([_key(row) for row in rows], returned(rows, own, source.format))])


class FileTarget:
    """A folder: a file more, whose name tells the replay's number."""

    def __init__(self, source: FileSource, replays: Replays) -> None:
        self._source, self._replays = source, replays
        self._folder, self._pattern = _folder_and_pattern(source)
        self.said = f"files in '{self._folder}'"

    def newest(self, *, alone: bool) -> int:
        """Return the last replay whose file was written; only the last that was noted may lack it."""
        last = max(self._replays.numbers(), default=-1)
        begins = self._pattern.partition("*")[0] + f"replayed-{last}-"
        there = any(name.startswith(begins) for name in os.listdir(self._folder))
        return last if there or last < 0 or self._replays.is_finished(last) else last - 1

    def write(self, number: int, rows: Sequence[Return]) -> None:
        """Write the file; its name appears when it is whole."""
        content = self._content(rows)
        name = self._pattern.replace("*", f"replayed-{number}-{hashlib.sha256(content).hexdigest()[:12]}")
        whole = gzip.compress(content, mtime=0) if name.endswith(".gz") else content
        LocalFolder(self._folder).write(name, whole)

    def _content(self, rows: Sequence[Return]) -> bytes:
        source = self._source
        if source.format == "parquet":
            return _parquet(batch(rows, source.schema))
        lines = returned(rows, source.schema, source.format, source.options)
        heads = {self._head(row) for row in rows} if source.format == "csv" else set()
        if len(heads) > 1:
            message = f"{self.said}: the rows come from files with different headers"
            raise CannotReplay(message, hint="replay the rows of one reason or node at a time: --reason, --node")
        text = b"".join(line + b"\n" for line in (*filter(None, heads), *lines))
        return recoded(text, source.options.encoding)

    def _head(self, row: Return) -> bytes:
        """Return the header under which a line stood; values are written under the declared one."""
        options = self._source.options
        if row.raw is None:
            return header_line(self._source.schema.names, options) if options.header is not False else b""
        path = (row.position or "").rpartition(":")[0]
        try:
            line = first_bytes(path, SAMPLE, options.encoding)
        except OSError as error:
            message = f"{path}, which a rejected line comes from, cannot be read: {error.strerror}"
            raise CannotReplay(message, hint="its header tells which column is which: put the file back") from error
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
    message = f"'{source.name}' reads {path!r}, where a file more would not be read"
    raise CannotReplay(message, hint="read the folder, or a pattern such as 'data/*.csv'")


def _key(row: Return) -> bytes | None:
    key = row.values.get("_key")
    # Bytes are base64 in the row's JSON.
    return from_base64(key) if isinstance(key, str) else None


def _parquet(rows: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_batches([rows]), sink)
    written: bytes = sink.getvalue().to_pybytes()
    return written
