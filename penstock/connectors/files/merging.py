"""Merges small files: within an epoch by copying bytes, across epochs row by row."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import BinaryIO

import pyarrow.parquet as pq

from penstock.connectors.files.parquet_concat import SchemaMismatch, concatenate, splice
from penstock.connectors.files.staging import Staged
from penstock.connectors.formats.writers import ENDINGS, open_writer
from penstock.storage.stores import FileStore, staged_name

SMALL = 4 << 20
_ENOUGH = 128 << 20


def merge_small_files(store: FileStore, folder: str, files: Iterable[Staged]) -> list[Staged]:
    """Merge small staged files of the same folder, and return the files to commit."""
    result: list[Staged] = []
    groups: dict[str, list[Staged]] = {}
    for file in files:
        if file["size"] >= SMALL:
            result.append(file)
            continue
        group = groups.setdefault(os.path.dirname(file["final"]), [])
        group.append(file)
        if sum(part["size"] for part in group) >= _ENOUGH:
            result += _one(store, folder, groups.pop(os.path.dirname(file["final"])))
    return result + [file for group in groups.values() for file in _one(store, folder, group)]


def _one(store: FileStore, folder: str, group: list[Staged]) -> list[Staged]:
    if len(group) == 1:
        return group
    final = group[0]["final"]
    ending = os.path.splitext(final)[1]
    path = store.scratch(folder)
    try:
        with store.local_copies([file["staged"] for file in group]) as paths:
            join(paths, path, ending)
    except SchemaMismatch:
        os.remove(path)
        return group
    size = os.path.getsize(path)
    name = staged_name(folder)
    store.put(path, name)
    return [Staged(staged=name, final=final, rows=sum(file["rows"] for file in group), size=size)]


def join(paths: Sequence[str], target: str, ending: str) -> None:
    """Concatenate files without parsing rows; SchemaMismatch if their columns differ."""
    if ending == ENDINGS["parquet"]:
        concatenate(paths, target)
        return
    with open(target, "wb") as out:
        for number, path in enumerate(paths):
            with open(path, "rb") as file:
                start = len(header(file)) if number and ending == ENDINGS["csv"] else 0
                splice(file, out, start, os.path.getsize(path))


def rewrite(paths: Sequence[str], target: str, ending: str) -> None:
    """Write the rows of files to one file; Parquet gets large row groups again."""
    if ending != ENDINGS["parquet"]:
        join(paths, target, ending)
        return
    files = [pq.ParquetFile(path) for path in paths]
    writer = open_writer("parquet", target, files[0].schema_arrow)
    for file in files:
        for batch in file.iter_batches():
            writer.write_batch(batch)
    writer.close()
    rows = sum(file.metadata.num_rows for file in files)
    if pq.read_metadata(target).num_rows != rows:
        message = f"{rows} rows were to be merged, but the result has another number"
        raise ValueError(message)


def layout(path: str, ending: str) -> object:
    """Return a value that is equal for files that can be merged."""
    if ending == ENDINGS["parquet"]:
        return str(pq.read_schema(path).remove_metadata())
    with open(path, "rb") as file:
        return header(file) if ending == ENDINGS["csv"] else ""


def header(file: BinaryIO) -> bytes:
    """Read a csv file's header; quoted names may contain line breaks."""
    read = file.readline()
    while read.count(b'"') % 2 and (more := file.readline()):
        read += more
    return read
