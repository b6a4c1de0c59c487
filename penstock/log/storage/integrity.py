"""Integrity checks: `penstock log check` of a data folder that is not in use, and the background scrub of a broker.

The scrub reads what was on disk before this start: a byte that has changed is found before a consumer reads it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from penstock.errors import SettingsError
from penstock.kafka.batches import HEADER_SIZE, header_at
from penstock.log.storage.checkpoints import Snapshot, load_snapshots, read_cleaner_checkpoint, read_epochs
from penstock.log.storage.compaction import finish_swaps
from penstock.log.storage.partition import Partition
from penstock.log.storage.segments.files import FilePool
from penstock.log.storage.segments.scan import LogInvariants, ScanResult, SegmentPrefix, scan_all
from penstock.log.storage.segments.segment import Damage, Segment
from penstock.log.storage.store import lock_folder
from penstock.log.storage.topics import Topics

log = logging.getLogger("penstock.log")


@dataclass
class CheckReport:
    """The result; `torn` lists torn tails that a crash left, which the next start truncates."""

    topics: int = 0
    partitions: int = 0
    records: int = 0
    size: int = 0
    damages: list[Damage] = field(default_factory=list)
    torn: list[Damage] = field(default_factory=list)


def check_folder(folder: Path) -> CheckReport:
    """Check every batch; refuse a folder that is in use or contains no log."""
    if not (folder / "topics.json").exists():
        message = f"{folder} contains no log"
        raise SettingsError(message, hint="give the folder that `penstock log serve` was started with: --data DIR")
    lock = lock_folder(folder)
    try:
        return _check_topics(folder)
    finally:
        os.close(lock)


def _check_topics(folder: Path) -> CheckReport:
    topics = Topics(folder / "topics.json")
    checked = CheckReport(len(topics), sum(topic.partitions for topic in topics.values()))
    for topic in topics.values():
        for index in range(topic.partitions):
            if (folder / f"{topic.name}-{index}").exists():
                _check_partition(folder / f"{topic.name}-{index}", checked)
    return checked


def _check_partition(folder: Path, checked: CheckReport) -> None:
    finish_swaps(folder)
    epochs = read_epochs(folder)
    invariants = LogInvariants(read_cleaner_checkpoint(folder).gaps, tuple(epochs) if epochs else None)
    segments = [Segment(path, FilePool(2, read_only=True)) for path in sorted(folder.glob("*.log"))]
    for at, segment in enumerate(segments):
        if at + 1 < len(segments):
            segment.closed, segment.end = True, segments[at + 1].base
        _check_segment(segment, invariants, checked)


def _check_segment(segment: Segment, invariants: LogInvariants, checked: CheckReport) -> None:
    if not segment.path.exists():
        return
    result = scan_all(segment, invariants)
    checked.records += result.records
    checked.size += segment.size
    checked.damages += result.damages
    if not segment.closed:
        _check_tail(segment, result, checked)


def _check_tail(segment: Segment, result: ScanResult, checked: CheckReport) -> None:
    saved = max(
        (each for each in load_snapshots(segment.path.parent) if each.segment == segment.base),
        key=_size,
        default=None,
    )
    torn = segment.size - result.position
    if saved is not None and saved.size > result.position:
        # A snapshot covers it, so it was on disk: this is damage, not a torn tail.
        checked.damages.append(Damage(segment.path, result.position, torn, result.end, saved.end))
    elif torn:
        checked.torn.append(Damage(segment.path, result.position, torn, result.end, result.end))


def _size(saved: Snapshot) -> int:
    return saved.size


@dataclass(frozen=True)
class ScrubTask:
    """The prefix of a segment that was not read since the start."""

    segment: Segment
    source: SegmentPrefix
    invariants: LogInvariants


def next_scrub_task(partition: Partition) -> ScrubTask | None:
    """Return the next segment to scrub."""
    segment = next((segment for segment in partition.segments if segment.unchecked), None)
    if segment is None:
        return None
    source = SegmentPrefix(segment.path, segment.base, _offset_at(segment, segment.unchecked), segment.unchecked)
    return ScrubTask(segment, source, partition.invariants)


def _offset_at(segment: Segment, position: int) -> int:
    head = segment.handle.read(position, HEADER_SIZE)
    return header_at(head).base_offset if position < segment.size else segment.end


def scrub(unchecked: ScrubTask, throttle: Callable[[], None] = lambda: None) -> list[Damage]:
    """Read every batch; may run in a thread. Calls `throttle` between batches; it may raise to stop the scrub."""
    return scan_all(unchecked.source.opened(FilePool(2, read_only=True)), unchecked.invariants, throttle).damages


def record_damage(segment: Segment, damages: list[Damage]) -> None:
    """Log damage and mark it in the segment, which serves everything else."""
    new = [damage for damage in damages if damage not in segment.damaged]
    for damage in new:
        log.error("%s: these records cannot be read, those after them can", damage)
    if new:
        segment.damaged = tuple(sorted({*segment.damaged, *new}, key=lambda damage: damage.position))
        segment.reindex()  # leaves out the damaged bytes
