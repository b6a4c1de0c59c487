"""Staged files: the rows of one partition of one epoch, in an internal folder until they are committed."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple, TypedDict
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.connectors.formats.csv.options import CsvOptions
from penstock.connectors.formats.text_columns import decimal_text, iso
from penstock.connectors.formats.writers import ENDINGS, Writer, open_writer
from penstock.errors import SinkFailed
from penstock.storage.durable_files import sync
from penstock.storage.stores import FileStore, staged_name

# Stores copy at most 5 GB in one request, and readers share work by files.
_MOST_BYTES = 1 << 30
_MOST_BUFFERED = 1 << 27
_MOST_OPEN = 200
_NULL = "__HIVE_DEFAULT_PARTITION__"
# Stands for null until then.
_MISSING = "\0"
# In bytes: of a name in a folder, of a path, and of a key in an object store.
_LONGEST_NAME, _LONGEST_PATH, _LONGEST_KEY = 255, 4_095, 1_024


class Staged(TypedDict):
    """A file that is written but not yet committed; both names are relative to the sink's folder."""

    staged: str
    final: str
    rows: int
    size: int


class _Open(NamedTuple):
    writer: Writer
    path: str
    file: Staged


class Stage:
    """Writes a partition's rows, a file for each set of values of the `partition_by` columns.

    Files are put into an internal folder, or with `shown` under their final names at once.
    """

    def __init__(
        self, store: FileStore, folder: str, format: str, name: str, *, shown: bool, options: CsvOptions | None = None
    ) -> None:
        self._options = options
        self._store, self._folder, self._format, self._name, self._shown = store, folder, format, name, shown
        self._open: dict[str, _Open] = {}
        self._files: list[Staged] = []
        self._count: dict[str, int] = {}
        self._buffered = 0

    def written(self, batches: Iterable[pa.RecordBatch], partition_by: Sequence[str]) -> list[Staged]:
        """Write all rows and return the files; none if there are no rows."""
        try:
            for batch in batches:
                for folder, rows in split_by_folder(batch, partition_by):
                    self._write(folder, rows)
            for folder in list(self._open):
                self._close(folder)
        finally:
            for left in self._open.values():
                # Only after an error, which is propagating.
                with suppress(OSError, pa.ArrowException):
                    left.writer.close()
                with suppress(FileNotFoundError):
                    os.unlink(left.path)
        return self._files

    def written_whole(self, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> list[Staged]:
        """Write rows to a file, also if there are none."""
        self._opened("", schema)
        return self.written(batches, ())

    def _write(self, folder: str, rows: pa.RecordBatch) -> None:
        writer, path, file = self._open.get(folder) or self._opened(folder, rows.schema)
        writer.write_batch(rows)
        file["rows"] += rows.num_rows
        self._buffered += rows.nbytes
        if self._buffered > _MOST_BUFFERED:
            for one in self._open.values():
                one.writer.flush()
            self._buffered = 0
        if os.path.getsize(path) > _MOST_BYTES:
            self._close(folder)

    def _opened(self, folder: str, schema: pa.Schema) -> _Open:
        if len(self._open) >= _MOST_OPEN:
            self._close(next(iter(self._open)))
        again = self._count.get(folder, 0)
        self._count[folder] = again + 1
        final = os.path.join(folder, f"{self._name}{f'-{again}' if again else ''}{ENDINGS[self._format]}")
        self._refuse_long(final)
        path = self._store.scratch(self._folder)
        file = Staged(staged=final if self._shown else staged_name(self._folder), final=final, rows=0, size=0)
        self._open[folder] = _Open(open_writer(self._format, path, schema, self._options), path, file)
        return self._open[folder]

    def _refuse_long(self, final: str) -> None:
        """Raise before the epoch is committed: a file that cannot get its name would stop every later run."""
        longest = _LONGEST_KEY if "://" in self._store.url else _LONGEST_PATH
        if len(f"{self._store.url}/{final}".encode()) > longest:
            message = (
                f"the name of the file {final[:60]}… is longer than the {longest} bytes that {self._store.url} allows"
            )
            raise SinkFailed(message, hint="write to a folder with a shorter name, or partition by fewer columns")

    def _close(self, folder: str) -> None:
        writer, path, file = self._open[folder]
        writer.close()
        file["size"] = os.path.getsize(path)
        if self._shown:
            # Nothing syncs it later: the epoch may be committed as soon as this task ends.
            sync(path)
        self._store.put(path, file["staged"])
        if self._shown:
            self._store.fsync_names([file["staged"]])
        del self._open[folder]
        self._files.append(file)


def split_by_folder(batch: pa.RecordBatch, names: Sequence[str]) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield the rows of each subfolder `column=value/...`, in their order."""
    if not batch.num_rows:
        return
    if not names:
        yield "", batch
        return
    parts = [_folder_names(name, batch.column(name)) for name in names]
    keys = pc.binary_join_element_wise(*parts, "/").dictionary_encode()
    order = pc.array_sort_indices(keys.indices)
    ordered = batch.take(order)
    codes = keys.indices.take(order).to_numpy()
    edges = [0, *(np.flatnonzero(np.diff(codes)) + 1).tolist(), len(codes)]
    for first, last in itertools.pairwise(edges):
        yield keys.dictionary[int(codes[first])].as_py(), ordered.slice(first, last - first)


def _folder_names(name: str, column: pa.Array) -> pa.Array:
    kind = column.type
    values = iso(column) if pa.types.is_timestamp(kind) else column.cast(pa.string())
    if pa.types.is_decimal(kind):
        values = decimal_text(column)
    coded = pc.dictionary_encode(pc.fill_null(values, _MISSING))
    return pa.array([_folder_name(name, value) for value in coded.dictionary.to_pylist()]).take(coded.indices)


def _folder_name(name: str, value: str) -> str:
    folder = f"{quote(name, safe=' ')}={_NULL if value == _MISSING else quote(value, safe=' ')}"
    if len(folder) > _LONGEST_NAME:
        shown = value if len(value) <= 60 else f"{value[:60]}…"
        message = (
            f"partition_by '{name}': the folder of the value {shown!r} would have a name of {len(folder)} bytes, "
            f"and {_LONGEST_NAME} are possible"
        )
        hint = f'partition by something shorter, such as .with_columns(part="md5({name})") or a substr() of it'
        raise SinkFailed(message, hint=hint)
    return folder
