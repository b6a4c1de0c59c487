"""Where things are: offsets by time, offsets of leader epochs."""

from __future__ import annotations

from typing import Any

from penstock.log.calls import Call
from penstock.log.errors import ErrorCode, LogError
from penstock.log.protocol.messages import Fields, given
from penstock.log.storage.partition import Partition

_LATEST, _EARLIEST, _LARGEST = -1, -2, -3


async def list_offsets(call: Call, request: Any) -> Fields:
    """Answer the first or last offset, or that of a time, for each partition."""
    committed = bool(given(request, "isolation_level", 0))
    return {"topics": [_topic(call, topic, committed) for topic in request.topics]}


def _topic(call: Call, topic: Any, committed: bool) -> Fields:
    return {"name": topic.name, "partitions": [_answer(call, topic.name, one, committed) for one in topic.partitions]}


def _answer(call: Call, topic: str, asked: Any, committed: bool) -> Fields:
    found: Fields = {"partition_index": asked.partition_index, "timestamp": -1, "offset": -1, "leader_epoch": -1}
    try:
        if not call.allowed("DESCRIBE", "TOPIC", topic):
            raise LogError(ErrorCode.topic_authorization_failed)
        partition = call.broker.store.partition(topic, asked.partition_index)
        timestamp, offset = _find(partition, _milliseconds(asked.timestamp), committed)
        return {**found, "timestamp": timestamp, "offset": offset, "leader_epoch": partition.leader_epoch}
    except LogError as error:
        return {**found, "error_code": error.code}


def _find(partition: Partition, wanted: int, committed: bool) -> tuple[int, int]:
    last = partition.stable if committed else partition.high
    if wanted == _LATEST:
        return -1, last
    if wanted == _EARLIEST:
        return -1, partition.log_start
    found = partition.largest_time() if wanted == _LARGEST else partition.find_time(wanted)
    return found if found is not None and found[1] < last else (-1, -1)


def _milliseconds(timestamp: Any) -> int:
    return timestamp if isinstance(timestamp, int) else int(timestamp.timestamp() * 1000)


async def offset_for_leader_epoch(call: Call, request: Any) -> Fields:
    """Answer where a leader epoch ended, so that a client notices that records were cut."""
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
    return {**found, "leader_epoch": epochs[-1], "end_offset": ends[0] if ends else partition.high}


HANDLERS = {"list_offsets": list_offsets, "offset_for_leader_epoch": offset_for_leader_epoch}
