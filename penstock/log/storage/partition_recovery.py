"""Opening a partition: restore the last snapshot, and scan the segments after it."""

from __future__ import annotations

import logging
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

from penstock.log.storage.checkpoints import (
    RecoveryPoint,
    Snapshot,
    load_snapshots,
    read_cleaner_checkpoint,
    read_epochs,
    read_recovery_point,
    read_txn_index,
    recovery_point_path,
    snapshot_path,
    write_epochs,
    write_txn_index,
)
from penstock.log.storage.compaction import finish_swaps
from penstock.log.storage.partition import LogConfig, Partition
from penstock.log.storage.producer_state import ProducerStates
from penstock.log.storage.segments.files import FilePool, sync_folder
from penstock.log.storage.segments.scan import ScanResult, scan
from penstock.log.storage.segments.segment import Segment

log = logging.getLogger("penstock.log")


def open_partition(
    topic: str, index: int, folder: Path, handles: FilePool, config: LogConfig, *, durable: bool = False
) -> Partition:
    """Open a partition: finish a compaction, truncate a torn tail, restore the producer state.

    A `durable` partition syncs each record before it is acknowledged, and stores its recovery point.
    """
    folder.mkdir(exist_ok=True)
    finish_swaps(folder)
    partition = Partition(topic, index, folder, handles, config)
    partition.durable = durable
    paths = sorted(folder.glob("*.log")) or [folder / f"{0:020d}.log"]
    _know_epochs(partition, new=not paths[0].exists())
    partition.cleaner_checkpoint = read_cleaner_checkpoint(folder)
    partition.segments = _segments(paths, handles)
    partition.active.create()
    _recover(partition)
    partition.log_start = max(partition.segments[0].base, _saved_start(folder))
    partition.high_watermark = partition.end
    if durable:
        partition.store_recovery_point(partition.active.base, partition.active.size)
    else:
        recovery_point_path(folder).unlink(missing_ok=True)
    return partition


def _segments(paths: list[Path], handles: FilePool) -> list[Segment]:
    segments = [Segment(path, handles) for path in paths]
    for segment, following in pairwise(segments):
        segment.closed_at(following.base)
    return segments


def _recover(partition: Partition) -> None:
    """Scan what the newest usable snapshot does not cover."""
    base, position, offset = _resume(partition)
    vouched = [segment for segment in partition.segments if segment.base <= base]
    for segment in vouched:
        segment.unchecked = segment.size if segment.base < base else position
    # An interrupted swap of segments may leave an entry in two files.
    known = {entry for segment in vouched for entry in read_txn_index(segment.aborted_path) if entry.last < offset}
    partition.aborted = sorted(known, key=lambda entry: entry.last)
    synced = _known_synced(partition, RecoveryPoint(base, position))
    for segment in list(partition.segments):
        if segment.base >= base and segment in partition.segments:
            start = position if segment.base == base else 0
            _read_again(partition, segment, start, offset if start else segment.base, synced)
    if partition.truncated:
        _next_epoch(partition)


def _resume(partition: Partition) -> tuple[int, int, int]:
    """Restore a snapshot: return the segment, the position and the offset from which to scan."""
    for saved in load_snapshots(partition.folder):
        segment = next((each for each in partition.segments if each.base == saved.segment), None)
        if segment is None or saved.size > segment.size:
            _disbelieve(partition, saved, segment)
        elif _knows_aborted(partition, saved):
            partition.producers = ProducerStates.decoded(saved.producers)
            segment.largest_timestamp = max(segment.largest_timestamp, saved.largest_timestamp)
            if segment is partition.active:
                segment.end = saved.end
                partition.checkpointed = saved.segment, saved.size
            return saved.segment, saved.size, saved.end
    return partition.segments[0].base, 0, partition.segments[0].base


def _knows_aborted(partition: Partition, saved: Snapshot) -> bool:
    """Return whether the transaction indexes exist for all that a snapshot covers."""
    vouched = (s for s in partition.segments if s.base < saved.segment or (s.base == saved.segment and saved.size))
    lost = next((segment.aborted_path for segment in vouched if not segment.aborted_path.exists()), None)
    if lost is not None:
        log.warning("%s is missing: the partition is read again from its beginning", lost)
    return lost is None


def _disbelieve(partition: Partition, saved: Snapshot, segment: Segment | None) -> None:
    # It must not be used later either, when the segment has grown again.
    snapshot_path(partition.folder, saved.end).unlink(missing_ok=True)
    if segment is not None:
        message = "%s is damaged at byte %d: it was %d bytes long, up to offset %d; what is missing is lost"
        log.error(message, segment.path, segment.size, saved.size, saved.end - 1)
        partition.truncated = True


def _known_synced(partition: Partition, vouched: RecoveryPoint) -> RecoveryPoint | None:
    """Return the recovery point; None if it was not stored."""
    stored = read_recovery_point(partition.folder)
    return stored and max(
        stored, vouched, *(RecoveryPoint(one.segment, one.size) for one in load_snapshots(partition.folder))
    )


def _read_again(partition: Partition, segment: Segment, start: int, offset: int, synced: RecoveryPoint | None) -> None:
    if start == segment.size and not segment.closed:
        return
    for found in scan(segment, start, offset, partition.invariants, synced and synced.within(segment.base)):
        if isinstance(found, ScanResult):
            _accept(partition, segment, found)
        elif found[1].producer_id >= 0:
            partition.track_batch(found[1], found[1].base_offset, found[2], segment.created)
    # A killed process may have left these records in the page cache. What is served from now on, or acknowledged as
    # a duplicate, has to be on disk.
    if partition.durable:
        segment.handle.sync()
    if segment.closed:
        write_txn_index(segment.aborted_path, partition.aborted_in(segment))


def _accept(partition: Partition, segment: Segment, result: ScanResult) -> None:
    if result.torn:
        _drop_following(partition, segment)
    segment.damaged = tuple(result.damages)
    for damage in segment.damaged:
        log.error("%s: these records cannot be read, those after them can", damage)
    if segment.closed:
        return
    segment.end = result.end
    torn = segment.size - result.position
    segment.truncate(result.position)  # even if it is already that short: rebuilds the indexes, which are never synced
    if torn:
        partition.truncated = True
        message = "%s: %d bytes from byte %d on are no complete batch, truncated to offset %d"
        log.warning(message, segment.path, torn, result.position, result.end)


def _drop_following(partition: Partition, torn: Segment) -> None:
    """Delete the segments after a torn one, whose records were not acknowledged; it becomes the active segment."""
    at = partition.segments.index(torn)
    for segment in reversed(partition.segments[at + 1 :]):
        log.warning("%s is deleted: it follows %s, whose end never reached the disk", segment.path, torn.path.name)
        segment.delete()
    sync_folder(partition.folder)
    del partition.segments[at + 1 :]
    torn.closed = False
    partition.truncated = True


def _next_epoch(partition: Partition) -> None:
    # Consumers may have read what was truncated; a new leader epoch lets them detect it (OffsetForLeaderEpoch).
    partition.leader_epoch += 1
    partition.epochs.append((partition.leader_epoch, partition.end))
    write_epochs(partition.folder, partition.epochs)


def _know_epochs(partition: Partition, *, new: bool) -> None:
    if new:
        with suppress(OSError):
            write_epochs(partition.folder, partition.epochs, sync=False)
    epochs = read_epochs(partition.folder)
    partition.epochs_known = epochs is not None
    partition.epochs = epochs or partition.epochs
    partition.leader_epoch = partition.epochs[-1][0]


def _saved_start(folder: Path) -> int:
    path = folder / "log-start"
    try:
        return int(path.read_bytes()) if path.exists() else 0
    except ValueError:
        log.error("%s contains no offset: deleted records may become visible again", path)
        return 0
