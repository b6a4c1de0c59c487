"""Compaction: merges small files, within an epoch before they are committed, and across epochs while jobs write.

A plan file records which files a merged one replaces; any process that finds it completes it. It is written when the
merged file is complete and staged. Files of a ledger's newest epoch are left out: a restart may still have to rename
them, so a file that was merged never comes back.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, BinaryIO

import pyarrow.parquet as pq

from penstock.connectors.files.ledger import newest_files
from penstock.connectors.files.parquet_concat import SchemaMismatch, concatenate, splice
from penstock.connectors.files.staging import Staged
from penstock.connectors.formats.writers import ENDINGS, open_writer
from penstock.errors import MissingInput, SinkFailed
from penstock.storage.stores import INTERNAL_FOLDER, STAGED, FileStore, VersionConflict, staged_name

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
    """Read a csv file's header: a line, or more if quoted names contain line breaks.

    With another quote character a name may contain `"`, which does not quote then: that is a line.
    """
    line = read = file.readline()
    while read.count(b'"') % 2 and (more := file.readline()):
        read += more
    records = csv.reader(io.StringIO(read.decode(errors="replace"), newline=""))
    return read if len(list(records)) == 1 else line


_PLAN = f"{INTERNAL_FOLDER}/compaction.json"
_STAGED = f"{STAGED}/compaction"
_OURS = re.compile(r"(part-.*|whole-\d+)\.(parquet|csv|json)")
_BARRIERS = re.compile(r"whole-\d+-in-work\.parquet")
# Readers see a corrupt Parquet file, and fail instead of missing rows.
_BARRIER = b"PENSTOCK: the files of this folder are being merged; list it again in a moment\n"


@dataclass
class Compacted:
    """The result of a compaction: files merged, files written, small files left."""

    merged: int = 0
    into: int = 0
    left: int = 0


@dataclass(frozen=True)
class _Group:
    folder: str
    ending: str
    names: list[str]


class CompactionConflict(SinkFailed):
    """Another compaction has changed the plan file."""


class Compaction:
    """Merges committed files; stops if the plan file has changed since it was read."""

    def __init__(self, store: FileStore) -> None:
        """Complete the plan of an earlier compaction, of any process; each step may be done twice."""
        self._store = store
        found = store.read(_PLAN)
        plan = json.loads(found[0]) if found else {"number": 0}
        self._version: Any = found[1] if found else None
        self._number: int = plan["number"]
        if "from" in plan:
            # Its writer may have been killed before it synced it, and nothing else knows the merged file.
            store.fsync([_PLAN])
            self._finish(plan)
        elif found:
            # A process that completed the same plan and was killed may have left its barrier.
            store.remove(name for name in store.files("") if _BARRIERS.fullmatch(os.path.basename(name)))

    def run(self, below: int) -> Compacted:
        """Merge files smaller than `below`, those of one folder, into files of about that size."""
        groups, left = _groups(self._store, below)
        done = Compacted(left=left)
        for part in (part for group in groups for part in _alike(self._store, group)):
            self._merge(part)
            done.merged += len(part.names)
            done.into += 1
        return done

    def _merge(self, group: _Group) -> None:
        store, ending = self._store, group.ending
        staged, path = staged_name(_STAGED), store.scratch(_STAGED)
        with store.local_copies(group.names) as paths:
            rewrite(paths, path, ending)
        store.put(path, staged)
        store.fsync([staged])
        # Stores list in name order: the files, the barrier, the merged one. So no listing can miss all three.
        name = os.path.join(group.folder, f"whole-{self._number + 1:08}")
        barrier = f"{name}-in-work{ending}" if ending == ENDINGS["parquet"] else None
        plan = {"from": group.names, "staged": staged, "final": name + ending, "barrier": barrier}
        self._write_plan(self._number + 1, plan)
        self._finish(plan)

    def _finish(self, plan: dict[str, Any]) -> None:
        """Replace the files by the merged one; in between, the barrier makes readers fail."""
        if plan["barrier"]:
            path = self._store.scratch(_STAGED)
            with open(path, "wb") as file:
                file.write(_BARRIER)
            self._store.put(path, plan["barrier"])
            self._store.fsync([plan["barrier"]])
        self._store.remove(plan["from"])
        # This syncs the folder too, also if the merged file was renamed before: the removals must be durable.
        self._store.publish([(plan["staged"], plan["final"])])
        if plan["barrier"]:
            self._store.remove([plan["barrier"]])
            self._store.fsync_names([plan["barrier"]])
        self._write_plan(self._number, {})

    def _write_plan(self, number: int, plan: dict[str, Any]) -> None:
        text = json.dumps({"number": number} | plan)
        try:
            self._version = self._store.compare_and_swap(_PLAN, text.encode(), self._version)
        except VersionConflict as error:
            message = f"another compaction of {self._store.url} is running"
            raise CompactionConflict(
                message, hint="no rows are lost or duplicated: wait for it, then try again"
            ) from error
        self._number = number


def check_target(store: FileStore) -> None:
    """Raise MissingInput if no file sink has written here."""
    if not store.files(INTERNAL_FOLDER):
        message = f"no file sink has written to {store.url!r}"
        raise MissingInput(message, hint="give the folder or URL that the pipeline's files(...) names")


def _groups(store: FileStore, below: int) -> tuple[list[_Group], int]:
    """Return the groups of files to merge, and how many small files are left."""
    listed = store.files("")
    # Read after the listing: of the listed files only those of the newest epochs can be incomplete.
    newest = newest_files(store)
    small = sorted(name for name, found in listed.items() if found.size < below and _ours(name))
    free = [name for name in small if name not in newest]
    groups = []
    for (folder, ending), names in groupby(sorted(free, key=_where), _where):
        groups += [_Group(folder, ending, part) for part in _filled(list(names), listed, below)]
    return groups, len(small) - sum(len(group.names) for group in groups)


def _filled(names: list[str], listed: dict[str, Any], enough: int) -> Iterator[list[str]]:
    part: list[str] = []
    size = 0
    for name in names:
        part.append(name)
        size += listed[name].size
        if size >= enough:
            yield part
            part, size = [], 0
    if len(part) > 1:
        yield part


def _alike(store: FileStore, group: _Group) -> list[_Group]:
    """Split a group by the columns of its files."""
    with store.local_copies(group.names) as paths:
        kinds = [layout(path, group.ending) for path in paths]
    parts = [[n for n, kind in zip(group.names, kinds, strict=True) if kind == one] for one in dict.fromkeys(kinds)]
    return [_Group(group.folder, group.ending, names) for names in parts if len(names) > 1]


def _ours(name: str) -> bool:
    return _OURS.fullmatch(os.path.basename(name)) is not None


def _where(name: str) -> tuple[str, str]:
    return os.path.dirname(name), os.path.splitext(name)[1]
