"""One segment: a file of batches, with its offset and time index."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from penstock.kafka.batches import HEADER_SIZE, MAGIC, SHORTEST, BatchHeader, header_at
from penstock.log.errors import ErrorCode, LogError
from penstock.log.storage.segments.files import FilePool, Handle
from penstock.log.storage.segments.index import (
    INTERVAL,
    TIME_SIZE,
    Entry,
    OffsetIndex,
    last_time,
    time_entries,
    time_entry,
)

MAX_SPAN = 2**31 - 1  # offsets of an index are relative and 32 bits wide
CHUNK = 1 << 20


class Slice(NamedTuple):
    """Bytes of a file that a fetch sends unchanged; `end` is the end offset of the segment."""

    handle: Handle
    position: int
    size: int
    end: int


class Damage(NamedTuple):
    """Corrupt bytes: offsets from `first` up to `following` are not served, those after them are."""

    path: Path
    position: int
    size: int
    first: int
    following: int

    @property
    def end(self) -> int:
        """The position of the next complete batch."""
        return self.position + self.size

    def __str__(self) -> str:
        what = f"{self.path} is damaged at byte {self.position} ({self.size} bytes)"
        return f"{what}: offsets {self.first} to {self.following - 1}" if self.following > self.first else what


class ChunkedReader:
    """Reads a file in large chunks."""

    __slots__ = ("_base", "_block", "_chunk", "_handle")

    def __init__(self, handle: Handle, chunk: int = CHUNK) -> None:
        self._handle = handle
        self._chunk = chunk
        self._block, self._base = memoryview(b""), 0

    def view(self, position: int, size: int) -> memoryview:
        """Return bytes; fewer at the end of the file."""
        at = position - self._base
        if at < 0 or at + size > len(self._block):
            self._block = memoryview(self._handle.read(position, max(size, self._chunk)))
            self._base, at = position, 0
        return self._block[at : at + size]


class Segment:
    """Batches from offset `base` to `end`; only the last segment of a partition grows.

    `damaged` lists the bytes known to be corrupt, `unchecked` is the size of the prefix that was not scrubbed yet.
    Once it is `deleted` it opens no file: another segment may have its names.
    """

    __slots__ = (
        "_handles",
        "_index",
        "_indexed_at",
        "_time_indexed",
        "base",
        "closed",
        "created",
        "damaged",
        "deleted",
        "end",
        "largest_timestamp",
        "path",
        "size",
        "unchecked",
    )

    def __init__(self, path: Path, handles: FilePool) -> None:
        self.path = path
        self.base = self.end = int(path.stem)
        self.size = self.created = 0
        with suppress(FileNotFoundError):
            found = path.stat()
            self.size, self.created = found.st_size, found.st_mtime_ns // 1_000_000
        self.largest_timestamp = -1
        self.closed = self.deleted = False
        self.unchecked = 0
        self.damaged: tuple[Damage, ...] = ()
        self._handles = handles
        self._index: OffsetIndex | None = None
        self._indexed_at = self.size
        self._time_indexed = -1

    @property
    def handle(self) -> Handle:
        """The open file."""
        self._check_exists()
        return self._handles.get(self.path)

    def create(self) -> None:
        """Create its file, before anything relies on it."""
        self._create(self.path)

    def _create(self, path: Path) -> Handle:
        self._check_exists()
        return self._handles.create(path)

    def _check_exists(self) -> None:
        if self.deleted:
            raise LogError(ErrorCode.unknown_topic_or_partition, f"{self.path} was deleted")

    @property
    def index_path(self) -> Path:
        """The path of the offset index."""
        return self.path.with_suffix(".index")

    @property
    def time_path(self) -> Path:
        """The path of the time index."""
        return self.path.with_suffix(".timeindex")

    @property
    def aborted_path(self) -> Path:
        """The path of the transaction index."""
        return self.path.with_suffix(".txnindex")

    @property
    def index(self) -> OffsetIndex:
        """The offset index, loaded on first use, and rebuilt if it is missing or invalid."""
        if self._index is None:
            self._index = OffsetIndex(self.index_path.read_bytes() if self.index_path.exists() else b"")
            if not self._index_fits(self._index):
                return self.reindex()
            self._handles.index_loaded(self)
        return self._index

    def _index_fits(self, index: OffsetIndex) -> bool:
        enough = len(index) or self.size <= INTERVAL * 2
        return bool(enough) and index.fits(self.size) and self._entry_matches(index.last())

    def _entry_matches(self, entry: Entry) -> bool:
        # An index file has no checksum, and a wrong entry would lead consumers into the middle of a batch.
        if not entry.position:
            return True
        head = self.handle.read(entry.position, HEADER_SIZE)
        return len(head) == HEADER_SIZE and header_at(head).base_offset == self.base + entry.offset

    @property
    def index_bytes(self) -> int:
        """How much memory its index takes."""
        return 0 if self._index is None else 8 * len(self._index)

    def drop_index(self) -> None:
        """Drop the index, which can be read again."""
        self._index = None

    def append(self, data: memoryview, batches: list[tuple[int, BatchHeader]], offset: int) -> None:
        """Append batches that have their offsets; on a full disk none of them is kept."""
        position, handle = self.size, self.handle
        try:
            handle.write(data, position)
        except OSError:
            with suppress(OSError):
                handle.truncate(position)
            raise
        self.size = position + len(data)
        for at, batch in batches:
            if position + at - self._indexed_at >= INTERVAL:
                self._add_entries(offset - self.base, position + at)
            offset += batch.last_offset_delta + 1
            if batch.max_timestamp > self.largest_timestamp:
                self.largest_timestamp = batch.max_timestamp
        self.end = offset

    def _add_entries(self, relative: int, position: int) -> None:
        # An index with fewer entries is slower, not wrong: failing to write them does not fail the append.
        index = self.index
        with suppress(OSError):
            if position > index.last().position:
                self._create(self.index_path).write(OffsetIndex.entry(relative, position), len(index) * 8)
                index.add(relative, position)
                self._indexed_at = position
            if self.largest_timestamp > self._time_indexed:
                self._add_time(relative)

    def _add_time(self, relative: int) -> None:
        handle = self._create(self.time_path)
        handle.write(time_entry(self.largest_timestamp, relative), handle.size // TIME_SIZE * TIME_SIZE)
        self._time_indexed = self.largest_timestamp

    def close(self) -> None:
        """Close the segment, and store its largest timestamp in the time index."""
        self.closed = True
        with suppress(OSError):
            self._add_time(self.end - self.base)

    def closed_at(self, end: int) -> None:
        """Open a closed segment that ends at an offset: restore its largest timestamp."""
        self.closed, self.end = True, end
        known = last_time(self.time_path)
        if known is not None and known[1] == end - self.base:
            self.largest_timestamp = self._time_indexed = known[0]
        else:
            self.reindex()

    def check(self, offset: int) -> None:
        """Refuse an offset whose record is damaged."""
        for damage in self.damaged:
            if damage.first <= offset < damage.following:
                raise LogError(ErrorCode.corrupt_message, f"{self.path.name} is damaged at byte {damage.position}")

    def position_of(self, offset: int) -> int:
        """Return the position of the batch that contains an offset, or of the first one after it."""
        start = self.index.before(offset - self.base)
        if not self._entry_matches(start):
            start = self.reindex().before(offset - self.base)
        return next((at for at, batch in self.headers(start.position) if batch.last_offset >= offset), self.size)

    def slice(self, start: int, max_bytes: int, limit: int, at_least_one: bool) -> Slice | None:
        """Return complete batches from a position: at most `max_bytes`, not beyond `limit`, or the first one."""
        if self.damaged:
            limit = min([limit, *(damage.position for damage in self.damaged if damage.position >= start)])
        end = min(start + max_bytes, limit)
        if end < limit:
            end = self._boundary_before(end)
            if end <= start:
                end = self._last_boundary(start, min(start + max_bytes, limit))
        if end <= start and at_least_one and start < limit:
            end = start + header_at(self.handle.read(start, HEADER_SIZE)).size
        return Slice(self.handle, start, end - start, self.end) if end > start else None

    def _boundary_before(self, position: int) -> int:
        entry = self.index.before_position(position)
        return entry.position if self._entry_matches(entry) else self.reindex().before_position(position).position

    def _last_boundary(self, start: int, end: int) -> int:
        # Between two index entries there are a few KB: few small batches, or one large one.
        position = start
        for at, batch in self.headers(start, end):
            if at + batch.size > end:
                break
            position = at + batch.size
        return position

    def headers(self, start: int = 0, end: int | None = None) -> Iterator[tuple[int, BatchHeader]]:
        """Yield position and header of the batches, reading headers only where batches are long."""
        position, end = start, self.size if end is None else end
        window = ChunkedReader(self.handle, INTERVAL)
        while position + HEADER_SIZE <= end:
            if self.damaged and (after := self._skip_damage(position)) != position:
                position = after
                continue
            head = window.view(position, HEADER_SIZE)
            batch = header_at(head) if len(head) == HEADER_SIZE else None
            if batch is None or batch.magic != MAGIC or batch.size < SHORTEST:
                return
            yield position, batch
            position += batch.size

    def _skip_damage(self, position: int) -> int:
        return next((each.end for each in self.damaged if each.position <= position < each.end), position)

    def batches(self, start: int = 0) -> Iterator[tuple[int, BatchHeader, memoryview]]:
        """Yield position, header and bytes of each complete batch, without those known to be damaged."""
        window = ChunkedReader(self.handle)
        for position, batch in self.headers(start):
            if position + batch.size > self.size:
                return
            yield position, batch, window.view(position, batch.size)

    def truncate(self, position: int) -> None:
        """Truncate the segment to `position` bytes."""
        self.handle.truncate(position)
        self.size = position
        self.reindex()

    def reindex(self) -> OffsetIndex:
        """Rebuild both indexes from the batch headers."""
        index, times = OffsetIndex(), bytearray()
        last, largest, indexed_time, relative = 0, -1, -1, -1
        for position, batch in self.headers():
            if not relative < batch.base_offset - self.base <= MAX_SPAN:
                break
            relative = batch.base_offset - self.base
            if position - last >= INTERVAL:
                index.add(relative, position)
                last = position
                if largest > indexed_time:
                    times += time_entry(largest, relative)
                    indexed_time = largest
            largest = max(largest, batch.max_timestamp)
        self.largest_timestamp, self._indexed_at, self._time_indexed = largest, last, indexed_time
        if self.closed:
            times += time_entry(largest, self.end - self.base)
        with suppress(OSError):
            self._create(self.index_path).replace(index.encoded())
            self._create(self.time_path).replace(bytes(times))
        self._index = index
        self._handles.index_loaded(self)
        return index

    def position_of_time(self, timestamp: int, offset: int) -> int:
        """Return where a search for records from an offset on at or after a time starts: no earlier batch has one."""
        entries = time_entries(self.time_path)
        if entries is None:
            self.reindex()
            entries = time_entries(self.time_path) or []
        start = max((relative for time, relative in entries if time < timestamp), default=0)
        return self.position_of(max(self.base + start, offset))

    def files(self) -> list[Path]:
        """Return its files, in the order of deletion: those that can be rebuilt before the one with the records."""
        return [self.index_path, self.time_path, self.path, self.aborted_path]

    def delete(self) -> None:
        """Remove its files."""
        for path in self.discard():
            path.unlink(missing_ok=True)

    def discard(self) -> list[Path]:
        """Open its files never again, for they are deleted; return them."""
        self.deleted = True
        return self.release()

    def release(self) -> list[Path]:
        """Close its files and drop its index before they are deleted or replaced; return the files."""
        self._handles.index_dropped(self)
        for path in self.files():
            self._handles.evict(path)
        return self.files()
