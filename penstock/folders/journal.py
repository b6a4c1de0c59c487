"""Journals: lines that are only ever added to, in a folder anywhere."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from penstock.folders import Folder
from penstock.folders.durable import make_folders, sync


class Journal(Protocol):
    """Lines that never change place; what `append` has taken is durable."""

    where: str

    def fresh(self) -> list[bytes]:
        """Return the lines that were added since the last call."""

    def append(self, lines: Sequence[bytes]) -> bool:
        """Add lines; refused if there are some that `fresh` has not returned yet. Say whether they were taken."""


def journal(folder: Folder, name: str) -> Journal:
    """Open a journal: a file `NAME.jsonl` of this disk, or a folder `NAME` of numbered parts in a store."""
    return _FileJournal(folder.local / f"{name}.jsonl") if folder.local else _PartJournal(folder / name)


class _FileJournal:
    def __init__(self, path: Path) -> None:
        self._path, self.where = path, str(path)
        self._read = 0
        self._named = False

    def fresh(self) -> list[bytes]:
        try:
            if self._path.stat().st_size == self._read:
                return []
        except FileNotFoundError:
            return []
        with self._path.open("rb") as file:
            file.seek(self._read)
            data = file.read()
        # A torn last line is not yet there.
        whole = data[: data.rfind(b"\n") + 1]
        self._read += len(whole)
        return whole.splitlines()

    def append(self, lines: Sequence[bytes]) -> bool:
        make_folders([self._path.parent])
        with self._path.open("a+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(self._read)
            if b"\n" in file.read():
                return False
            # A torn line of a crashed run would spoil the next one.
            file.truncate(self._read)
            file.write(b"".join(line + b"\n" for line in lines))
            file.flush()
            os.fsync(file.fileno())
            self._read = file.tell()
        if not self._named:
            # Who made the file may have been killed before its name was on the disk.
            sync(self._path.parent)
            self._named = True
        return True


class _PartJournal:
    """One part for each `append`; the next one is asked for by its number, for listing a store is dear."""

    def __init__(self, folder: Folder) -> None:
        self._folder, self.where = folder, folder.url
        self._parts = 0

    def fresh(self) -> list[bytes]:
        lines: list[bytes] = []
        while (part := self._folder.read(self._next)) is not None:
            lines += part.splitlines()
            self._parts += 1
        return lines

    def append(self, lines: Sequence[bytes]) -> bool:
        try:
            self._folder.write(self._next, b"".join(line + b"\n" for line in lines), once=True)
        except FileExistsError:
            return False
        self._parts += 1
        return True

    @property
    def _next(self) -> str:
        return f"{self._parts:09d}.jsonl"
