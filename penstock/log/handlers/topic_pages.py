"""DescribeTopicPartitions: topics a page at a time, for a cluster may have more partitions than one answer should."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from penstock.log.calls import Call
from penstock.log.errors import ErrorCode
from penstock.log.handlers.metadata import partition_entry, topic_operations
from penstock.log.protocol.messages import Fields
from penstock.log.storage.topics import Topic, is_topic_name

MOST_PARTITIONS = 2000  # in one answer, as in Kafka (max.request.partition.size.limit)


async def describe_topic_partitions(call: Call, request: Any) -> Fields:
    """Describe topics by name, all that the client may see if none is named, from the cursor on."""
    cursor = request.cursor
    names = sorted(_names(call, request))
    if cursor is not None and cursor.partition_index < 0:
        # The answer has no place for an error but its topics.
        return {"topics": [{"name": name, "error_code": ErrorCode.invalid_request} for name in names]}
    first = 0
    if cursor is not None:
        names = [name for name in names if name >= cursor.topic_name]
        first = cursor.partition_index if names[:1] == [cursor.topic_name] else 0
    left = max(min(request.response_partition_limit, MOST_PARTITIONS), 1)
    topics, rest = _page(call, names, first, left)
    return {"topics": topics, "next_cursor": rest}


def _names(call: Call, request: Any) -> Iterable[str]:
    if request.topics:
        return {topic.name for topic in request.topics}
    return [name for name in call.broker.store.topics if call.allowed("DESCRIBE", "TOPIC", name)]


def _page(call: Call, names: list[str], first: int, left: int) -> tuple[list[Fields], Fields | None]:
    found: list[Fields] = []
    for name in names:
        if left == 0:
            return found, {"topic_name": name, "partition_index": 0}
        topic = _find(call, name)
        if isinstance(topic, ErrorCode):
            found.append({"name": name, "error_code": topic})
        else:
            end = min(first + left, topic.partitions)
            found.append(_described(call, topic, range(first, end)))
            left -= max(end - first, 0)
            if end < topic.partitions:
                return found, {"topic_name": name, "partition_index": end}
        first = 0
    return found, None


def _find(call: Call, name: str) -> Topic | ErrorCode:
    if not call.allowed("DESCRIBE", "TOPIC", name):
        return ErrorCode.topic_authorization_failed
    if not is_topic_name(name):
        return ErrorCode.invalid_topic_exception
    return call.broker.store.topics.get(name, ErrorCode.unknown_topic_or_partition)


def _described(call: Call, topic: Topic, indexes: range) -> Fields:
    return {
        "name": topic.name,
        "topic_id": topic.id,
        "is_internal": topic.internal,
        "partitions": [_partition(call, topic, index) for index in indexes],
        "topic_authorized_operations": topic_operations(call, topic.name),
    }


def _partition(call: Call, topic: Topic, index: int) -> Fields:
    # One node has no replicas that could be elected instead of the leader.
    return {**partition_entry(call.broker, topic, index), "eligible_leader_replicas": [], "last_known_elr": []}


HANDLERS = {"describe_topic_partitions": describe_topic_partitions}
