"""Search for the first record at or after a time: ListOffsets.

The batches that may contain it are found on the event loop, by their headers. Their records are decoded in a thread:
a batch of a few kilobytes may hold millions.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from penstock.kafka.batches import HEADER_SIZE, header_at
from penstock.kafka.compression import decompressed
from penstock.kafka.records import raw_records
from penstock.log.errors import LogError
from penstock.log.storage.memory_usage import DECOMPRESSED_BYTES
from penstock.log.storage.partition import Partition
from penstock.log.storage.segments.files import Handle

_MOST_BYTES = 256 << 10  # of the batches of one step, unless it is a single one


class Candidates(NamedTuple):
    """Some batches of a segment, by position and size; `following` is the offset after the last of them."""

    handle: Handle
    batches: list[tuple[int, int]]
    following: int
    log_start: int


def next_candidates(partition: Partition, timestamp: int, offset: int) -> Candidates | None:
    """Return the next batches from an offset on that may contain a record at or after a time."""
    for segment in partition.segments:
        if segment.end <= max(offset, partition.log_start):
            continue
        batches, following, size = list[tuple[int, int]](), offset, 0
        for position, batch in segment.find_time(timestamp, offset):
            if batch.last_offset < partition.log_start:
                continue
            if batches and size + batch.size > _MOST_BYTES:
                break
            batches.append((position, batch.size))
            following, size = batch.last_offset + 1, size + batch.size
        if batches:
            return Candidates(segment.handle, batches, following, partition.log_start)
    return None


def first_record(
    candidates: Candidates, timestamp: int, throttle: Callable[[], None] = lambda: None
) -> tuple[int, int] | None:
    """Return timestamp and offset of the first record. Calls `throttle` between records; it may raise to stop."""
    for position, size in candidates.batches:
        with suppress(LogError):  # a client sent bytes that are not records
            data = memoryview(candidates.handle.read(position, size))
            found = _first_at(data, timestamp, candidates.log_start, throttle)
            if found is not None:
                return found
    return None


def _first_at(data: memoryview, timestamp: int, start: int, throttle: Callable[[], None]) -> tuple[int, int] | None:
    batch = header_at(data)
    with decompressed(batch.compression, data[HEADER_SIZE:]) as body, DECOMPRESSED_BYTES.counted(len(body)):
        for time_delta, offset_delta, _, _ in raw_records(body, batch.record_count):
            time = batch.max_timestamp if batch.is_stamped else batch.first_timestamp + time_delta
            if time >= timestamp and batch.base_offset + offset_delta >= start:
                return time, batch.base_offset + offset_delta
            throttle()
    return None
