"""Scanning a segment: verify every batch, and distinguish a torn tail from damage in the middle."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from penstock.kafka.batches import HEADER_SIZE, MAGIC, SHORTEST, BatchHeader, checksum_matches, header_at
from penstock.log.storage.segments.files import FilePool
from penstock.log.storage.segments.segment import CHUNK, MAX_SPAN, ChunkedReader, Damage, Segment

Whole = tuple[int, BatchHeader, memoryview]
_MAGIC_AT = 16


@dataclass(frozen=True)
class LogInvariants:
    """What must hold for offsets and leader epochs, which the checksum of a batch does not cover.

    Before `gaps_before` compaction may have left gaps; without `epochs` any epoch is valid.
    """

    gaps_before: int = 2**63 - 1
    epochs: tuple[tuple[int, int], ...] | None = None

    def allows(self, batch: BatchHeader, offset: int, *, gap: bool) -> bool:
        """Return whether a batch is valid where `offset` is expected; after damage there is always a gap."""
        base = batch.base_offset
        if base < offset or (base > offset and not gap and offset >= self.gaps_before):
            return False
        return self.epochs is None or batch.leader_epoch == self._epoch_of(base)

    def _epoch_of(self, offset: int) -> int:
        epochs = self.epochs or ()
        return epochs[max(bisect_right(epochs, offset, key=lambda each: each[1]) - 1, 0)][0]


@dataclass
class ScanResult:
    """Where the complete batches of a segment end, and the damage before; `torn` if a power failure left the rest."""

    position: int
    end: int
    torn: bool = False
    largest_timestamp: int = -1
    records: int = 0
    damages: list[Damage] = field(default_factory=list)


class SegmentPrefix(NamedTuple):
    """An immutable prefix of a segment, to be read in another thread."""

    path: Path
    base: int
    end: int
    size: int

    def opened(self, handles: FilePool) -> Segment:
        """Open it."""
        segment = Segment(self.path, handles)
        segment.closed, segment.end, segment.size = True, self.end, self.size
        return segment


def scan(
    segment: Segment,
    start: int = 0,
    end: int | None = None,
    invariants: LogInvariants | None = None,
    synced: int | None = None,
) -> Iterator[Whole | ScanResult]:
    """Yield each complete batch from a position where offset `end` is expected; then the result.

    Bytes after the last complete batch are damage in a closed segment; in the active one they are a torn tail. If it is
    known how many bytes were `synced`, a torn tail starts at the first bad batch after them, in any segment.
    """
    yield from _Scanner(segment, invariants or LogInvariants(), synced).run(start, segment.base if end is None else end)


def scan_all(segment: Segment, invariants: LogInvariants, throttle: Callable[[], None] = lambda: None) -> ScanResult:
    """Scan a segment. Calls `throttle` between batches; it may raise to stop the scan."""
    for found in scan(segment, invariants=invariants):
        if isinstance(found, ScanResult):
            return found
        throttle()
    raise AssertionError  # a ScanResult always comes last


class _Scanner:
    def __init__(self, segment: Segment, invariants: LogInvariants, synced: int | None) -> None:
        self._segment = segment
        self._invariants = invariants
        self._synced = 2**63 - 1 if synced is None else synced
        self._window = ChunkedReader(segment.handle)
        self._last = segment.end if segment.closed else segment.base + MAX_SPAN

    def run(self, start: int, end: int) -> Iterator[Whole | ScanResult]:
        result = ScanResult(start, end)
        while result.position < self._segment.size:
            found = self._whole_batch(result.position, result.end)
            if found is None and result.position < self._synced:
                found = self._next_whole(result.position, result.end)
            if found is None:
                break
            if found[0] > result.position:
                lost = (result.position, found[0] - result.position, result.end, found[1].base_offset)
                result.damages.append(Damage(self._segment.path, *lost))
            yield found
            position, batch, _ = found
            result.position, result.end = position + batch.size, batch.last_offset + 1
            result.largest_timestamp = max(result.largest_timestamp, batch.max_timestamp)
            result.records += batch.record_count
        if self._segment.closed and (missing := self._missing(result)):
            result.torn = result.position >= self._synced
            result.damages += [] if result.torn else missing
        yield result

    def _missing(self, result: ScanResult) -> list[Damage]:
        size, path = self._segment.size - result.position, self._segment.path
        lost = result.end < self._segment.end and result.end >= self._invariants.gaps_before
        return [Damage(path, result.position, size, result.end, self._segment.end)] if size or lost else []

    def _whole_batch(self, position: int, offset: int, *, gap: bool = False) -> Whole | None:
        head = self._window.view(position, HEADER_SIZE)
        if len(head) < HEADER_SIZE:
            return None
        batch = header_at(head)
        if not self._plausible(batch, position) or not self._invariants.allows(batch, offset, gap=gap):
            return None
        data = self._window.view(position, batch.size)
        return (position, batch, data) if checksum_matches(data, 0, batch) else None

    def _plausible(self, batch: BatchHeader, position: int) -> bool:
        fits = batch.size >= SHORTEST and position + batch.size <= self._segment.size
        return batch.magic == MAGIC and fits and batch.last_offset_delta >= 0 and batch.last_offset < self._last

    def _next_whole(self, bad: int, offset: int) -> Whole | None:
        """Return the first complete batch after a bad one: where its length points to, or where a search finds one."""
        return self._follower(bad, offset) or self._searched(bad, offset)

    def _follower(self, bad: int, offset: int) -> Whole | None:
        head = self._window.view(bad, HEADER_SIZE)
        batch = header_at(head) if len(head) == HEADER_SIZE else None
        if batch is None or batch.size < SHORTEST:
            return None
        found = self._whole_batch(bad + batch.size, offset, gap=True)
        # If the offsets are contiguous too, the length is correct; otherwise it may have skipped complete batches.
        expected = {batch.last_offset + 1, offset + batch.last_offset_delta + 1}
        return found if found is not None and found[1].base_offset in expected else None

    def _searched(self, bad: int, offset: int) -> Whole | None:
        for position in self._candidates(bad + 1):
            found = self._whole_batch(position, offset, gap=True)
            if found is not None:
                return found
        return None

    def _candidates(self, start: int) -> Iterator[int]:
        """Yield the positions where a header could start, found by its magic byte."""
        handle, wanted = self._segment.handle, bytes([MAGIC])
        for position in range(start + _MAGIC_AT, self._segment.size, CHUNK):
            block = handle.read(position, min(CHUNK, self._segment.size - position))
            at = block.find(wanted)
            while at >= 0:
                yield position + at - _MAGIC_AT
                at = block.find(wanted, at + 1)
