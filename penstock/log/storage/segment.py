"""One segment: a file of batches, with its two indexes beside it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from penstock.log.errors import ErrorCode, LogError
from penstock.log.storage.batches import HEADER_SIZE, MAGIC, SHORTEST, Batch, header_at
from penstock.log.storage.handles import Handle, Handles
from penstock.log.storage.index import INTERVAL, TIME_SIZE, Entry, OffsetIndex, last_time, time_entries, time_entry

MAX_SPAN = 2**31 - 1  # offsets of an index are relative and 32 bits wide
CHUNK = 1 << 20


class Slice(NamedTuple):
    """Bytes of a file that a fetch sends as they are; `end` is an offset behind them, that of the segment."""

    handle: Handle
    position: int
    size: int
    end: int


class Damage(NamedTuple):
    """Bytes that are not what was written: offsets `first` to `following` are not served, those behind them are."""

    path: Path
    position: int
    size: int
    first: int
    following: int

    @property
    def end(self) -> int:
        """Where whole batches go on."""
        return self.position + self.size

    def __str__(self) -> str:
        what = f"{self.path} is damaged at byte {self.position} ({self.size} bytes)"
        return f"{what}: offsets {self.first} to {self.following - 1}" if self.following > self.first else what


class Window:
    """A file read in large pieces."""

    __slots__ = ("_base", "_block", "_chunk", "_handle")

    def __init__(self, handle: Handle, chunk: int = CHUNK) -> None:
        self._handle = handle
        self._chunk = chunk
        self._block, self._base = memoryview(b""), 0

    def view(self, position: int, size: int) -> memoryview:
        """Return bytes; fewer where the file ends."""
        at = position - self._base
        if at < 0 or at + size > len(self._block):
            self._block = memoryview(self._handle.read(position, max(size, self._chunk)))
            self._base, at = position, 0
        return self._block[at : at + size]


class Segment:
    """A run of batches from `base` to `end`; only the last segment of a partition grows.

    `damaged` tells which bytes are known to be wrong, `unchecked` how many at the front nobody has looked at yet.
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
        "end",
        "largest_timestamp",
        "path",
        "size",
        "unchecked",
    )

    def __init__(self, path: Path, handles: Handles) -> None:
        self.path = path
        self.base = self.end = int(path.stem)
        self.size = self.created = 0
        with suppress(FileNotFoundError):
            found = path.stat()
            self.size, self.created = found.st_size, found.st_mtime_ns // 1_000_000
        self.largest_timestamp = -1
        self.closed = False
        self.unchecked = 0
        self.damaged: tuple[Damage, ...] = ()
        self._handles = handles
        self._index: OffsetIndex | None = None
        self._indexed_at = self.size
        self._time_indexed = -1

    @property
    def handle(self) -> Handle:
        """The open file."""
        return self._handles.get(self.path)

    @property
    def index_path(self) -> Path:
        """Where offsets are."""
        return self.path.with_suffix(".index")

    @property
    def time_path(self) -> Path:
        """Which offset a time has."""
        return self.path.with_suffix(".timeindex")

    @property
    def aborted_path(self) -> Path:
        """Which transactions were aborted."""
        return self.path.with_suffix(".txnindex")

    @property
    def index(self) -> OffsetIndex:
        """The offset index, read when first needed and built anew if it is missing or does not fit."""
        if self._index is None:
            self._index = OffsetIndex(self.index_path.read_bytes() if self.index_path.exists() else b"")
            if not self._index_fits(self._index):
                return self.reindex()
            self._handles.indexed(self)
        return self._index

    def _index_fits(self, index: OffsetIndex) -> bool:
        enough = len(index) or self.size <= INTERVAL * 2
        return bool(enough) and index.fits(self.size) and self._is_right(index.last())

    def _is_right(self, entry: Entry) -> bool:
        # Nothing guards an index file, and one wrong entry would send readers into the middle of a batch.
        if not entry.position:
            return True
        head = self.handle.read(entry.position, HEADER_SIZE)
        return len(head) == HEADER_SIZE and header_at(head).base_offset == self.base + entry.offset

    @property
    def index_bytes(self) -> int:
        """How much memory its index takes."""
        return 0 if self._index is None else 8 * len(self._index)

    def let_go(self) -> None:
        """Drop what can be read again."""
        self._index = None

    def append(self, data: memoryview, batches: list[tuple[int, Batch]], offset: int) -> None:
        """Write placed batches at the end; on a full disk nothing of them stays."""
        position, handle = self.size, self.handle
        try:
            handle.write(data, position)
        except OSError:
            with suppress(OSError):
                handle.cut(position)
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
        # An index with fewer entries is slower and not wrong: a disk that refuses them does not refuse the records.
        index = self.index
        with suppress(OSError):
            if position > index.last().position:
                self._handles.get(self.index_path).write(OffsetIndex.entry(relative, position), len(index) * 8)
                index.add(relative, position)
                self._indexed_at = position
            if self.largest_timestamp > self._time_indexed:
                self._add_time(relative)

    def _add_time(self, relative: int) -> None:
        handle = self._handles.get(self.time_path)
        handle.write(time_entry(self.largest_timestamp, relative), handle.size // TIME_SIZE * TIME_SIZE)
        self._time_indexed = self.largest_timestamp

    def close(self) -> None:
        """It will not grow any more: note its largest timestamp, so that nobody has to look for it."""
        self.closed = True
        with suppress(OSError):
            self._add_time(self.end - self.base)

    def closed_at(self, end: int) -> None:
        """It ends where the next one begins; know its largest timestamp again."""
        self.closed, self.end = True, end
        known = last_time(self.time_path)
        if known is not None and known[1] == end - self.base:
            self.largest_timestamp = self._time_indexed = known[0]
        else:
            self.reindex()

    def check(self, offset: int) -> None:
        """Refuse an offset whose record is damaged or lost."""
        for damage in self.damaged:
            if damage.first <= offset < damage.following:
                raise LogError(ErrorCode.corrupt_message, f"{self.path.name} is damaged at byte {damage.position}")

    def position_of(self, offset: int) -> int:
        """Return where the batch begins that holds an offset, or the first one behind it."""
        start = self.index.before(offset - self.base)
        if not self._is_right(start):
            start = self.reindex().before(offset - self.base)
        return next((at for at, batch in self.headers(start.position) if batch.last_offset >= offset), self.size)

    def slice(self, start: int, max_bytes: int, limit: int, at_least_one: bool) -> Slice | None:
        """Return whole batches from a position: at most `max_bytes`, not beyond `limit`, or the first one."""
        if self.damaged:
            limit = min([limit, *(damage.position for damage in self.damaged if damage.position >= start)])
        end = min(start + max_bytes, limit)
        if end < limit:
            end = self._boundary_before(end)
            if end <= start:
                end = self._end_of_few(start, min(start + max_bytes, limit))
        if end <= start and at_least_one and start < limit:
            end = start + header_at(self.handle.read(start, HEADER_SIZE)).size
        return Slice(self.handle, start, end - start, self.end) if end > start else None

    def _boundary_before(self, position: int) -> int:
        entry = self.index.before_position(position)
        return entry.position if self._is_right(entry) else self.reindex().before_position(position).position

    def _end_of_few(self, start: int, end: int) -> int:
        # Between two index entries there are a few KB: few small batches, or one that is long.
        position = start
        for at, batch in self.headers(start, end):
            if at + batch.size > end:
                break
            position = at + batch.size
        return position

    def headers(self, start: int = 0, end: int | None = None) -> Iterator[tuple[int, Batch]]:
        """Yield position and header of the batches, reading headers only where batches are long."""
        position, end = start, self.size if end is None else end
        window = Window(self.handle, INTERVAL)
        while position + HEADER_SIZE <= end:
            if self.damaged and (behind := self._behind_damage(position)) != position:
                position = behind
                continue
            head = window.view(position, HEADER_SIZE)
            batch = header_at(head) if len(head) == HEADER_SIZE else None
            if batch is None or batch.magic != MAGIC or batch.size < SHORTEST:
                return
            yield position, batch
            position += batch.size

    def _behind_damage(self, position: int) -> int:
        return next((each.end for each in self.damaged if each.position <= position < each.end), position)

    def batches(self, start: int = 0) -> Iterator[tuple[int, Batch, memoryview]]:
        """Yield position, header and bytes of each whole batch; those known to be damaged are left out."""
        window = Window(self.handle)
        for position, batch in self.headers(start):
            if position + batch.size > self.size:
                return
            yield position, batch, window.view(position, batch.size)

    def cut(self, position: int) -> None:
        """Keep the first `position` bytes only."""
        self.handle.cut(position)
        self.size = position
        self.reindex()

    def reindex(self) -> OffsetIndex:
        """Build both indexes from the batches' headers."""
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
            self._handles.get(self.index_path).replace(index.encoded())
            self._handles.get(self.time_path).replace(bytes(times))
        self._index = index
        self._handles.indexed(self)
        return index

    def find_time(self, timestamp: int) -> Iterator[memoryview]:
        """Yield the batches that may have a record at or after a time, the first such one first."""
        if self.largest_timestamp < timestamp:
            return
        entries = time_entries(self.time_path)
        if entries is None:
            self.reindex()
            entries = time_entries(self.time_path) or []
        start = max((offset for time, offset in entries if time < timestamp), default=0)
        handle = self.handle
        for position, batch in self.headers(self.position_of(self.base + start)):
            if batch.max_timestamp >= timestamp:
                yield memoryview(handle.read(position, batch.size))

    def files(self) -> list[Path]:
        """Return its files: those that can be built anew stand before the one with the records."""
        return [self.index_path, self.time_path, self.path, self.aborted_path]

    def delete(self) -> None:
        """Remove its files."""
        for path in self.forget():
            path.unlink(missing_ok=True)

    def forget(self) -> list[Path]:
        """Close its files and drop its index, for they are deleted or replaced; return which files they are."""
        self._handles.unindexed(self)
        for path in self.files():
            self._handles.forget(path)
        return self.files()
