"""One partition: its segments, offsets, producer states and transactions."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from penstock.kafka.batches import BatchHeader, assign_offset, check_batches, headers, set_append_time
from penstock.kafka.compression import Codec
from penstock.kafka.records import ABORT, control_outcome
from penstock.log.configs.definition import LARGEST_LONG
from penstock.log.errors import ErrorCode, LogError
from penstock.log.storage.checkpoints import (
    CleanerCheckpoint,
    RecoveryPoint,
    Snapshot,
    encode_recovery_point,
    load_snapshots,
    recovery_point_path,
    save_snapshot,
    snapshot_path,
    write_txn_index,
)
from penstock.log.storage.producer_state import AbortedTxn, ProducerStates
from penstock.log.storage.segments.files import FilePool, write_atomically
from penstock.log.storage.segments.scan import LogInvariants
from penstock.log.storage.segments.segment import MAX_SPAN, Segment, Slice
from penstock.log.storage.validation import needs_validation, validate


@dataclass(frozen=True, slots=True)
class LogConfig:
    """The topic configs that apply to appends."""

    segment_bytes: int = 1 << 28
    segment_ms: int = 7 * 24 * 3600 * 1000
    max_message_bytes: int = 1_048_588
    log_append_time: bool = False
    compacted: bool = False
    codec: Codec | None = None  # None: as the producer compressed it
    before_ms: int = LARGEST_LONG  # how much a timestamp may differ from the broker's time
    after_ms: int = LARGEST_LONG


class Appended(NamedTuple):
    """The result of an append; `append_time` is -1 unless it replaced the timestamps (LogAppendTime)."""

    base_offset: int
    append_time: int
    duplicate: bool


class Partition:
    """Offsets `log_start` to `end`; consumers read up to `high_watermark`, read_committed up to `last_stable_offset`.

    Invariant: log_start <= last_stable_offset <= high_watermark <= end, and the segments are contiguous.
    """

    def __init__(self, topic: str, index: int, folder: Path, handles: FilePool, config: LogConfig) -> None:
        self.topic = topic
        self.index = index
        self.folder = folder
        self.handles = handles
        self.config = config
        self.segments: list[Segment] = []
        self.producers = ProducerStates()
        self.aborted: list[AbortedTxn] = []
        self.log_start = 0
        self.high_watermark = 0
        self.leader_epoch = 0
        self.epochs: list[tuple[int, int]] = [(0, 0)]  # (leader epoch, its first offset)
        self.epochs_known = False
        self.cleaner_checkpoint = CleanerCheckpoint()
        self.save_checkpoint: Callable[[Partition, Segment, Snapshot], None] = save_checkpoint_now
        self.checkpointed = (0, 0)  # base and size of the active segment at the last snapshot
        self.waiters: set[Callable[[], None]] = set()
        self.failed = False
        self.validating = 0  # requests being validated in a thread; later ones queue after them
        self.durable = False  # each record is synced before it is acknowledged
        self._recovery_point, self._recovery_point_path = RecoveryPoint(-1, 0), recovery_point_path(folder)
        self.truncated = False  # recovery found less than had been written
        self._deleted = False
        self._saving = threading.Lock()  # snapshots are saved in another thread

    def on_deleted(self) -> None:
        """Open no file from now on: the folder may soon belong to a new topic of the same name."""
        with self._saving:
            self._deleted = True
        self.durable = False
        for segment in self.segments:
            segment.discard()
        self.handles.evict(self._recovery_point_path)
        self.notify_waiters()

    @property
    def active(self) -> Segment:
        """The segment that records are appended to."""
        return self.segments[-1]

    @property
    def end(self) -> int:
        """The log end offset: the next record gets it."""
        return self.segments[-1].end

    @property
    def last_stable_offset(self) -> int:
        """The last stable offset: every transaction before it has ended."""
        first = next(iter(self.producers.open.values()), self.high_watermark)
        return min(first, self.high_watermark)

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return sum(segment.size for segment in self.segments)

    def append(
        self, data: bytearray | memoryview, now: int, *, internal: bool = False, prepared: bool = False
    ) -> Appended:
        """Append a client's batches, or one of the broker's own; all of them or, with an error, none.

        Batches that are not `prepared` are validated and recompressed here, if the topic requires that.
        """
        view = memoryview(data)
        batches = list(headers(view)) if internal else check_batches(view, self.config.max_message_bytes)
        # The coordinators' own batches have no sequences.
        if not internal and any(batch.producer_id >= 0 or batch.is_transactional for _, batch in batches):
            known = self._known(batches)
            if known is not None:
                return Appended(known, -1, True)
        if not (internal or prepared) and needs_validation(batches, self.config, now):
            view = memoryview(validate(view, batches, self.config, now, f"{self.topic}-{self.index}"))
            batches = check_batches(view, self.config.max_message_bytes)
        return self._write(view, batches, now)

    def _known(self, batches: list[tuple[int, BatchHeader]]) -> int | None:
        if len(batches) > 1:
            raise LogError(ErrorCode.invalid_record, "an idempotent producer sends one batch per partition at a time")
        return self.producers.duplicate_of(batches[0][1])

    def _write(self, view: memoryview, batches: list[tuple[int, BatchHeader]], now: int) -> Appended:
        base = offset = self.end
        for position, batch in batches:
            assign_offset(view, position, offset, self.leader_epoch)
            offset += batch.last_offset_delta + 1
        if self.config.log_append_time:
            batches = [(position, set_append_time(view, position, batch, now)) for position, batch in batches]
        segment = self._segment_for(len(view), offset, now)
        segment.append(view, batches, base)
        self._remember(view, batches, base, now)
        return Appended(base, now if self.config.log_append_time else -1, False)

    def _segment_for(self, size: int, end: int, now: int) -> Segment:
        active = self.active
        full = active.size + size > self.config.segment_bytes or end - active.base > MAX_SPAN
        if active.size and (full or now - active.created > self.config.segment_ms):
            return self.roll(now)
        if not active.size:
            active.created = now
        return active

    def roll(self, now: int) -> Segment:
        """Close the active segment and start the next one."""
        closed = self.active
        fresh = Segment(self.folder / f"{closed.end:020d}.log", self.handles)
        fresh.created = now
        fresh.create()
        self._save_aborted()
        closed.close()
        self.segments.append(fresh)
        self.save_checkpoint(self, closed, self.snapshot())
        return fresh

    def checkpoint(self, save_checkpoint: Callable[[Partition, Segment, Snapshot], None] | None = None) -> None:
        """Save a snapshot, so that recovery does not scan what precedes it."""
        self._save_aborted()
        (save_checkpoint or self.save_checkpoint)(self, self.active, self.snapshot())

    def _save_aborted(self) -> None:
        # A snapshot will cover the active segment; until then recovery reads the markers themselves.
        write_txn_index(self.active.aborted_path, self.aborted_in(self.active))

    def aborted_in(self, segment: Segment) -> list[AbortedTxn]:
        """Return the transactions that were aborted by a marker in a segment."""
        at = bisect_right(self.aborted, segment.base - 1, key=lambda entry: entry.last)
        return [entry for entry in self.aborted[at:] if entry.last < segment.end]

    def _remember(self, view: memoryview, batches: list[tuple[int, BatchHeader]], offset: int, now: int) -> None:
        for position, batch in batches:
            if batch.producer_id >= 0:
                self.track_batch(batch, offset, view[position : position + batch.size], now)
            offset += batch.last_offset_delta + 1

    def track_batch(self, batch: BatchHeader, offset: int, data: memoryview, now: int) -> None:
        """Update producer and transaction state from a batch."""
        if not batch.is_control:
            self.producers.record_batch(batch, offset, now)
            return
        first = self.producers.end_transaction(batch, now)
        if first is not None and control_outcome(data) == ABORT:
            stable = min(self.producers.open.values(), default=offset + 1)
            self.aborted.append(AbortedTxn(batch.producer_id, first, offset, stable))

    def read(self, offset: int, max_bytes: int, *, limit: int, at_least_one: bool = True) -> Slice | None:
        """Return the bytes of batches from an offset up to a limit; None if there are none."""
        if not self.log_start <= offset <= self.end:
            raise LogError(ErrorCode.offset_out_of_range, f"available offsets are {self.log_start} to {self.end}")
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

    def aborted_between(self, start: int, end: int) -> list[AbortedTxn]:
        """Return the aborted transactions that have records in a range."""
        at = bisect_right(self.aborted, start - 1, key=lambda entry: entry.last)
        found = []
        for entry in islice(self.aborted, at, None):
            if entry.first < end:
                found.append(entry)
            if entry.last_stable_offset >= end:
                break  # transactions aborted later started after the last stable offset of that time
        return found

    def batches(self, start: int = 0) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Yield header and bytes of each batch from an offset on."""
        for segment in list(self.segments):
            if segment.end > start:
                position = segment.position_of(start) if start > segment.base else 0
                for _, batch, data in segment.batches(position):
                    yield batch, data

    @property
    def largest_timestamp(self) -> int:
        """The timestamp of the youngest record; -1 without records."""
        return max(segment.largest_timestamp for segment in self.segments)

    def truncate_before(self, offset: int) -> None:
        """Move the log start offset, and delete the segments before it."""
        if offset > self.high_watermark or offset < 0:
            raise LogError(
                ErrorCode.offset_out_of_range, f"available offsets are {self.log_start} to {self.high_watermark}"
            )
        if offset > self.log_start:
            write_atomically(self.folder / "log-start", str(offset).encode())
            self.log_start = offset
            self.drop_segments()

    def drop_segments(self) -> None:
        """Delete closed segments that end at or before the log start."""
        while len(self.segments) > 1 and self.segments[0].end <= self.log_start:
            self.segments.pop(0).delete()
        self.aborted = [entry for entry in self.aborted if entry.last >= self.log_start]

    def advance_high_watermark(self, offset: int) -> None:
        """Make the records before an offset visible to consumers."""
        if offset > self.high_watermark:
            self.high_watermark = offset
        for waiter in list(self.waiters):
            waiter()

    def store_recovery_point(self, segment: int, position: int) -> None:
        """Store up to where everything is synced, for recovery. If the write fails, an older position remains."""
        if self.durable and RecoveryPoint(segment, position) > self._recovery_point:
            self._recovery_point = RecoveryPoint(segment, position)
            with suppress(OSError):
                self.handles.create(self._recovery_point_path).write(encode_recovery_point(self._recovery_point), 0)

    def notify_waiters(self) -> None:
        """Wake up the fetches that wait for records."""
        self.advance_high_watermark(self.high_watermark)

    @property
    def invariants(self) -> LogInvariants:
        """What holds for every batch on disk."""
        return LogInvariants(self.cleaner_checkpoint.gaps, tuple(self.epochs) if self.epochs_known else None)

    def snapshot(self) -> Snapshot:
        """Return a snapshot; it is valid once the segments are synced."""
        active = self.active
        self.checkpointed = active.base, active.size
        return Snapshot(active.end, active.base, active.size, active.largest_timestamp, self.producers.encoded())

    def save_snapshot(self, snapshot: Snapshot) -> None:
        """Save a snapshot whose segments are synced, unless the topic was deleted or the segment closed meanwhile.

        Compaction may replace a closed segment, and with it the position that a snapshot has. The next one follows.
        """
        with self._saving:
            if not self._deleted and (snapshot.segment == self.active.base or not snapshot.size):
                save_snapshot(self.folder, snapshot)

    def drop_snapshots(self, bases: set[int]) -> None:
        """Delete the snapshots that refer to a position in these segments, whose files are about to be replaced."""
        with self._saving:
            for saved in load_snapshots(self.folder):
                if saved.segment in bases:
                    snapshot_path(self.folder, saved.end).unlink(missing_ok=True)


def save_checkpoint_now(partition: Partition, written: Segment, point: Snapshot) -> None:
    """Sync a segment and save the snapshot that covers it."""
    written.handle.sync()
    partition.save_snapshot(point)
