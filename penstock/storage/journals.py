"""Journals: append-only lines in a folder of any kind; compaction drops the oldest lines.

Lines are numbered from 0 and keep their numbers: what was dropped still counts. Any process may read or append; the
one that contains the lease compacts.

On a disk a journal is the file `NAME.jsonl`; after a compaction its first line, `#first N`, contains the number of the
next one. In a store it is the folder `NAME`: one numbered part for each `append` and, after a compaction, a base
`base-PART.jsonl`, which begins with `#first N` and holds all kept lines before that part. Of several bases the highest
counts, so a compaction that was killed half-way, or that a driver without the lease finishes late, is harmless.
"""

from __future__ import annotations

import fcntl
import os
import re
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Protocol

from penstock.errors import CheckpointDamaged
from penstock.storage.durable_files import make_folders, sync
from penstock.storage.folders import Folder

# A compaction is worth its cost for this many lines (on a disk) or parts (in a store).
BATCH = 64
LOST = "put the checkpoint back from a copy or restore a savepoint if there is one (`penstock savepoint list`)"
_FIRST = b"#first "
_PART = re.compile(r"(\d{9,})\.jsonl")
_BASE = re.compile(r"base-(\d{9,})\.jsonl")
_TRIES = 20


class Journal(Protocol):
    """Lines that keep their numbers; what `append` has taken is durable."""

    where: str

    @property
    def first(self) -> int:
        """The number of the oldest line that is kept, as far as this object has seen."""

    @property
    def loose(self) -> int:
        """How many lines or parts a compaction could take in."""

    def fresh(self) -> list[bytes]:
        """Return the lines that were added since the last call; the first time all that are kept."""

    def append(self, lines: Sequence[bytes]) -> bool:
        """Add lines; refused if `fresh` has something to return first. Return whether they were taken."""

    def compact(self, first: int, passed: int, lines: Sequence[bytes]) -> None:
        """Drop the lines before number `first`.

        `passed` is the number up to which every live reader has read; `lines` are all from `first` on.
        """

    def forget(self, passed: int) -> None:
        """Free the memory that only a compaction of the lines before this number would need."""


def journal(folder: Folder, name: str, batch: int = BATCH) -> Journal:
    """Open a journal: a local file, or a folder of numbered parts in a store."""
    return _FileJournal(folder.local / f"{name}.jsonl", batch) if folder.local else _PartJournal(folder / name, batch)


def copy_journal(source: Folder, target: Folder, name: str, end: int | None = None) -> None:
    """Copy a journal that may be in use, up to a line's number, to a folder that has none; lines keep their numbers."""
    old = journal(source, name)
    lines = old.fresh()
    kept = lines if end is None else lines[: max(end - old.first, 0)]
    if kept or old.first:
        path = f"{name}.jsonl" if target.local else f"{name}/{_base_name(0)}"
        target.write(path, _content(old.first, kept))


def _content(first: int, lines: Sequence[bytes]) -> bytes:
    head = _FIRST + str(first).encode() + b"\n" if first else b""
    return head + b"".join(line + b"\n" for line in lines)


def _parsed(content: bytes, where: str) -> tuple[int, list[bytes]]:
    """Return the number of the first line, and all complete lines: a torn last one was never acknowledged."""
    lines = content[: content.rfind(b"\n") + 1].split(b"\n")[:-1]
    if lines and lines[0].startswith(_FIRST):
        return _number(lines[0], where), lines[1:]
    return 0, lines


def _number(head: bytes, where: str) -> int:
    try:
        return int(head.removeprefix(_FIRST))
    except ValueError as error:
        message = f"{where}: its first line is {head[:40]!r} instead of the number of the next line"
        raise CheckpointDamaged(message, hint=LOST) from error


class _FileJournal:
    def __init__(self, path: Path, batch: int) -> None:
        self._path, self.where, self._batch = path, str(path), batch
        self.first = self._seen = self._read = 0
        self._named = False

    @property
    def loose(self) -> int:
        return self._seen - self.first

    def fresh(self) -> list[bytes]:
        try:
            with self._path.open("rb") as file:
                return self._fresh(file)
        except FileNotFoundError:
            return []

    def _fresh(self, file: BinaryIO) -> list[bytes]:
        if self._read and self._first_of(file) == self.first:
            file.seek(self._read)
            content = file.read()
            lines = _parsed(content, self.where)[1]
        else:
            # Opened for the first time, or compacted since: use the lines' numbers, not their positions.
            file.seek(0)
            content = file.read()
            self.first, lines = _parsed(content, self.where)
            self._read, self._seen = 0, max(self._seen, self.first)
            lines = lines[self._seen - self.first :]
        self._read += content.rfind(b"\n") + 1
        self._seen += len(lines)
        return lines

    def append(self, lines: Sequence[bytes]) -> bool:
        make_folders([self._path.parent])
        with self._locked() as file:
            if self._first_of(file) != self.first:
                return False
            file.seek(self._read)
            if b"\n" in file.read():
                return False
            # A torn line of a crashed run would spoil the next one.
            file.truncate(self._read)
            file.write(b"".join(line + b"\n" for line in lines))
            file.flush()
            os.fsync(file.fileno())
            self._read = file.tell()
        self._seen += len(lines)
        if not self._named:
            # The process that created the file may have been killed before it synced the name.
            sync(self._path.parent)
            self._named = True
        return True

    def compact(self, first: int, passed: int, lines: Sequence[bytes]) -> None:
        """Replace the file by one without the oldest lines; readers notice by its first line."""
        if first - self.first < self._batch:
            return
        with self._locked() as file:
            file.seek(0)
            # Others may have appended since: what counts is in the file.
            start, there = _parsed(file.read(), self.where)
            if start < first <= start + len(there):
                self._replace(_content(first, there[first - start :]))

    def forget(self, passed: int) -> None:
        pass

    def _replace(self, content: bytes) -> None:
        scratch = self._path.with_name(f".{self._path.name}.{uuid.uuid4().hex}")
        try:
            with scratch.open("wb") as made:
                made.write(content)
                made.flush()
                os.fsync(made.fileno())
            os.replace(scratch, self._path)
        finally:
            scratch.unlink(missing_ok=True)
        sync(self._path.parent)

    @contextmanager
    def _locked(self) -> Iterator[BinaryIO]:
        """Hold the file alone; one that was replaced while this process waited is no longer the journal."""
        while True:
            with self._path.open("a+b") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                try:
                    current = os.path.samestat(os.fstat(file.fileno()), self._path.stat())
                except FileNotFoundError:
                    continue
                if current:
                    yield file
                    return

    def _first_of(self, file: BinaryIO) -> int:
        file.seek(0)
        head = file.read(len(_FIRST))
        return _number(file.readline().rstrip(b"\n"), self.where) if head == _FIRST else 0


class _PartJournal:
    """Parts and bases in a store; the next part is asked for by its number, because listing is expensive.

    Invariant: a part is removed only after a base contains its lines and every live reader has passed it. So a reader
    lists the folder once, when it starts.
    """

    def __init__(self, folder: Folder, batch: int) -> None:
        self._folder, self.where, self._batch = folder, folder.url, batch
        self.first = self._seen = self._parts = self._base = 0
        # Where parts end: (number of the next part, number of its first line).
        self._ends: list[tuple[int, int]] = []
        self._stale: list[str] = []
        self._opened = False

    @property
    def loose(self) -> int:
        return self._parts - self._base

    def fresh(self) -> list[bytes]:
        lines = [] if self._opened else self._open()
        while (part := self._folder.read(_part_name(self._parts))) is not None:
            lines += self._take(part)
        return lines

    def append(self, lines: Sequence[bytes]) -> bool:
        if not self._opened:
            if self._folder.names():
                return False
            self._opened = True
        content = _content(0, lines)
        try:
            self._folder.write(_part_name(self._parts), content, once=True)
        except FileExistsError:
            return False
        self._take(content)
        return True

    def compact(self, first: int, passed: int, lines: Sequence[bytes]) -> None:
        """Write a base with the parts that every reader has passed, then remove these parts."""
        part, end = max((one for one in self._ends if one[1] <= passed), default=(0, 0))
        if part - self._base < self._batch or first > end:
            return
        self._folder.write(_base_name(part), _content(first, lines[: end - first]))
        stale = [*self._stale, *(_part_name(one) for one in range(self._base, part))]
        self.first, self._base, self._stale = first, part, [*stale, _base_name(part)]
        self.forget(end)
        for name in stale:
            self._folder.remove(name)
            self._stale.remove(name)

    def forget(self, passed: int) -> None:
        self._ends = [one for one in self._ends if one[1] > passed]

    def _open(self) -> list[bytes]:
        for _ in range(_TRIES):
            names = self._folder.names()
            if (lines := self._opened_at(names)) is not None:
                self._opened = True
                return lines
        message = f"{self.where} changes faster than it can be read"
        raise CheckpointDamaged(message, hint="try again", transient=True)

    def _opened_at(self, names: Sequence[str]) -> list[bytes] | None:
        """Read what was listed; None if a compaction came in between."""
        bases = sorted(int(match[1]) for name in names if (match := _BASE.fullmatch(name)))
        parts = sorted(int(match[1]) for name in names if (match := _PART.fullmatch(name)))
        self._base = self._parts = bases[-1] if bases else 0
        lines: list[bytes] = []
        self.first, self._ends = 0, []
        if bases:
            content = self._folder.read(_base_name(self._base))
            if content is None:
                return None
            self.first, lines = self._complete(content, _base_name(self._base))
        self._seen = self.first + len(lines)
        for part in (one for one in parts if one >= self._base):
            if part != self._parts:
                message = f"{self.where}/{_part_name(self._parts)} is missing, and {_part_name(part)} is there"
                raise CheckpointDamaged(message, hint=LOST)
            content = self._folder.read(_part_name(part))
            if content is None:
                return None
            lines += self._take(content)
        self._stale = [_base_name(one) for one in bases] + [_part_name(one) for one in parts if one < self._base]
        return lines

    def _take(self, part: bytes) -> list[bytes]:
        lines = self._complete(part, _part_name(self._parts))[1]
        self._parts += 1
        self._seen += len(lines)
        self._ends.append((self._parts, self._seen))
        return lines

    def _complete(self, content: bytes, name: str) -> tuple[int, list[bytes]]:
        """Return the lines of an object, which a store contains as a whole: a torn line is damage here."""
        if content and not content.endswith(b"\n"):
            message = f"{self.where}/{name} is cut off: its last line has no end"
            raise CheckpointDamaged(message, hint=LOST)
        return _parsed(content, f"{self.where}/{name}")


def _part_name(part: int) -> str:
    return f"{part:09d}.jsonl"


def _base_name(part: int) -> str:
    return f"base-{part:09d}.jsonl"
