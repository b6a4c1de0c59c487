"""Search for the first record at or after a time: ListOffsets.

The batches that may contain it are found on the event loop, by their headers, a bounded part of a segment at a time:
a segment may have millions of batches. Their records are decoded in a thread: a batch of a few kilobytes may hold
millions.
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
from penstock.log.storage.segments.segment import Segment

_MOST_BYTES = 256 << 10  # of the batches that one step looks at, unless it is a single one


class Candidates(NamedTuple):
    """Some batches of a segment, by position and size, or none; the search goes on at the offset `following`."""

    handle: Handle
    batches: list[tuple[int, int]]
    following: int
    log_start: int


def next_candidates(partition: Partition, timestamp: int, offset: int) -> Candidates | None:
    """Look at some batches from an offset on; return those that may contain a record at or after a time."""
    for segment in partition.segments:
        if segment.end > max(offset, partition.log_start) and segment.largest_timestamp >= timestamp:
            found, following = _look(segment, _start(partition, segment, timestamp, offset), timestamp)
            return Candidates(segment.handle, found, following, partition.log_start)
    return None


def _start(partition: Partition, segment: Segment, timestamp: int, offset: int) -> int:
    first = max(segment.base, partition.log_start)
    # A search that goes on in the middle of a segment has skipped what the time index lets it skip.
    return segment.position_of(offset) if offset > first else segment.position_of_time(timestamp, first)


def _look(segment: Segment, start: int, timestamp: int) -> tuple[list[tuple[int, int]], int]:
    found, following, size = list[tuple[int, int]](), 0, 0
    for position, batch in segment.headers(start):
        size += batch.size
        if following and size > _MOST_BYTES:
            return found, following
        # Within bounds whatever a damaged header says, so that each step goes on and none leaves the segment.
        following = min(max(following, batch.last_offset + 1), segment.end)
        if batch.max_timestamp >= timestamp:
            found.append((position, batch.size))
    return found, segment.end


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
