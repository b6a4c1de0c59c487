"""One segment: a file of batches, with its two indexes beside it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from penstock.log.errors import ErrorCode, LogError
from penstock.log.storage.batches import HEADER_SIZE, SHORTEST, Batch, header_at
from penstock.log.storage.handles import Handle, Handles
from penstock.log.storage.index import INTERVAL, OffsetIndex, time_entries, time_entry

_CHUNK = 1 << 20


class Slice(NamedTuple):
    """Bytes of a file that a fetch sends as they are."""

    handle: Handle
    position: int
    size: int


class Found(NamedTuple):
    """Where a batch is."""

    position: int
    size: int


class Segment:
    """A run of batches from `base` to `end`; only the last segment of a partition grows."""

    __slots__ = (
        "_handles",
        "_index",
        "_indexed_at",
        "_time_indexed",
        "base",
        "created",
        "damaged",
        "end",
        "largest_timestamp",
        "path",
        "size",
    )

    def __init__(self, path: Path, handles: Handles, end: int | None = None, largest_timestamp: int = -1) -> None:
        self.path = path
        self.base = int(path.stem)
        self.end = self.base if end is None else end
        self.size = path.stat().st_size if path.exists() else 0
        self.largest_timestamp = largest_timestamp
        self.created = int(path.stat().st_mtime * 1000) if path.exists() else 0
        self.damaged: tuple[tuple[int, int], ...] = ()  # (position, size) of batches that do not fit their checksum
        self._handles = handles
        self._index: OffsetIndex | None = None
        self._indexed_at = self.size
        self._time_indexed = largest_timestamp

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
    def index(self) -> OffsetIndex:
        """The offset index, read when first needed and built anew if it is missing or does not fit."""
        if self._index is None:
            self._index = OffsetIndex(self.index_path.read_bytes() if self.index_path.exists() else b"")
            if not self._index.fits(self.size) or (self.size > INTERVAL * 2 and not len(self._index)):
                self.reindex()
            self._handles.indexed(self)
        return self._index

    def let_go(self) -> None:
        """Drop what can be read again."""
        self._index = None

    def append(self, data: memoryview, batches: list[tuple[int, Batch]], offset: int) -> None:
        """Write placed batches at the end; on a full disk nothing of them stays."""
        position, handle = self.size, self.handle
        try:
            handle.write(data, position)
            self._note(batches, position, offset)
        except OSError:
            handle.cut(position)
            raise
        self.size = position + len(data)

    def _note(self, batches: list[tuple[int, Batch]], position: int, offset: int) -> None:
        for at, batch in batches:
            start = position + at
            if start - self._indexed_at >= INTERVAL:
                self._add_entries(offset - self.base, start)
            offset += batch.last_offset_delta + 1
            if batch.max_timestamp > self.largest_timestamp:
                self.largest_timestamp = batch.max_timestamp
        self.end = offset

    def _add_entries(self, relative: int, position: int) -> None:
        count = len(self.index)
        entry = self.index.add(relative, position)
        self._handles.get(self.index_path).write(entry, count * 8)
        self._indexed_at = position
        if self.largest_timestamp > self._time_indexed:
            times = self._handles.get(self.time_path)
            times.write(time_entry(self.largest_timestamp, relative), self.time_path.stat().st_size)
            self._time_indexed = self.largest_timestamp

    def position_of(self, offset: int) -> int:
        """Return where the batch begins that holds an offset, or the first one behind it."""
        position = self.index.position_before(offset - self.base)
        while position < self.size:
            block = self.handle.read(position, INTERVAL)
            at = 0
            while at + HEADER_SIZE <= len(block):
                batch = header_at(block, at)
                if batch.last_offset >= offset:
                    return position + at
                at += max(batch.size, SHORTEST)
            position += at or INTERVAL
        return self.size

    def slice(self, start: int, max_bytes: int, limit: int, at_least_one: bool) -> Slice | None:
        """Return whole batches from a position: at most `max_bytes`, not beyond `limit`, or the first one."""
        if self.damaged:
            limit = self._up_to_damage(start, limit)
        end = min(start + max_bytes, limit)
        if end < limit:
            end = self.index.boundary_before(end)
            if end <= start:
                end = self._end_of_few(start, min(start + max_bytes, limit))
        if end <= start and at_least_one and start < limit:
            end = start + header_at(self.handle.read(start, HEADER_SIZE)).size
        return Slice(self.handle, start, end - start) if end > start else None

    def _up_to_damage(self, start: int, limit: int) -> int:
        for position, size in self.damaged:
            if position <= start < position + size:
                message = f"{self.path.name} is damaged at byte {position}"
                raise LogError(ErrorCode.corrupt_message, message)
            if start < position:
                return min(limit, position)
        return limit

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
        block, base = b"", position
        while position + HEADER_SIZE <= end:
            if not base <= position <= base + len(block) - HEADER_SIZE:
                block, base = self.handle.read(position, INTERVAL), position
                if len(block) < HEADER_SIZE:
                    return
            batch = header_at(block, position - base)
            if batch.size < SHORTEST:
                return
            yield position, batch
            position += batch.size

    def batches(self, start: int = 0) -> Iterator[tuple[int, Batch, memoryview]]:
        """Yield position, header and bytes of each whole batch; stops at the first that is not."""
        position = start
        while position < self.size:
            block = memoryview(self.handle.read(position, _CHUNK))
            at = 0
            while at + HEADER_SIZE <= len(block):
                batch = header_at(block, at)
                if batch.size < SHORTEST or position + at + batch.size > self.size:
                    return
                if at + batch.size > len(block):
                    break
                yield position + at, batch, block[at : at + batch.size]
                at += batch.size
            if at == 0:
                if len(block) < HEADER_SIZE:
                    return
                block = memoryview(self.handle.read(position, batch.size))
                yield position, batch, block
                at = batch.size
            position += at

    def cut(self, position: int) -> None:
        """Keep the first `position` bytes only."""
        self.handle.cut(position)
        self.size = position
        self.reindex()

    def reindex(self) -> None:
        """Build both indexes from the batches' headers."""
        self._index = OffsetIndex()
        times, last, largest, indexed_time = bytearray(), 0, -1, -1
        for position, batch in self.headers():
            if position - last >= INTERVAL:
                relative = batch.base_offset - self.base
                self._index.add(relative, position)
                last = position
                if largest > indexed_time:
                    times += time_entry(largest, relative)
                    indexed_time = largest
            largest = max(largest, batch.max_timestamp)
        self._indexed_at, self._time_indexed = last, indexed_time
        for path, data in ((self.index_path, self._index.encoded()), (self.time_path, bytes(times))):
            handle = self._handles.get(path)
            handle.cut(0)
            handle.write(data, 0)

    def find_time(self, timestamp: int) -> Found | None:
        """Return the first batch with a record at or after a time."""
        if self.largest_timestamp < timestamp:
            return None
        start = max((offset for time, offset in time_entries(self.time_path) if time < timestamp), default=0)
        for position, batch in self.headers(self.position_of(self.base + start)):
            if batch.max_timestamp >= timestamp:
                return Found(position, batch.size)
        return None

    def last_indexed_time(self) -> int:
        """Return the largest timestamp that the time index knows."""
        return max((time for time, _ in time_entries(self.time_path)), default=-1)

    def delete(self) -> None:
        """Remove its files."""
        for path in (self.path, self.index_path, self.time_path, self.path.with_suffix(".txnindex")):
            self._handles.forget(path)
            path.unlink(missing_ok=True)
