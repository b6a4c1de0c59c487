"""One partition: segments in a row, and what is known of its offsets, producers and transactions."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from penstock.log.errors import ErrorCode, LogError
from penstock.log.storage.aborted import write_aborted
from penstock.log.storage.batches import Batch, check_batches, headers, place, stamp
from penstock.log.storage.cleaned import Cleaned
from penstock.log.storage.compression import Codec
from penstock.log.storage.handles import Handles
from penstock.log.storage.preparing import must_open, prepare
from penstock.log.storage.producers import Aborted, Producers
from penstock.log.storage.records import ABORT, Record, marker_outcome, open_batch
from penstock.log.storage.recovery import Law
from penstock.log.storage.segment import MAX_SPAN, Segment, Slice
from penstock.log.storage.settings import LARGEST_LONG
from penstock.log.storage.snapshot import Snapshot, save, write_whole
from penstock.log.storage.synced import Synced, encode_synced, synced_path


@dataclass(frozen=True, slots=True)
class Rules:
    """The settings of a topic that appends follow."""

    segment_bytes: int = 1 << 28
    segment_ms: int = 7 * 24 * 3600 * 1000
    max_message_bytes: int = 1_048_588
    stamps_arrival: bool = False
    compacted: bool = False
    codec: Codec | None = None  # None keeps the producer's
    before_ms: int = LARGEST_LONG  # how far a record's timestamp may lie before and after its arrival
    after_ms: int = LARGEST_LONG


class Appended(NamedTuple):
    """Where records went; `arrived` is -1 unless their timestamps were replaced."""

    base_offset: int
    arrived: int
    duplicate: bool


class Partition:
    """Offsets `log_start` to `end` are kept; readers see up to `high`, readers of committed records up to `stable`.

    Invariant: log_start <= stable <= high <= end, and the segments lie end to end.
    """

    def __init__(self, topic: str, index: int, folder: Path, handles: Handles, rules: Rules) -> None:
        self.topic = topic
        self.index = index
        self.folder = folder
        self.handles = handles
        self.rules = rules
        self.segments: list[Segment] = []
        self.producers = Producers()
        self.aborted: list[Aborted] = []
        self.log_start = 0
        self.high = 0
        self.leader_epoch = 0
        self.epochs: list[tuple[int, int]] = [(0, 0)]  # (leader epoch, its first offset)
        self.epochs_known = False
        self.cleaned = Cleaned()
        self.vouch: Callable[[Partition, Segment, Snapshot], None] = vouch_now
        self.vouched = (0, 0)  # base and size of the active segment when a snapshot was last taken
        self.waiters: set[Callable[[], None]] = set()
        self.failed = False
        self.preparing = 0  # requests whose batches are being opened in a thread; later ones wait behind them
        self.durable = False  # each record is synced before it is acknowledged
        self._synced, self._synced_path = Synced(-1, 0), synced_path(folder)
        self.shortened = False  # opening found less than had been written

    @property
    def active(self) -> Segment:
        """The segment that grows."""
        return self.segments[-1]

    @property
    def end(self) -> int:
        """The offset that the next record gets."""
        return self.segments[-1].end

    @property
    def stable(self) -> int:
        """The last stable offset: before it every transaction is decided."""
        first = next(iter(self.producers.open.values()), self.high)
        return min(first, self.high)

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return sum(segment.size for segment in self.segments)

    def append(
        self, data: bytearray | memoryview, now: int, *, internal: bool = False, prepared: bool = False
    ) -> Appended:
        """Write a client's batches, or one of the broker's own; all of them or, with an error, none.

        Batches that were `prepared` are as the topic wants them; others are made so here.
        """
        view = memoryview(data)
        batches = list(headers(view)) if internal else check_batches(view, self.rules.max_message_bytes)
        # The coordinators' own batches have no sequences.
        if not internal and any(batch.producer_id >= 0 or batch.is_transactional for _, batch in batches):
            known = self._known(batches)
            if known is not None:
                return Appended(known, -1, True)
        if not (internal or prepared) and must_open(batches, self.rules, now):
            view = memoryview(prepare(view, batches, self.rules, now, f"{self.topic}-{self.index}"))
            batches = check_batches(view, self.rules.max_message_bytes)
        return self._write(view, batches, now)

    def _known(self, batches: list[tuple[int, Batch]]) -> int | None:
        if len(batches) > 1:
            raise LogError(ErrorCode.invalid_record, "an idempotent producer sends one batch per partition at a time")
        return self.producers.duplicate_of(batches[0][1])

    def _write(self, view: memoryview, batches: list[tuple[int, Batch]], now: int) -> Appended:
        base = offset = self.end
        for position, batch in batches:
            place(view, position, offset, self.leader_epoch)
            offset += batch.last_offset_delta + 1
        if self.rules.stamps_arrival:
            batches = [(position, stamp(view, position, batch, now)) for position, batch in batches]
        segment = self._segment_for(len(view), offset, now)
        segment.append(view, batches, base)
        self._remember(view, batches, base, now)
        return Appended(base, now if self.rules.stamps_arrival else -1, False)

    def _segment_for(self, size: int, end: int, now: int) -> Segment:
        active = self.active
        full = active.size + size > self.rules.segment_bytes or end - active.base > MAX_SPAN
        if active.size and (full or now - active.created > self.rules.segment_ms):
            return self.roll(now)
        if not active.size:
            active.created = now
        return active

    def roll(self, now: int) -> Segment:
        """Close the active segment and begin the next one."""
        closed = self.active
        fresh = Segment(self.folder / f"{closed.end:020d}.log", self.handles)
        fresh.created = now
        fresh.handle  # noqa: B018 - creates the file before anything relies on it
        self._save_aborted()
        closed.close()
        self.segments.append(fresh)
        self.vouch(self, closed, self.snapshot())
        return fresh

    def checkpoint(self, vouch: Callable[[Partition, Segment, Snapshot], None] | None = None) -> None:
        """Save what recovery need not read again."""
        self._save_aborted()
        (vouch or self.vouch)(self, self.active, self.snapshot())

    def _save_aborted(self) -> None:
        # A snapshot is to vouch for the active segment; until then recovery reads the markers themselves.
        write_aborted(self.active.aborted_path, self.aborted_in(self.active))

    def aborted_in(self, segment: Segment) -> list[Aborted]:
        """Return the transactions that were aborted by a marker in a segment."""
        at = bisect_right(self.aborted, segment.base - 1, key=lambda entry: entry.last)
        return [entry for entry in self.aborted[at:] if entry.last < segment.end]

    def _remember(self, view: memoryview, batches: list[tuple[int, Batch]], offset: int, now: int) -> None:
        for position, batch in batches:
            if batch.producer_id >= 0:
                self.note(batch, offset, view[position : position + batch.size], now)
            offset += batch.last_offset_delta + 1

    def note(self, batch: Batch, offset: int, data: memoryview, now: int) -> None:
        """Learn from a batch of a producer."""
        if not batch.is_control:
            self.producers.wrote(batch, offset, now)
            return
        first = self.producers.ended(batch, now)
        if first is not None and marker_outcome(data) == ABORT:
            stable = min(self.producers.open.values(), default=offset + 1)
            self.aborted.append(Aborted(batch.producer_id, first, offset, stable))

    def read(self, offset: int, max_bytes: int, *, limit: int, at_least_one: bool = True) -> Slice | None:
        """Return the bytes of batches from an offset up to a limit; None if there are none."""
        if not self.log_start <= offset <= self.end:
            raise LogError(ErrorCode.offset_out_of_range, f"kept are {self.log_start} to {self.end}")
        if offset >= limit:
            return None
        at = max(bisect_right(self.segments, offset, key=lambda segment: segment.base) - 1, 0)
        for segment in self.segments[at:]:
            if segment.damaged:
                segment.check(max(offset, segment.base))
            start = segment.position_of(offset) if offset > segment.base else 0
            if start < segment.size:
                stop = segment.size if limit >= segment.end else segment.position_of(limit)
                return segment.slice(start, max_bytes, stop, at_least_one)
        return None

    def aborted_between(self, start: int, end: int) -> list[Aborted]:
        """Return the aborted transactions that have records in a range."""
        at = bisect_right(self.aborted, start - 1, key=lambda entry: entry.last)
        found = []
        for entry in islice(self.aborted, at, None):
            if entry.first < end:
                found.append(entry)
            if entry.stable >= end:
                break  # whatever was aborted after it began behind the stable offset of that time
        return found

    def batches(self, start: int = 0) -> Iterator[tuple[Batch, memoryview]]:
        """Yield header and bytes of each batch from an offset on."""
        for segment in list(self.segments):
            if segment.end > start:
                position = segment.position_of(start) if start > segment.base else 0
                for _, batch, data in segment.batches(position):
                    yield batch, data

    def find_time(self, timestamp: int) -> tuple[int, int] | None:
        """Return (timestamp, offset) of the first record at or after a time."""
        for segment in self.segments:
            for data in segment.find_time(timestamp):
                found = _first_at(data, timestamp, self.log_start)
                if found is not None:
                    return found.timestamp, found.offset
        return None

    def largest_time(self) -> tuple[int, int] | None:
        """Return (timestamp, offset) of the youngest record."""
        newest = max(self.segments, key=lambda segment: segment.largest_timestamp)
        return None if newest.largest_timestamp < 0 else self.find_time(newest.largest_timestamp)

    def truncate_before(self, offset: int) -> None:
        """Delete the records before an offset: the start moves now, whole segments go at once."""
        if offset > self.high or offset < 0:
            raise LogError(ErrorCode.offset_out_of_range, f"kept are {self.log_start} to {self.high}")
        if offset > self.log_start:
            write_whole(self.folder / "log-start", str(offset).encode())
            self.log_start = offset
            self.drop_segments()

    def drop_segments(self) -> None:
        """Remove closed segments that end at or before the start."""
        while len(self.segments) > 1 and self.segments[0].end <= self.log_start:
            self.segments.pop(0).delete()
        self.aborted = [entry for entry in self.aborted if entry.last >= self.log_start]

    def reach(self, offset: int) -> None:
        """Let readers see the records before an offset."""
        if offset > self.high:
            self.high = offset
        for waiter in list(self.waiters):
            waiter()

    def note_synced(self, segment: int, position: int) -> None:
        """Store how far the disk has everything, for recovery. A disk that refuses leaves an older position there."""
        if self.durable and Synced(segment, position) > self._synced:
            self._synced = Synced(segment, position)
            with suppress(OSError):
                self.handles.get(self._synced_path).write(encode_synced(self._synced), 0)

    def wake(self) -> None:
        """Tell those who wait for records to look again."""
        self.reach(self.high)

    @property
    def law(self) -> Law:
        """What every batch on disk has to follow."""
        return Law(self.cleaned.gaps, tuple(self.epochs) if self.epochs_known else None)

    def snapshot(self) -> Snapshot:
        """Return what recovery need not read again once the disk has the segments."""
        active = self.active
        self.vouched = active.base, active.size
        return Snapshot(active.end, active.base, active.size, active.largest_timestamp, self.producers.encoded())


def vouch_now(partition: Partition, written: Segment, point: Snapshot) -> None:
    """Sync a segment and save the snapshot that relies on it."""
    written.handle.sync()
    save(partition.folder, point)


def _first_at(data: memoryview, timestamp: int, start: int) -> Record | None:
    with suppress(LogError):  # bytes that a client sent as records and are none
        return next((each for each in open_batch(data) if each.timestamp >= timestamp and each.offset >= start), None)
    return None
