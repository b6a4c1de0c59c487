"""Retention by time and size: whole segments are deleted, oldest first."""

from __future__ import annotations

from penstock.log.storage.partition import Partition
from penstock.log.storage.segments.segment import Segment
from penstock.log.storage.topics import Topic


def retain(partition: Partition, topic: Topic, now: int) -> bool:
    """Delete the closed segments beyond the retention, and roll an active segment that is due.

    A segment rolled here is deleted in the next round, when a snapshot has its producers; return whether one was.
    """
    if topic.deletes:
        start = max(_old_until(partition, topic, now), _too_much_until(partition, topic))
        if start > partition.log_start:
            _move_start(partition, start)
    due = bool(partition.active.size) and _is_due(partition, topic, now)
    if due:
        partition.roll(now)
    return due


def _deletable(partition: Partition) -> list[Segment]:
    # Records beyond the last stable offset are retained: not visible yet, or of an open transaction.
    return [segment for segment in partition.segments[:-1] if segment.end <= partition.last_stable_offset]


def _old_until(partition: Partition, topic: Topic, now: int) -> int:
    limit, start = topic.setting("retention.ms"), -1
    for segment in _deletable(partition):
        if limit < 0 or now - newest(segment) <= limit:
            break
        start = segment.end
    return start


def _too_much_until(partition: Partition, topic: Topic) -> int:
    limit, start = topic.setting("retention.bytes"), -1
    excess = partition.size - limit
    for segment in _deletable(partition):
        excess -= segment.size
        if limit < 0 or excess < 0:
            break
        start = segment.end
    return start


def _move_start(partition: Partition, start: int) -> None:
    try:
        partition.truncate_before(start)
    except OSError:
        # On a full disk the log start cannot be stored, and deleting helps: recovery takes it from the first segment.
        partition.log_start = start
        partition.drop_segments()


def _is_due(partition: Partition, topic: Topic, now: int) -> bool:
    active, limit = partition.active, topic.setting("retention.ms")
    expired = topic.deletes and 0 <= limit < now - newest(active)
    return expired or now - active.created > partition.config.segment_ms


def newest(segment: Segment) -> int:
    """Return the timestamp of a segment's newest record; that of the file if its records have none."""
    return segment.largest_timestamp if segment.largest_timestamp >= 0 else segment.created
