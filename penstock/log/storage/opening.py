"""How a partition is opened: from its last snapshot, or by reading what no snapshot vouches for."""

from __future__ import annotations

import json
import logging
from itertools import pairwise
from pathlib import Path

from penstock.log.storage import snapshot
from penstock.log.storage.aborted import read_aborted, write_aborted
from penstock.log.storage.handles import Handles
from penstock.log.storage.partition import Partition, Rules
from penstock.log.storage.producers import Producers
from penstock.log.storage.recovery import Damage, Examination, examine
from penstock.log.storage.segment import Segment

log = logging.getLogger("penstock.log")
_EPOCHS = "leader-epochs.json"


def open_partition(topic: str, index: int, folder: Path, handles: Handles, rules: Rules) -> Partition:
    """Open a partition, cut a torn tail, and know its producers again."""
    folder.mkdir(exist_ok=True)
    partition = Partition(topic, index, folder, handles, rules)
    paths = sorted(folder.glob("*.log"))
    if not paths:
        paths = [folder / f"{0:020d}.log"]
        paths[0].touch()
    partition.segments = _segments(paths, handles)
    partition.aborted = [entry for path in paths for entry in read_aborted(path.with_suffix(".txnindex"))]
    _read_epochs(partition)
    _recover(partition)
    partition.log_start = max(partition.segments[0].base, _saved_start(folder))
    partition.high = partition.end
    return partition


def _segments(paths: list[Path], handles: Handles) -> list[Segment]:
    segments = [Segment(path, handles) for path in paths]
    for segment, following in pairwise(segments):
        segment.end = following.base
        # Only asked for when someone looks for a time or retention does: no younger than the file's last change.
        segment.largest_timestamp = _closed_timestamp(segment)
    return segments


def _closed_timestamp(segment: Segment) -> int:
    newest = -1
    start = segment.index.boundary_before(max(segment.size - 1, 0))
    for _, batch in segment.headers(start):
        newest = max(newest, batch.max_timestamp)
    return max(newest, segment.last_indexed_time())


def _recover(partition: Partition) -> None:
    """Read whatever the newest usable snapshot does not vouch for."""
    base, position, offset = _resume(partition)
    partition.aborted = [entry for entry in partition.aborted if entry.last < offset]
    for segment in partition.segments:
        if segment.base >= base:
            start = position if segment.base == base else 0
            _read_again(partition, segment, start, offset if start else segment.base)


def _resume(partition: Partition) -> tuple[int, int, int]:
    """Take up a snapshot: return the segment, the position and the offset from which to read."""
    sizes = {segment.base: segment for segment in partition.segments}
    for saved in snapshot.load(partition.folder):
        segment = sizes.get(saved.segment)
        if segment is not None and saved.size <= segment.size:
            partition.producers = Producers.decoded(saved.producers)
            segment.largest_timestamp = max(segment.largest_timestamp, saved.largest_timestamp)
            return saved.segment, saved.size, saved.end
    return partition.segments[0].base, 0, partition.segments[0].base


def _read_again(partition: Partition, segment: Segment, start: int, offset: int) -> None:
    for found in examine(segment, start, offset):
        if isinstance(found, Examination):
            _accept(partition, segment, found)
        elif found[1].producer_id >= 0:
            partition.note(found[1], found[1].base_offset, found[2])
    mine = [entry for entry in partition.aborted if segment.base <= entry.last < segment.end]
    write_aborted(segment.path.with_suffix(".txnindex"), mine)


def _accept(partition: Partition, segment: Segment, result: Examination) -> None:
    segment.largest_timestamp = max(segment.largest_timestamp, result.largest_timestamp)
    segment.damaged = tuple((damage.position, damage.size) for damage in result.damages)
    for damage in result.damages:
        log.error("%s: these records cannot be read, those behind them can", damage)
    tail = Damage(segment.path, result.position, segment.size - result.position)
    if segment is not partition.active:
        if tail.size:
            log.error("%s: the segment ends early, records up to %d are lost", tail, segment.end)
        return
    segment.end = result.end
    if tail.size:
        log.warning("%s: a torn tail, cut back to offset %d", tail, result.end)
        segment.cut(result.position)
        _next_epoch(partition)


def _next_epoch(partition: Partition) -> None:
    # Readers may have seen what was cut; a new leader epoch lets them notice (OffsetForLeaderEpoch).
    partition.leader_epoch += 1
    partition.epochs.append((partition.leader_epoch, partition.end))
    snapshot.write_whole(partition.folder / _EPOCHS, json.dumps(partition.epochs).encode())


def _read_epochs(partition: Partition) -> None:
    path = partition.folder / _EPOCHS
    if path.exists():
        partition.epochs = [(epoch, start) for epoch, start in json.loads(path.read_bytes())]
        partition.leader_epoch = partition.epochs[-1][0]


def _saved_start(folder: Path) -> int:
    path = folder / "log-start"
    return int(path.read_bytes()) if path.exists() else 0
