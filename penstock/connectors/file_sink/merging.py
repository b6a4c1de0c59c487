"""Many small files to few: within an epoch by their bytes, over epochs row by row."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import BinaryIO

import pyarrow.parquet as pq

from penstock.connectors.file_sink.footers import UnlikeFooters, concatenate, splice
from penstock.connectors.file_sink.places import Place, staged_name
from penstock.connectors.file_sink.stage import Staged
from penstock.connectors.writers import ENDINGS, open_writer

SMALL = 4 << 20
_ENOUGH = 128 << 20


def merged(place: Place, folder: str, files: Iterable[Staged]) -> list[Staged]:
    """Merge the small files among staged ones, those of one folder into one, and return what is to be shown."""
    result: list[Staged] = []
    groups: dict[str, list[Staged]] = {}
    for file in files:
        if file["size"] >= SMALL:
            result.append(file)
            continue
        group = groups.setdefault(os.path.dirname(file["final"]), [])
        group.append(file)
        if sum(part["size"] for part in group) >= _ENOUGH:
            result += _one(place, folder, groups.pop(os.path.dirname(file["final"])))
    return result + [file for group in groups.values() for file in _one(place, folder, group)]


def _one(place: Place, folder: str, group: list[Staged]) -> list[Staged]:
    if len(group) == 1:
        return group
    final = group[0]["final"]
    ending = os.path.splitext(final)[1]
    path = place.scratch(folder)
    try:
        with place.fetched([file["staged"] for file in group]) as paths:
            join(paths, path, ending)
    except UnlikeFooters:
        os.remove(path)
        return group
    size = os.path.getsize(path)
    name = staged_name(folder)
    place.put(path, name)
    return [Staged(staged=name, final=final, rows=sum(file["rows"] for file in group), size=size)]


def join(paths: Sequence[str], target: str, ending: str) -> None:
    """Put files one behind the other, without reading their rows; UnlikeFooters if their columns differ."""
    if ending == ENDINGS["parquet"]:
        concatenate(paths, target)
        return
    with open(target, "wb") as out:
        for number, path in enumerate(paths):
            with open(path, "rb") as file:
                start = len(header(file)) if number and ending == ENDINGS["csv"] else 0
                splice(file, out, start, os.path.getsize(path))


def rewrite(paths: Sequence[str], target: str, ending: str) -> None:
    """Put the rows of files into one; Parquet gets large row groups again."""
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
        message = f"{rows} rows were to be merged, and others came out"
        raise ValueError(message)


def layout(path: str, ending: str) -> object:
    """Return what files must have in common to be merged."""
    if ending == ENDINGS["parquet"]:
        return str(pq.read_schema(path).remove_metadata())
    with open(path, "rb") as file:
        return header(file) if ending == ENDINGS["csv"] else ""


def header(file: BinaryIO) -> bytes:
    """Read a csv file's header, in which quoted names may hold line ends."""
    read = file.readline()
    while read.count(b'"') % 2 and (more := file.readline()):
        read += more
    return read
