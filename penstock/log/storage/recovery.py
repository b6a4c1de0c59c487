"""What a segment really holds: read every batch, tell a torn tail from damage in the middle."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from penstock.log.storage.batches import HEADER_SIZE, MAGIC, SHORTEST, Batch, checksum_fits, header_at
from penstock.log.storage.handles import Handles
from penstock.log.storage.segment import CHUNK, MAX_SPAN, Damage, Segment, Window

Whole = tuple[int, Batch, memoryview]
_MAGIC_AT = 16


@dataclass(frozen=True)
class Law:
    """What is known of offsets and leader epochs: a batch's checksum covers neither.

    Before `gaps_before` compaction may have left gaps; without `epochs` any epoch will do.
    """

    gaps_before: int = 2**63 - 1
    epochs: tuple[tuple[int, int], ...] | None = None

    def allows(self, batch: Batch, offset: int, *, gap: bool) -> bool:
        """Say whether a batch can stand where `offset` is next; behind damage there is a gap in any log."""
        base = batch.base_offset
        if base < offset or (base > offset and not gap and offset >= self.gaps_before):
            return False
        return self.epochs is None or batch.leader_epoch == self._epoch_of(base)

    def _epoch_of(self, offset: int) -> int:
        epochs = self.epochs or ()
        return epochs[max(bisect_right(epochs, offset, key=lambda each: each[1]) - 1, 0)][0]


@dataclass
class Examination:
    """Where the whole batches of a segment end, and what is wrong before that; `torn` if a power cut left its rest."""

    position: int
    end: int
    torn: bool = False
    largest_timestamp: int = -1
    records: int = 0
    damages: list[Damage] = field(default_factory=list)


class Source(NamedTuple):
    """The front of a segment that does not change any more, for a thread of its own."""

    path: Path
    base: int
    end: int
    size: int

    def opened(self, handles: Handles) -> Segment:
        """Open it."""
        segment = Segment(self.path, handles)
        segment.closed, segment.end, segment.size = True, self.end, self.size
        return segment


def examine(
    segment: Segment, start: int = 0, end: int | None = None, law: Law | None = None, synced: int | None = None
) -> Iterator[Whole | Examination]:
    """Yield each whole batch from a position whose next offset is `end`; last, the examination.

    What stands behind the last whole batch is damage in a closed segment; in the active one it is a torn tail. If it is
    known how many bytes were `synced`, a torn tail begins at the first bad batch behind them, in any segment.
    """
    yield from _Examiner(segment, law or Law(), synced).run(start, segment.base if end is None else end)


def examined(segment: Segment, law: Law, breathe: Callable[[], None] = lambda: None) -> Examination:
    """Read a whole segment. Calls `breathe` between batches, which may raise to stop it."""
    for found in examine(segment, law=law):
        if isinstance(found, Examination):
            return found
        breathe()
    raise AssertionError  # an examination always comes last


class _Examiner:
    def __init__(self, segment: Segment, law: Law, synced: int | None) -> None:
        self._segment = segment
        self._law = law
        self._synced = 2**63 - 1 if synced is None else synced
        self._window = Window(segment.handle)
        self._last = segment.end if segment.closed else segment.base + MAX_SPAN

    def run(self, start: int, end: int) -> Iterator[Whole | Examination]:
        result = Examination(start, end)
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

    def _missing(self, result: Examination) -> list[Damage]:
        size, path = self._segment.size - result.position, self._segment.path
        lost = result.end < self._segment.end and result.end >= self._law.gaps_before
        return [Damage(path, result.position, size, result.end, self._segment.end)] if size or lost else []

    def _whole_batch(self, position: int, offset: int, *, gap: bool = False) -> Whole | None:
        head = self._window.view(position, HEADER_SIZE)
        if len(head) < HEADER_SIZE:
            return None
        batch = header_at(head)
        if not self._plausible(batch, position) or not self._law.allows(batch, offset, gap=gap):
            return None
        data = self._window.view(position, batch.size)
        return (position, batch, data) if checksum_fits(data, 0, batch) else None

    def _plausible(self, batch: Batch, position: int) -> bool:
        fits = batch.size >= SHORTEST and position + batch.size <= self._segment.size
        return batch.magic == MAGIC and fits and batch.last_offset_delta >= 0 and batch.last_offset < self._last

    def _next_whole(self, bad: int, offset: int) -> Whole | None:
        """Return the first whole batch behind a bad one: where its length says, or where a search finds one."""
        return self._follower(bad, offset) or self._searched(bad, offset)

    def _follower(self, bad: int, offset: int) -> Whole | None:
        head = self._window.view(bad, HEADER_SIZE)
        batch = header_at(head) if len(head) == HEADER_SIZE else None
        if batch is None or batch.size < SHORTEST:
            return None
        found = self._whole_batch(bad + batch.size, offset, gap=True)
        # If the offsets go on as well, the length is right; otherwise it may have led past whole batches.
        expected = {batch.last_offset + 1, offset + batch.last_offset_delta + 1}
        return found if found is not None and found[1].base_offset in expected else None

    def _searched(self, bad: int, offset: int) -> Whole | None:
        for position in self._candidates(bad + 1):
            found = self._whole_batch(position, offset, gap=True)
            if found is not None:
                return found
        return None

    def _candidates(self, start: int) -> Iterator[int]:
        """Yield the positions where a header could begin, by its byte that is always the same."""
        handle, wanted = self._segment.handle, bytes([MAGIC])
        for position in range(start + _MAGIC_AT, self._segment.size, CHUNK):
            block = handle.read(position, min(CHUNK, self._segment.size - position))
            at = block.find(wanted)
            while at >= 0:
                yield position + at - _MAGIC_AT
                at = block.find(wanted, at + 1)
