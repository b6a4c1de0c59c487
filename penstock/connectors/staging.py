"""Files of one partition of one epoch, written out of sight."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import TypedDict
from urllib.parse import quote
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.connectors.notes import sync_folder
from penstock.connectors.writers import ENDINGS, Writer, iso, open_writer

_MOST_OPEN = 200
_NULL = "__HIVE_DEFAULT_PARTITION__"


class Staged(TypedDict):
    """A file that is written but not yet shown; both names are relative to the sink's folder."""

    staged: str
    final: str
    rows: int


class Stage:
    """Writes a partition's rows, a file for each set of values of the `partition_by` columns."""

    def __init__(self, root: str, folder: str, format: str, name: str) -> None:
        self._root, self._folder, self._format, self._name = root, folder, format, name
        self._open: dict[str, tuple[Writer, Staged]] = {}
        self._files: list[Staged] = []
        self._count: dict[str, int] = {}

    def written(self, batches: Iterable[pa.RecordBatch], partition_by: Sequence[str]) -> list[Staged]:
        """Write all rows and return the files, which are on the disk then; none if there are no rows."""
        for batch in batches:
            for folder, rows in by_folder(batch, partition_by):
                writer, file = self._open.get(folder) or self._opened(folder, rows.schema)
                writer.write_batch(rows)
                file["rows"] += rows.num_rows
        for folder in list(self._open):
            self._close(folder)
        if self._files:
            sync_folder(os.path.join(self._root, self._folder))
        return self._files

    def _opened(self, folder: str, schema: pa.Schema) -> tuple[Writer, Staged]:
        if len(self._open) >= _MOST_OPEN:
            self._close(next(iter(self._open)))
        os.makedirs(os.path.join(self._root, self._folder), exist_ok=True)
        again = self._count.get(folder, 0)
        self._count[folder] = again + 1
        ending = ENDINGS[self._format]
        final = os.path.join(folder, f"{self._name}{f'-{again}' if again else ''}{ending}")
        file = Staged(staged=os.path.join(self._folder, uuid4().hex + ending), final=final, rows=0)
        writer = open_writer(self._format, os.path.join(self._root, file["staged"]), schema)
        self._open[folder] = writer, file
        return writer, file

    def _close(self, folder: str) -> None:
        writer, file = self._open.pop(folder)
        writer.close()
        with open(os.path.join(self._root, file["staged"]), "rb") as written:
            os.fsync(written.fileno())
        self._files.append(file)


def by_folder(batch: pa.RecordBatch, names: Sequence[str]) -> Iterator[tuple[str, pa.RecordBatch]]:
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
    values = iso(column) if pa.types.is_timestamp(column.type) else column.cast(pa.string())
    coded = pc.dictionary_encode(pc.fill_null(values, "\0"))
    named = [_NULL if v == "\0" else quote(v, safe=" ") for v in coded.dictionary.to_pylist()]
    return pa.array([f"{quote(name, safe=' ')}={v}" for v in named]).take(coded.indices)
