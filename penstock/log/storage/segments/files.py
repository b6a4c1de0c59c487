"""Files: a bounded pool of open descriptors for thousands of partitions, and atomic writes."""

from __future__ import annotations

import os
from collections import OrderedDict
from pathlib import Path
from typing import Protocol

_MOST_INDEX_BYTES = 64 << 20  # of all indexes in memory; one of a segment of 256 MiB takes 512 KiB


def sync_folder(folder: Path) -> None:
    """Sync a folder: its list of files."""
    fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


class DirectoryEntry:
    """Whether the name of a file is synced; shared by all handles of the file."""

    __slots__ = ("synced",)

    def __init__(self) -> None:
        self.synced = False


class Handle:
    """An open file; closed with its last reference, so that a slow send survives its eviction from the pool."""

    __slots__ = ("__weakref__", "_name", "fd", "path")

    def __init__(self, path: Path, flags: int = os.O_RDWR, name: DirectoryEntry | None = None) -> None:
        self.fd = -1
        self.path = path
        self._name = name or DirectoryEntry()
        self.fd = os.open(path, flags | os.O_CLOEXEC, 0o644)

    def __del__(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)

    def read(self, position: int, size: int) -> bytes:
        """Return up to `size` bytes from a position."""
        return os.pread(self.fd, size, position)

    def write(self, data: bytes | bytearray | memoryview, position: int) -> None:
        """Write all of it; the caller truncates the file if the disk is full."""
        view = memoryview(data)
        while view:
            written = os.pwrite(self.fd, view, position)
            view, position = view[written:], position + written

    def truncate(self, size: int) -> None:
        """Truncate the file."""
        os.ftruncate(self.fd, size)

    def replace(self, data: bytes) -> None:
        """Replace the content."""
        self.truncate(0)
        self.write(data, 0)

    @property
    def size(self) -> int:
        """The size in bytes."""
        return os.fstat(self.fd).st_size

    def sync(self) -> None:
        """Sync the data, and the name of the file if that was not done yet."""
        os.fdatasync(self.fd)
        if not self._name.synced:
            sync_folder(self.path.parent)
            sync_folder(self.path.parent.parent)
            self._name.synced = True


class IndexOwner(Protocol):
    """Something with an index in memory that can be dropped and read again."""

    @property
    def index_bytes(self) -> int:
        """How much memory it takes."""

    def drop_index(self) -> None:
        """Drop the index."""


class FilePool:
    """The most recently used files and indexes; beyond the limits the least recently used ones are evicted.

    Only `create` creates a file: one that was opened with its name could pass for a segment at the next start.
    """

    def __init__(self, limit: int = 512, indexes: int = 256, *, read_only: bool = False) -> None:
        self._limit = limit
        self._read_only = read_only
        self._indexes = indexes
        self._open: OrderedDict[Path, Handle] = OrderedDict()
        # The name of a file that an earlier process created may not be on disk yet: each is synced once.
        self._names: dict[Path, DirectoryEntry] = {}
        self._indexed: OrderedDict[IndexOwner, None] = OrderedDict()

    def get(self, path: Path) -> Handle:
        """Return the open file, opening it if it exists."""
        return self._get(path, os.O_RDONLY if self._read_only else os.O_RDWR)

    def create(self, path: Path) -> Handle:
        """Return the open file, opening or creating it; a read-only pool creates none."""
        return self.get(path) if self._read_only else self._get(path, os.O_RDWR | os.O_CREAT)

    def _get(self, path: Path, flags: int) -> Handle:
        handle = self._open.get(path)
        if handle is None:
            handle = self._open[path] = Handle(path, flags, self._names.setdefault(path, DirectoryEntry()))
            if len(self._open) > self._limit:
                self._open.popitem(last=False)
        else:
            self._open.move_to_end(path)
        return handle

    def index_loaded(self, owner: IndexOwner) -> None:
        """Register an index in memory; drop the oldest ones while they are too many or too large."""
        self._indexed[owner] = None
        self._indexed.move_to_end(owner)
        while len(self._indexed) > self._indexes or (len(self._indexed) > 1 and self.index_bytes > _MOST_INDEX_BYTES):
            self._indexed.popitem(last=False)[0].drop_index()

    def index_dropped(self, owner: IndexOwner) -> None:
        """Drop the index of a file that is deleted or replaced."""
        self._indexed.pop(owner, None)
        owner.drop_index()

    @property
    def indexes(self) -> int:
        """How many indexes are in memory."""
        return len(self._indexed)

    @property
    def index_bytes(self) -> int:
        """How much memory they take."""
        return sum(owner.index_bytes for owner in self._indexed)

    def evict(self, path: Path) -> None:
        """Remove a file that is deleted or replaced from the pool."""
        self._open.pop(path, None)
        self._names.pop(path, None)  # its sync state does not apply to the next file of that name

    @property
    def open(self) -> int:
        """How many files are open."""
        return len(self._open)

    def close(self) -> None:
        """Evict everything."""
        self._open.clear()
        self._indexed.clear()


def write_atomically(path: Path, data: bytes, *, sync: bool = True) -> None:
    """Replace a file atomically: readers see the old or the new content, also after a crash."""
    new = path.with_name(f"{path.name}.new")
    with open(new, "wb") as file:
        file.write(data)
        if sync:
            file.flush()
            os.fsync(file.fileno())
    os.replace(new, path)
    if sync:
        sync_folder(path.parent)
