"""Open files, as few as possible: thousands of partitions share a bounded number of descriptors."""

from __future__ import annotations

import os
from collections import OrderedDict
from pathlib import Path
from typing import Protocol

_MOST_INDEX_BYTES = 64 << 20  # of all indexes in memory; one of a segment of 256 MiB takes 512 KiB


def sync_folder(folder: Path) -> None:
    """Wait until the disk has the folder's list of files."""
    fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


class Name:
    """The name of a file, which all handles of that file share."""

    __slots__ = ("synced",)

    def __init__(self) -> None:
        self.synced = False


class Handle:
    """An open file; it is closed when nobody holds it any more, so that a slow send outlives its eviction."""

    __slots__ = ("__weakref__", "_name", "fd", "path")

    def __init__(self, path: Path, *, create: bool = True, name: Name | None = None) -> None:
        self.fd = -1
        self.path = path
        self._name = name or Name()
        self.fd = os.open(path, (os.O_RDWR | os.O_CREAT if create else os.O_RDONLY) | os.O_CLOEXEC, 0o644)

    def __del__(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)

    def read(self, position: int, size: int) -> bytes:
        """Return up to `size` bytes from a position."""
        return os.pread(self.fd, size, position)

    def write(self, data: bytes | bytearray | memoryview, position: int) -> None:
        """Write all of it; the caller cuts the file back if the disk fills up on the way."""
        view = memoryview(data)
        while view:
            written = os.pwrite(self.fd, view, position)
            view, position = view[written:], position + written

    def cut(self, size: int) -> None:
        """Forget what stands behind a position."""
        os.ftruncate(self.fd, size)

    def replace(self, data: bytes) -> None:
        """Hold nothing but this."""
        self.cut(0)
        self.write(data, 0)

    @property
    def size(self) -> int:
        """Bytes in it."""
        return os.fstat(self.fd).st_size

    def sync(self) -> None:
        """Wait until the disk has it, and its name too."""
        os.fdatasync(self.fd)
        if not self._name.synced:
            sync_folder(self.path.parent)
            sync_folder(self.path.parent.parent)
            self._name.synced = True


class Indexed(Protocol):
    """Something that keeps an index in memory and can read it again."""

    @property
    def index_bytes(self) -> int:
        """How much memory it takes."""

    def let_go(self) -> None:
        """Drop the index."""


class Handles:
    """The files used last; opening one more than `limit` lets go of the one used longest ago."""

    def __init__(self, limit: int = 512, indexes: int = 256, *, create: bool = True) -> None:
        self._limit = limit
        self._create = create
        self._indexes = indexes
        self._open: OrderedDict[Path, Handle] = OrderedDict()
        # A file that an earlier process created may have no name on disk yet: each is synced once by this one.
        self._names: dict[Path, Name] = {}
        self._indexed: OrderedDict[Indexed, None] = OrderedDict()

    def get(self, path: Path) -> Handle:
        """Return the open file, opening or creating it."""
        handle = self._open.get(path)
        if handle is None:
            handle = self._open[path] = Handle(path, create=self._create, name=self._names.setdefault(path, Name()))
            if len(self._open) > self._limit:
                self._open.popitem(last=False)
        else:
            self._open.move_to_end(path)
        return handle

    def indexed(self, owner: Indexed) -> None:
        """An index was read into memory: drop the oldest ones while they are too many or too large."""
        self._indexed[owner] = None
        self._indexed.move_to_end(owner)
        while len(self._indexed) > self._indexes or (len(self._indexed) > 1 and self.index_bytes > _MOST_INDEX_BYTES):
            self._indexed.popitem(last=False)[0].let_go()

    def unindexed(self, owner: Indexed) -> None:
        """Its file is deleted or replaced: nobody needs its index any more."""
        self._indexed.pop(owner, None)
        owner.let_go()

    @property
    def indexes(self) -> int:
        """How many indexes are in memory."""
        return len(self._indexed)

    @property
    def index_bytes(self) -> int:
        """How much memory they take."""
        return sum(owner.index_bytes for owner in self._indexed)

    def forget(self, path: Path) -> None:
        """Let go of a file that is deleted or replaced."""
        self._open.pop(path, None)
        self._names.pop(path, None)  # handles that outlive this do not speak for the next file of that name

    @property
    def open(self) -> int:
        """How many files are kept open."""
        return len(self._open)

    def close(self) -> None:
        """Let go of all."""
        self._open.clear()
        self._indexed.clear()
