"""Compaction: only the last record of each key is retained, and tombstones for a while.

The work is done on closed segments, which do not change, and may run in a thread; only `swap_in` changes the partition.

Cleaned segments are written in a folder of their own. The rename to `<base>-<end>.swap` commits one: it is complete and
on disk, and from then on replaces all segments from `base` to `end`. Opening a partition repeats the remaining steps
after a crash, and discards what was not committed.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from penstock.kafka.batches import BatchHeader, header_at
from penstock.kafka.records import decompress_records, key_and_value, raw_records
from penstock.log.errors import LogError
from penstock.log.storage.checkpoints import (
    CleanerCheckpoint,
    write_cleaner_checkpoint,
    write_txn_index,
)
from penstock.log.storage.memory_usage import COMPACTION_KEYS
from penstock.log.storage.partition import Partition
from penstock.log.storage.producer_state import AbortedTxn
from penstock.log.storage.retention import newest
from penstock.log.storage.rewriting import AbortedRanges, MustRetain, Rewriter, key_hash
from penstock.log.storage.segments.files import FilePool, sync_folder
from penstock.log.storage.segments.scan import LogInvariants, ScanResult, SegmentPrefix, scan
from penstock.log.storage.segments.segment import MAX_SPAN, Damage, Segment
from penstock.log.storage.topics import Topic

log = logging.getLogger("penstock.log")
MOST_KEYS = 200_000  # about 40 MB; with more keys than that compaction takes several passes
_CLEANED = "cleaned"
_INDEXES = (".index", ".timeindex")
_PARTS = (".log", *_INDEXES, ".txnindex")


@dataclass(frozen=True)
class CompactionPlan:
    """The input of one pass; immutable while it runs."""

    folder: Path
    sources: tuple[SegmentPrefix, ...]
    dirty: int
    aborted: tuple[AbortedTxn, ...]
    last: MustRetain
    invariants: LogInvariants
    now: int
    delete_retention_ms: int
    segment_bytes: int
    most_keys: int = MOST_KEYS


class CleanedSegment(NamedTuple):
    """A cleaned segment that will replace its sources."""

    path: Path
    sources: tuple[SegmentPrefix, ...]


class CompactionResult(NamedTuple):
    """The result of a pass: before `end` each key occurs once."""

    products: list[CleanedSegment]
    end: int


class DamagedSegmentError(Exception):
    """A segment to be compacted is damaged; it is left unchanged."""

    def __init__(self, damages: list[Damage]) -> None:
        super().__init__(str(damages[0]))
        self.damages = damages


def plan_compaction(partition: Partition, topic: Topic, now: int, *, force: bool = False) -> CompactionPlan | None:
    """Return the next pass, or None if the dirty ratio is too low."""
    segments = _cleanable(partition, topic, now)
    dirty = [segment for segment in segments if segment.end > partition.cleaner_checkpoint.offset]
    if not dirty or any(segment.damaged for segment in segments):
        return None
    share = sum(each.size for each in dirty) / max(sum(each.size for each in segments), 1)
    overdue = now - newest(dirty[0]) > topic.setting("max.compaction.lag.ms")
    if not force and not overdue and share < topic.setting("min.cleanable.dirty.ratio"):
        return None
    return CompactionPlan(
        folder=partition.folder,
        sources=tuple(SegmentPrefix(each.path, each.base, each.end, each.size) for each in segments),
        dirty=partition.cleaner_checkpoint.offset,
        aborted=tuple(partition.aborted),
        last=_last(partition, segments[-1].end - 1),
        invariants=partition.invariants,
        now=now,
        delete_retention_ms=topic.setting("delete.retention.ms"),
        segment_bytes=partition.config.segment_bytes,
    )


def _cleanable(partition: Partition, topic: Topic, now: int) -> list[Segment]:
    lag, found = topic.setting("min.compaction.lag.ms"), []
    for segment in partition.segments[:-1]:
        if segment.end > partition.last_stable_offset or (lag and now - newest(segment) < lag):
            break
        found.append(segment)
    return found


def _last(partition: Partition, offset: int) -> MustRetain:
    known = partition.producers.items()
    batches = frozenset(producer.recent[-1].offset for _, producer in known if producer.recent)
    return MustRetain(batches, {key: producer.epoch for key, producer in known if not producer.recent}, offset)


def compact(plan: CompactionPlan, throttle: Callable[[], None] = lambda: None) -> CompactionResult:
    """Write the cleaned segments. Calls `throttle` between batches; it may raise to stop the pass."""
    try:
        return _compact(plan, throttle)
    finally:
        COMPACTION_KEYS.value = 0


def _compact(plan: CompactionPlan, throttle: Callable[[], None]) -> CompactionResult:
    reading, writing = FilePool(8, read_only=True), FilePool(8)
    folder = cleaned_folder(plan.folder)
    ranges = AbortedRanges(plan.aborted)
    keys, end = _newest_offsets(plan, ranges, reading, throttle)
    rewriter = Rewriter(keys, end, ranges, plan.last, plan.now, plan.delete_retention_ms)
    products = []
    for group in _groups([source for source in plan.sources if source.base < end], plan.segment_bytes):
        cleaned = Segment(folder / group[0].path.name, writing)
        cleaned.create()
        changed = len(group) > 1
        for source in group:
            for batch, data in _whole_batches(source.opened(reading), plan.invariants):
                kept = rewriter.rewrite(batch, data)
                changed |= kept is not data
                if kept is not None:
                    cleaned.append(kept, [(0, header_at(kept))], batch.base_offset)
                throttle()
        if changed:
            products.append(_closed(cleaned, group))
    return CompactionResult(products, end)


def _newest_offsets(
    plan: CompactionPlan, aborted: AbortedRanges, handles: FilePool, throttle: Callable[[], None]
) -> tuple[dict[bytes, int], int]:
    """Map the keys of the dirty part to their last offsets; stop at `most_keys`, and return the offset reached."""
    keys: dict[bytes, int] = {}
    for source in plan.sources:
        if source.end <= plan.dirty:
            continue
        for _, batch, data in source.opened(handles).batches():
            COMPACTION_KEYS.value = len(keys)
            if batch.last_offset < plan.dirty or batch.is_control or aborted.contains(batch):
                continue
            if keys and len(keys) + batch.record_count > plan.most_keys:
                return keys, batch.base_offset
            with suppress(LogError):
                keys.update(_keys(batch, data))
            throttle()
    return keys, plan.sources[-1].end


def _keys(batch: BatchHeader, data: memoryview) -> Iterator[tuple[bytes, int]]:
    body = decompress_records(data)
    for _, delta, start, _ in raw_records(body, batch.record_count):
        key, _ = key_and_value(body, start)
        if key is not None:
            yield key_hash(key), batch.base_offset + delta


def _groups(sources: list[SegmentPrefix], most: int) -> Iterator[tuple[SegmentPrefix, ...]]:
    """Group small adjacent segments, so that compaction leaves few files."""
    group: list[SegmentPrefix] = []
    for source in sources:
        size = sum(each.size for each in group) + source.size
        if group and (size > most or source.end - group[0].base > MAX_SPAN):
            yield tuple(group)
            group = []
        group.append(source)
    if group:
        yield tuple(group)


def _whole_batches(segment: Segment, invariants: LogInvariants) -> Iterator[tuple[BatchHeader, memoryview]]:
    for found in scan(segment, invariants=invariants):
        if not isinstance(found, ScanResult):
            yield found[1], found[2]
        elif found.damages:
            raise DamagedSegmentError(found.damages)


def _closed(cleaned: Segment, group: tuple[SegmentPrefix, ...]) -> CleanedSegment:
    cleaned.end = group[-1].end
    cleaned.close()
    cleaned.handle.sync()
    return CleanedSegment(cleaned.path, group)


def swap_in(partition: Partition, outcome: CompactionResult) -> bool:
    """Replace the sources by the cleaned segments, all at once; return whether that was possible."""
    return all(swap_steps(partition, outcome))


def swap_steps(partition: Partition, outcome: CompactionResult) -> Iterator[bool]:
    """Replace the sources by the cleaned segments, one per step, so that the event loop is not blocked.

    Yields False, and stops, if the partition has changed its segments in the meantime.
    """
    gaps = max(partition.cleaner_checkpoint.gaps, outcome.end)
    partition.cleaner_checkpoint = partition.cleaner_checkpoint._replace(gaps=gaps)
    write_cleaner_checkpoint(partition.folder, partition.cleaner_checkpoint)
    for product in outcome.products:
        if not _fits(partition, product):
            yield False
            return
        _replace(partition, product, outcome.end)
        yield True
    partition.aborted = [entry for entry in partition.aborted if entry.last >= outcome.end]
    partition.cleaner_checkpoint = CleanerCheckpoint(outcome.end, gaps)
    write_cleaner_checkpoint(partition.folder, partition.cleaner_checkpoint)
    discard_cleaned(partition.folder)


def _fits(partition: Partition, product: CleanedSegment) -> bool:
    kept = {(segment.base, segment.size) for segment in partition.segments[:-1]}
    return all((source.base, source.size) in kept for source in product.sources)


def _replace(partition: Partition, product: CleanedSegment, cleaned_until: int) -> None:
    base, end = product.sources[0].base, product.sources[-1].end
    old = [segment for segment in partition.segments if base <= segment.base < end]
    partition.drop_snapshots({segment.base for segment in old})
    aborted = [entry for segment in old for entry in partition.aborted_in(segment)]
    # A superset of what the new segment needs, so that it is correct before and after the swap.
    write_txn_index(old[0].aborted_path, aborted)
    swap = commit_swap(product.path, end)
    for segment in old:
        segment.release()
    fresh = Segment(finish_swap(swap), partition.handles)
    fresh.closed_at(end)
    fresh.created = old[-1].created
    at = partition.segments.index(old[0])
    partition.segments[at : at + len(old)] = [fresh]
    write_txn_index(fresh.aborted_path, [entry for entry in aborted if entry.last >= cleaned_until])


def cleaned_folder(folder: Path) -> Path:
    """Create and return the empty folder that compaction writes to."""
    discard_cleaned(folder)
    cleaned = folder / _CLEANED
    cleaned.mkdir()
    return cleaned


def discard_cleaned(folder: Path) -> None:
    """Delete what compaction has written and not swapped in."""
    shutil.rmtree(folder / _CLEANED, ignore_errors=True)


def commit_swap(cleaned: Path, end: int) -> Path:
    """Commit a cleaned segment that is on disk: it replaces the segments from its base to `end`."""
    folder = cleaned.parent.parent
    swap = folder / f"{cleaned.stem}-{end:020d}.swap"
    os.replace(cleaned, swap)
    sync_folder(folder)
    return swap


def finish_swap(swap: Path) -> Path:
    """Delete the old segments and rename the new one; can be repeated after a crash at any step."""
    folder, (base, end) = swap.parent, swap.stem.split("-")
    log = folder / f"{base}.log"
    stay = (log, log.with_suffix(".txnindex"))
    for path in _files_between(folder, int(base), int(end)):
        if path not in stay:
            path.unlink(missing_ok=True)
    os.replace(swap, log)
    # Only now: a missing index is rebuilt, but one that does not match the segment would return wrong positions.
    for path in ((folder / _CLEANED / log.name).with_suffix(suffix) for suffix in _INDEXES):
        if path.exists():
            os.replace(path, folder / path.name)
    sync_folder(folder)
    return log


def finish_swaps(folder: Path) -> None:
    """After a crash: discard what was not committed, finish what was."""
    discard_cleaned(folder)
    for swap in sorted(folder.glob("*.swap")):
        finish_swap(swap)


def _files_between(folder: Path, base: int, end: int) -> Iterator[Path]:
    for path in list(folder.iterdir()):
        if path.suffix in _PARTS and path.stem.isdecimal() and base <= int(path.stem) < end:
            yield path
