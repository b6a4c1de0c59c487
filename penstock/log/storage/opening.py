"""How a partition is opened: from its last snapshot, or by reading what no snapshot vouches for."""

from __future__ import annotations

import logging
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

from penstock.log.storage import snapshot
from penstock.log.storage.aborted import read_aborted, write_aborted
from penstock.log.storage.cleaned import read_cleaned
from penstock.log.storage.epochs import read_epochs, write_epochs
from penstock.log.storage.handles import Handles, sync_folder
from penstock.log.storage.partition import Partition, Rules
from penstock.log.storage.producers import Producers
from penstock.log.storage.recovery import Examination, examine
from penstock.log.storage.segment import Segment
from penstock.log.storage.swap import finish_swaps
from penstock.log.storage.synced import Synced, read_synced, synced_path

log = logging.getLogger("penstock.log")


def open_partition(
    topic: str, index: int, folder: Path, handles: Handles, rules: Rules, *, durable: bool = False
) -> Partition:
    """Open a partition, finish what compaction began, cut a torn tail, and know its producers again.

    A `durable` one is synced before each record is acknowledged, and stores how far it is.
    """
    folder.mkdir(exist_ok=True)
    finish_swaps(folder)
    partition = Partition(topic, index, folder, handles, rules)
    partition.durable = durable
    paths = sorted(folder.glob("*.log")) or [folder / f"{0:020d}.log"]
    _know_epochs(partition, new=not paths[0].exists())
    partition.cleaned = read_cleaned(folder)
    partition.segments = _segments(paths, handles)
    _recover(partition)
    partition.log_start = max(partition.segments[0].base, _saved_start(folder))
    partition.high = partition.end
    if durable:
        partition.note_synced(partition.active.base, partition.active.size)
    else:
        synced_path(folder).unlink(missing_ok=True)
    return partition


def _segments(paths: list[Path], handles: Handles) -> list[Segment]:
    segments = [Segment(path, handles) for path in paths]
    for segment, following in pairwise(segments):
        segment.closed_at(following.base)
    return segments


def _recover(partition: Partition) -> None:
    """Read whatever the newest usable snapshot does not vouch for."""
    base, position, offset = _resume(partition)
    vouched = [segment for segment in partition.segments if segment.base <= base]
    for segment in vouched:
        segment.unchecked = segment.size if segment.base < base else position
    # A swap of segments that a crash has cut short may leave an entry in two files.
    known = {entry for segment in vouched for entry in read_aborted(segment.aborted_path) if entry.last < offset}
    partition.aborted = sorted(known, key=lambda entry: entry.last)
    synced = _known_synced(partition, Synced(base, position))
    for segment in list(partition.segments):
        if segment.base >= base and segment in partition.segments:
            start = position if segment.base == base else 0
            _read_again(partition, segment, start, offset if start else segment.base, synced)
    if partition.shortened:
        _next_epoch(partition)


def _resume(partition: Partition) -> tuple[int, int, int]:
    """Take up a snapshot: return the segment, the position and the offset from which to read."""
    for saved in snapshot.load(partition.folder):
        segment = next((each for each in partition.segments if each.base == saved.segment), None)
        if segment is None or saved.size > segment.size:
            _disbelieve(partition, saved, segment)
        elif _knows_aborted(partition, saved):
            partition.producers = Producers.decoded(saved.producers)
            segment.largest_timestamp = max(segment.largest_timestamp, saved.largest_timestamp)
            if segment is partition.active:
                segment.end = saved.end
                partition.vouched = saved.segment, saved.size
            return saved.segment, saved.size, saved.end
    return partition.segments[0].base, 0, partition.segments[0].base


def _knows_aborted(partition: Partition, saved: snapshot.Snapshot) -> bool:
    """Say whether the index of aborted transactions is there for all that a snapshot vouches for."""
    vouched = (s for s in partition.segments if s.base < saved.segment or (s.base == saved.segment and saved.size))
    lost = next((segment.aborted_path for segment in vouched if not segment.aborted_path.exists()), None)
    if lost is not None:
        log.warning("%s is missing: the partition is read again from its beginning", lost)
    return lost is None


def _disbelieve(partition: Partition, saved: snapshot.Snapshot, segment: Segment | None) -> None:
    # It must not be believed later either, when the segment has grown again.
    snapshot.path_of(partition.folder, saved.end).unlink(missing_ok=True)
    if segment is not None:
        message = "%s is damaged at byte %d: it was %d bytes long, up to offset %d; what is missing is lost"
        log.error(message, segment.path, segment.size, saved.size, saved.end - 1)
        partition.shortened = True


def _known_synced(partition: Partition, vouched: Synced) -> Synced | None:
    """Return how far the disk had everything; None if that was not stored."""
    stored = read_synced(partition.folder)
    return stored and max(stored, vouched, *(Synced(one.segment, one.size) for one in snapshot.load(partition.folder)))


def _read_again(partition: Partition, segment: Segment, start: int, offset: int, synced: Synced | None) -> None:
    if start == segment.size and not segment.closed:
        return
    for found in examine(segment, start, offset, partition.law, synced and synced.within(segment.base)):
        if isinstance(found, Examination):
            _accept(partition, segment, found)
        elif found[1].producer_id >= 0:
            partition.note(found[1], found[1].base_offset, found[2], segment.created)
    # A process that was killed may have left it to the system to write this. What is served from now on, or
    # acknowledged because it is there already, has to be on disk.
    if partition.durable:
        segment.handle.sync()
    if segment.closed:
        write_aborted(segment.aborted_path, partition.aborted_in(segment))


def _accept(partition: Partition, segment: Segment, result: Examination) -> None:
    if result.torn:
        _drop_following(partition, segment)
    segment.damaged = tuple(result.damages)
    for damage in segment.damaged:
        log.error("%s: these records cannot be read, those behind them can", damage)
    if segment.closed:
        return
    segment.end = result.end
    torn = segment.size - result.position
    segment.cut(result.position)  # also when nothing is cut, for the indexes, which nobody has synced, are built anew
    if torn:
        partition.shortened = True
        message = "%s: %d bytes from byte %d on are no whole batch, cut back to offset %d"
        log.warning(message, segment.path, torn, result.position, result.end)


def _drop_following(partition: Partition, torn: Segment) -> None:
    """Delete the segments behind a torn one, of which nothing was acknowledged; it is the active one again."""
    at = partition.segments.index(torn)
    for segment in reversed(partition.segments[at + 1 :]):
        log.warning("%s is deleted: it follows %s, whose end never reached the disk", segment.path, torn.path.name)
        segment.delete()
    sync_folder(partition.folder)
    del partition.segments[at + 1 :]
    torn.closed = False
    partition.shortened = True


def _next_epoch(partition: Partition) -> None:
    # Readers may have seen what was cut; a new leader epoch lets them notice (OffsetForLeaderEpoch).
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
        log.error("%s holds no offset: records that were deleted may be seen again", path)
        return 0
