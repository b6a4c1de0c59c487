"""Offsets of partitions: ListOffsets (earliest, latest, by time) and OffsetForLeaderEpoch."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import Any

from penstock.log.cleaner import Throttle
from penstock.log.errors import ErrorCode, LogError
from penstock.log.protocol.messages import Fields, given
from penstock.log.request_context import Call
from penstock.log.storage.partition import Partition
from penstock.log.storage.time_search import Candidates, first_record, next_candidates

log = logging.getLogger("penstock.log")
_LATEST, _EARLIEST, _LARGEST, _EARLIEST_LOCAL, _LATEST_TIERED, _EARLIEST_PENDING_UPLOAD = -1, -2, -3, -4, -5, -6
_NEVER = 99
_SINCE = {_LARGEST: 7, _EARLIEST_LOCAL: 8, _LATEST_TIERED: 9, _EARLIEST_PENDING_UPLOAD: 11}


async def list_offsets(call: Call, request: Any) -> Fields:
    """Return the first or last offset, or that of a time, for each partition."""
    committed = bool(given(request, "isolation_level", 0))
    return {"topics": [await _topic(call, topic, committed) for topic in request.topics]}


async def _topic(call: Call, topic: Any, committed: bool) -> Fields:
    asked = {one.partition_index: one for one in topic.partitions}
    counts = Counter(one.partition_index for one in topic.partitions)
    answers = [await _answer(call, topic.name, one, committed, counts[index] > 1) for index, one in asked.items()]
    return {"name": topic.name, "partitions": answers}


async def _answer(call: Call, topic: str, asked: Any, committed: bool, repeated: bool) -> Fields:
    found: Fields = {"partition_index": asked.partition_index, "timestamp": -1, "offset": -1, "leader_epoch": -1}
    try:
        if not call.allowed("DESCRIBE", "TOPIC", topic):
            raise LogError(ErrorCode.topic_authorization_failed)
        if repeated:
            raise LogError(ErrorCode.invalid_request)
        partition = call.broker.store.partition(topic, asked.partition_index)
        _check_epoch(partition, given(asked, "current_leader_epoch", -1))
        wanted = _milliseconds(asked.timestamp)
        if wanted < _EARLIEST and call.version < _SINCE.get(wanted, _NEVER):
            raise LogError(ErrorCode.unsupported_version)
        timestamp, offset = await _find(call, partition, wanted, committed)
        # Clients treat it as the epoch of a record, so it is -1 without an offset.
        epoch = partition.leader_epoch if offset >= 0 else -1
        return {**found, "timestamp": timestamp, "offset": offset, "leader_epoch": epoch}
    except LogError as error:
        return {**found, "error_code": error.code}
    except OSError:
        log.exception("%s-%d cannot be read", topic, asked.partition_index)
        return {**found, "error_code": ErrorCode.kafka_storage_error}


async def _find(call: Call, partition: Partition, wanted: int, committed: bool) -> tuple[int, int]:
    last = partition.last_stable_offset if committed else partition.high_watermark
    if wanted == _LATEST:
        return -1, last
    if wanted in (_EARLIEST, _EARLIEST_LOCAL):
        return -1, partition.log_start
    if wanted in (_LATEST_TIERED, _EARLIEST_PENDING_UPLOAD):
        return -1, -1  # there is no tiered storage
    found = await _first_since(call, partition, partition.largest_timestamp if wanted == _LARGEST else wanted, last)
    return found if found is not None and found[1] < last else (-1, -1)


async def _first_since(call: Call, partition: Partition, timestamp: int, last: int) -> tuple[int, int] | None:
    """Return (timestamp, offset) of the first record at or after a time; it may be none of those before `last`."""
    if timestamp < 0:
        return None
    throttle, offset = Throttle(), 0
    try:
        while offset < last and (candidates := next_candidates(partition, timestamp, offset)) is not None:
            if (found := await _decode(call, candidates, timestamp, throttle)) is not None:
                return found
            offset = candidates.following
        return None
    finally:
        throttle.stopped = True  # the client may have gone


async def _decode(call: Call, candidates: Candidates, timestamp: int, throttle: Throttle) -> tuple[int, int] | None:
    if not candidates.batches:
        await asyncio.sleep(0)  # others are served before the search goes on
        return None
    async with call.broker.time_searches:
        return await asyncio.to_thread(first_record, candidates, timestamp, throttle)


def _check_epoch(partition: Partition, epoch: int) -> None:
    if epoch > partition.leader_epoch:
        raise LogError(ErrorCode.unknown_leader_epoch)
    if 0 <= epoch < partition.leader_epoch:
        raise LogError(ErrorCode.fenced_leader_epoch)


def _milliseconds(timestamp: Any) -> int:
    return timestamp if isinstance(timestamp, int) else int(timestamp.timestamp() * 1000)


async def offset_for_leader_epoch(call: Call, request: Any) -> Fields:
    """Return where a leader epoch ended, so that a client detects truncation."""
    topics = [
        {"topic": topic.topic, "partitions": [_epoch_end(call, topic.topic, one) for one in topic.partitions]}
        for topic in request.topics
    ]
    return {"topics": topics}


def _epoch_end(call: Call, topic: str, asked: Any) -> Fields:
    found: Fields = {"partition": asked.partition, "leader_epoch": -1, "end_offset": -1}
    if not call.allowed("DESCRIBE", "TOPIC", topic):
        return {**found, "error_code": ErrorCode.topic_authorization_failed}
    try:
        partition = call.broker.store.partition(topic, asked.partition)
    except LogError as error:
        return {**found, "error_code": error.code}
    epochs = [epoch for epoch, _ in partition.epochs if epoch <= asked.leader_epoch]
    if not epochs or asked.leader_epoch > partition.leader_epoch:
        return found
    ends = [start for epoch, start in partition.epochs if epoch > asked.leader_epoch]
    return {**found, "leader_epoch": epochs[-1], "end_offset": ends[0] if ends else partition.high_watermark}


HANDLERS = {"list_offsets": list_offsets, "offset_for_leader_epoch": offset_for_leader_epoch}
