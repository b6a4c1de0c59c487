"""Compaction: of each key only the last record stays, and a tombstone for a while.

The work is done on closed segments, which do not change, and may run in a thread; only `swap_in` touches the partition.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from penstock.log.errors import LogError
from penstock.log.storage import snapshot
from penstock.log.storage.aborted import write_aborted
from penstock.log.storage.batches import Batch, header_at
from penstock.log.storage.cleaned import Cleaned, write_cleaned
from penstock.log.storage.handles import Handles
from penstock.log.storage.held import COMPACTED_KEYS
from penstock.log.storage.partition import Partition
from penstock.log.storage.producers import Aborted
from penstock.log.storage.records import key_and_value, raw_records, unpacked
from penstock.log.storage.recovery import Examination, Law, Source, examine
from penstock.log.storage.retention import newest
from penstock.log.storage.rewriting import AbortedRanges, Last, Rewriter, key_hash
from penstock.log.storage.segment import MAX_SPAN, Damage, Segment
from penstock.log.storage.swap import cleaned_folder, commit_swap, discard_cleaned, finish_swap
from penstock.log.storage.topics import Topic

log = logging.getLogger("penstock.log")
MOST_KEYS = 200_000  # about 40 MB; with more keys than that compaction takes several passes


@dataclass(frozen=True)
class Plan:
    """All that a pass needs to know; nothing of it changes while it runs."""

    folder: Path
    sources: tuple[Source, ...]
    dirty: int
    aborted: tuple[Aborted, ...]
    last: Last
    law: Law
    now: int
    tombstones_stay: int
    segment_bytes: int
    most_keys: int = MOST_KEYS


class Product(NamedTuple):
    """A cleaned segment that waits to take the place of others."""

    path: Path
    sources: tuple[Source, ...]


class Outcome(NamedTuple):
    """What a pass has made: before `end` each key is there once."""

    products: list[Product]
    end: int


class DamagedSourceError(Exception):
    """A segment that is to be compacted is not what was written; it stays as it is."""

    def __init__(self, damages: list[Damage]) -> None:
        super().__init__(str(damages[0]))
        self.damages = damages


def plan_compaction(partition: Partition, topic: Topic, now: int, *, force: bool = False) -> Plan | None:
    """Return what is to be done, or None if there is too little to gain."""
    segments = _cleanable(partition, topic, now)
    dirty = [segment for segment in segments if segment.end > partition.cleaned.offset]
    if not dirty or any(segment.damaged for segment in segments):
        return None
    share = sum(each.size for each in dirty) / max(sum(each.size for each in segments), 1)
    overdue = now - newest(dirty[0]) > topic.setting("max.compaction.lag.ms")
    if not force and not overdue and share < topic.setting("min.cleanable.dirty.ratio"):
        return None
    return Plan(
        folder=partition.folder,
        sources=tuple(Source(each.path, each.base, each.end, each.size) for each in segments),
        dirty=partition.cleaned.offset,
        aborted=tuple(partition.aborted),
        last=_last(partition, segments[-1].end - 1),
        law=partition.law,
        now=now,
        tombstones_stay=topic.setting("delete.retention.ms"),
        segment_bytes=partition.rules.segment_bytes,
    )


def _cleanable(partition: Partition, topic: Topic, now: int) -> list[Segment]:
    lag, found = topic.setting("min.compaction.lag.ms"), []
    for segment in partition.segments[:-1]:
        if segment.end > partition.stable or (lag and now - newest(segment) < lag):
            break
        found.append(segment)
    return found


def _last(partition: Partition, offset: int) -> Last:
    known = partition.producers.items()
    batches = frozenset(producer.recent[-1].offset for _, producer in known if producer.recent)
    return Last(batches, {key: producer.epoch for key, producer in known if not producer.recent}, offset)


def compact(plan: Plan, breathe: Callable[[], None] = lambda: None) -> Outcome:
    """Write the cleaned segments. Calls `breathe` between batches, which may raise to stop it."""
    try:
        return _compact(plan, breathe)
    finally:
        COMPACTED_KEYS.now = 0


def _compact(plan: Plan, breathe: Callable[[], None]) -> Outcome:
    reading, writing = Handles(8, create=False), Handles(8)
    folder = cleaned_folder(plan.folder)
    ranges = AbortedRanges(plan.aborted)
    keys, end = _newest_offsets(plan, ranges, reading, breathe)
    rewriter = Rewriter(keys, end, ranges, plan.last, plan.now, plan.tombstones_stay)
    products = []
    for group in _groups([source for source in plan.sources if source.base < end], plan.segment_bytes):
        cleaned = Segment(folder / group[0].path.name, writing)
        changed = len(group) > 1
        for source in group:
            for batch, data in _whole_batches(source.opened(reading), plan.law):
                kept = rewriter.rewrite(batch, data)
                changed |= kept is not data
                if kept is not None:
                    cleaned.append(kept, [(0, header_at(kept))], batch.base_offset)
                breathe()
        if changed:
            products.append(_closed(cleaned, group))
    return Outcome(products, end)


def _newest_offsets(
    plan: Plan, aborted: AbortedRanges, handles: Handles, breathe: Callable[[], None]
) -> tuple[dict[bytes, int], int]:
    """Map the keys of the dirty part to their last offsets; stop when there are too many, and say where."""
    keys: dict[bytes, int] = {}
    for source in plan.sources:
        if source.end <= plan.dirty:
            continue
        for _, batch, data in source.opened(handles).batches():
            COMPACTED_KEYS.now = len(keys)
            if batch.last_offset < plan.dirty or batch.is_control or aborted.hold(batch):
                continue
            if keys and len(keys) + batch.record_count > plan.most_keys:
                return keys, batch.base_offset
            with suppress(LogError):
                keys.update(_keys(batch, data))
            breathe()
    return keys, plan.sources[-1].end


def _keys(batch: Batch, data: memoryview) -> Iterator[tuple[bytes, int]]:
    body = unpacked(data)
    for _, delta, start, _ in raw_records(body, batch.record_count):
        key, _ = key_and_value(body, start)
        if key is not None:
            yield key_hash(key), batch.base_offset + delta


def _groups(sources: list[Source], most: int) -> Iterator[tuple[Source, ...]]:
    """Put small neighbours together, so that compaction leaves few files."""
    group: list[Source] = []
    for source in sources:
        size = sum(each.size for each in group) + source.size
        if group and (size > most or source.end - group[0].base > MAX_SPAN):
            yield tuple(group)
            group = []
        group.append(source)
    if group:
        yield tuple(group)


def _whole_batches(segment: Segment, law: Law) -> Iterator[tuple[Batch, memoryview]]:
    for found in examine(segment, law=law):
        if not isinstance(found, Examination):
            yield found[1], found[2]
        elif found.damages:
            raise DamagedSourceError(found.damages)


def _closed(cleaned: Segment, group: tuple[Source, ...]) -> Product:
    cleaned.end = group[-1].end
    cleaned.close()
    cleaned.handle.sync()
    return Product(cleaned.path, group)


def swap_in(partition: Partition, outcome: Outcome) -> bool:
    """Let the cleaned segments take their places, all at once; say whether they could."""
    return all(swap_steps(partition, outcome))


def swap_steps(partition: Partition, outcome: Outcome) -> Iterator[bool]:
    """Let the cleaned segments take their places, one at each step, so that the loop is not held up.

    Yields False, and does no more, if the partition has changed its segments meanwhile.
    """
    gaps = max(partition.cleaned.gaps, outcome.end)
    partition.cleaned = partition.cleaned._replace(gaps=gaps)
    write_cleaned(partition.folder, partition.cleaned)
    for product in outcome.products:
        if not _fits(partition, product):
            yield False
            return
        _replace(partition, product, outcome.end)
        yield True
    partition.aborted = [entry for entry in partition.aborted if entry.last >= outcome.end]
    partition.cleaned = Cleaned(outcome.end, gaps)
    write_cleaned(partition.folder, partition.cleaned)
    discard_cleaned(partition.folder)


def _fits(partition: Partition, product: Product) -> bool:
    kept = {(segment.base, segment.size) for segment in partition.segments[:-1]}
    return all((source.base, source.size) in kept for source in product.sources)


def _replace(partition: Partition, product: Product, cleaned_until: int) -> None:
    base, end = product.sources[0].base, product.sources[-1].end
    old = [segment for segment in partition.segments if base <= segment.base < end]
    _drop_snapshots(partition.folder, {segment.base for segment in old})
    aborted = [entry for segment in old for entry in partition.aborted_in(segment)]
    # More than the new segment needs, so that it is right before the swap and behind it.
    write_aborted(old[0].aborted_path, aborted)
    swap = commit_swap(product.path, end)
    for segment in old:
        segment.forget()
    fresh = Segment(finish_swap(swap), partition.handles)
    fresh.closed_at(end)
    fresh.created = old[-1].created
    at = partition.segments.index(old[0])
    partition.segments[at : at + len(old)] = [fresh]
    write_aborted(fresh.aborted_path, [entry for entry in aborted if entry.last >= cleaned_until])


def _drop_snapshots(folder: Path, bases: set[int]) -> None:
    # They tell a position in a file that is about to change.
    for saved in snapshot.load(folder):
        if saved.segment in bases:
            snapshot.path_of(folder, saved.end).unlink(missing_ok=True)
