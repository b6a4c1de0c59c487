"""CreateTopics, DeleteTopics, CreatePartitions, DeleteRecords."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any
from uuid import UUID

from penstock.log.configs.topic import checked_config, refuse_internal
from penstock.log.errors import ErrorCode, LogError
from penstock.log.handlers.config_resources import topic_entries
from penstock.log.protocol.messages import Fields
from penstock.log.request_context import CLUSTER, Call
from penstock.log.storage.topics import Topic

_MOST_PARTITIONS = 10_000  # of one request, as in Kafka
_TOO_MANY: Fields = {
    "error_code": ErrorCode.policy_violation,
    "error_message": f"the topics of one request have more than {_MOST_PARTITIONS} partitions: use several requests",
}
_DUPLICATE: Fields = {"error_code": ErrorCode.invalid_request, "error_message": "the topic is named more than once"}


async def create_topics(call: Call, request: Any) -> Fields:
    """Create topics; with `validate_only`, only check the request."""
    topics = {topic.name: topic for topic in request.topics}
    twice = _twice(topic.name for topic in request.topics)
    refused = [{**_DUPLICATE, "name": name, "num_partitions": -1} for name in twice]
    if sum(min(max(_partitions(call, topic), 1), _MOST_PARTITIONS) for topic in topics.values()) > _MOST_PARTITIONS:
        return {"topics": [{**_TOO_MANY, "name": name, "num_partitions": -1} for name in topics]}
    created = [await _create(call, topic, request.validate_only) for name, topic in topics.items() if name not in twice]
    return {"topics": [*created, *refused]}


def _twice(names: Iterable[str | None]) -> dict[str, int]:
    return {name: times for name, times in Counter(names).items() if name is not None and times > 1}


async def _create(call: Call, asked: Any, validate_only: bool) -> Fields:
    try:
        topic = await _created(call, asked, validate_only)
    except LogError as error:
        return {"name": asked.name, "error_code": error.code, "error_message": error.message, "num_partitions": -1}
    return {
        "name": topic.name,
        "topic_id": topic.id,
        "num_partitions": topic.partitions,
        "replication_factor": 1,
        "configs": topic_entries(topic, call.broker.store.settings),
    }


async def _created(call: Call, asked: Any, validate_only: bool) -> Topic:
    if not (call.allowed("CREATE", "CLUSTER", CLUSTER) or call.allowed("CREATE", "TOPIC", asked.name)):
        raise LogError(ErrorCode.topic_authorization_failed)
    _check_assignments(call, asked)
    partitions = _partitions(call, asked)
    if asked.replication_factor not in (-1, 1):
        message = f"replication factor {asked.replication_factor}: this log is a single node without replication"
        raise LogError(ErrorCode.invalid_replication_factor, message)
    config = {each.name: each.value for each in asked.configs if each.value is not None}
    if len(config) < len(asked.configs):
        raise LogError(ErrorCode.invalid_config, "a setting has no value, or appears more than once")
    if validate_only:
        call.broker.store.topics.check_new(asked.name, partitions, config)
        defaults = call.broker.store.settings.topic_defaults
        return Topic(asked.name, UUID(int=0), partitions, checked_config(config), defaults=defaults)
    return await call.broker.create_topic(asked.name, partitions, config)


def _partitions(call: Call, asked: Any) -> int:
    partitions: int = len(asked.assignments) or asked.num_partitions
    return call.broker.default_partitions if partitions == -1 else partitions


def _check_assignments(call: Call, asked: Any) -> None:
    if not asked.assignments:
        return
    if (asked.num_partitions, asked.replication_factor) != (-1, -1):
        message = "with an assignment, the numbers of partitions and replicas must be -1"
        raise LogError(ErrorCode.invalid_request, message)
    if sorted(one.partition_index for one in asked.assignments) != list(range(len(asked.assignments))):
        raise LogError(ErrorCode.invalid_replica_assignment, "partitions must be numbered from 0 on, without gaps")
    _check_replicas(call, asked.assignments)


def _check_replicas(call: Call, assignments: Iterable[Any]) -> None:
    here = call.broker.node_id
    if any(tuple(one.broker_ids) != (here,) for one in assignments):
        raise LogError(ErrorCode.invalid_replica_assignment, f"each partition has one replica, on broker {here}")


async def delete_topics(call: Call, request: Any) -> Fields:
    """Delete topics by name or id."""
    by_id = {topic.id: topic.name for topic in call.broker.store.topics.values()}
    if call.version >= 6:
        asked = [
            (one.name if one.name is not None else by_id.get(one.topic_id), one.topic_id) for one in request.topics
        ]
    else:
        asked = [(name, None) for name in request.topic_names]
    twice = _twice(name for name, _ in asked)
    refused = [{**_DUPLICATE, "name": name} for name in twice]
    deleted = [await _delete(call, name, topic_id) for name, topic_id in asked if name not in twice]
    return {"responses": [*deleted, *refused]}


async def _delete(call: Call, name: str | None, topic_id: Any) -> Fields:
    answer: Fields = {"name": name, "topic_id": topic_id}
    if name is None:
        return {**answer, "error_code": ErrorCode.unknown_topic_id}
    try:
        if not call.allowed("DELETE", "TOPIC", name):
            raise LogError(ErrorCode.topic_authorization_failed)
        refuse_internal(name, "delete")
        topic = call.broker.store.topic(name)
        call.broker.store.delete_topic(name)
        await call.broker.groups.forget_topic(name)
        return {**answer, "topic_id": topic.id}
    except LogError as error:
        return {**answer, "error_code": error.code, "error_message": error.message}


async def create_partitions(call: Call, request: Any) -> Fields:
    """Add partitions to topics."""
    return {"results": [_add_partitions(call, topic, request.validate_only) for topic in request.topics]}


def _add_partitions(call: Call, asked: Any, validate_only: bool) -> Fields:
    try:
        if not call.allowed("ALTER", "TOPIC", asked.name):
            raise LogError(ErrorCode.topic_authorization_failed)
        refuse_internal(asked.name, "add partitions to")
        topic = call.broker.store.topic(asked.name)
        call.broker.store.topics.check_grown(asked.name, asked.count)
        if asked.assignments is not None:
            if len(asked.assignments) != asked.count - topic.partitions:
                message = f"{asked.count - topic.partitions} partitions are added, {len(asked.assignments)} assigned"
                raise LogError(ErrorCode.invalid_replica_assignment, message)
            _check_replicas(call, asked.assignments)
        if not validate_only:
            call.broker.store.add_partitions(asked.name, asked.count)
        return {"name": asked.name}
    except LogError as error:
        return {"name": asked.name, "error_code": error.code, "error_message": error.message}


async def delete_records(call: Call, request: Any) -> Fields:
    """Delete the records before an offset; -1 is the high watermark."""
    topics = [
        {"name": topic.name, "partitions": [_delete_records(call, topic.name, one) for one in topic.partitions]}
        for topic in request.topics
    ]
    return {"topics": topics}


def _delete_records(call: Call, name: str, asked: Any) -> Fields:
    answer: Fields = {"partition_index": asked.partition_index, "low_watermark": -1}
    try:
        if not call.allowed("DELETE", "TOPIC", name):
            raise LogError(ErrorCode.topic_authorization_failed)
        refuse_internal(name, "delete records of")
        if call.broker.store.topic(name).setting("cleanup.policy") == ("compact",):
            raise LogError(ErrorCode.policy_violation, f"{name} is compacted: its records are not deleted by offset")
        partition = call.broker.store.partition(name, asked.partition_index)
        partition.truncate_before(partition.high_watermark if asked.offset == -1 else asked.offset)
        return {**answer, "low_watermark": partition.log_start}
    except LogError as error:
        return {**answer, "error_code": error.code}
    except OSError:
        return {**answer, "error_code": ErrorCode.kafka_storage_error}


HANDLERS = {
    "create_topics": create_topics,
    "delete_topics": delete_topics,
    "create_partitions": create_partitions,
    "delete_records": delete_records,
}
