"""Metadata: which topics there are, and that this broker leads them all."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from penstock.log.broker import Broker
from penstock.log.calls import CLUSTER, Call
from penstock.log.errors import ErrorCode, LogError
from penstock.log.protocol.messages import Fields, distinct, given
from penstock.log.storage.internal import INTERNAL_TOPICS
from penstock.log.storage.topics import Topic, is_topic_name

_TOPIC_OPERATIONS = {"READ": 3, "WRITE": 4, "CREATE": 5, "DELETE": 6, "ALTER": 7, "DESCRIBE": 8}
_TOPIC_OPERATIONS |= {"DESCRIBE_CONFIGS": 10, "ALTER_CONFIGS": 11}
_CLUSTER_OPERATIONS = {"CREATE": 5, "ALTER": 7, "DESCRIBE": 8, "CLUSTER_ACTION": 9, "DESCRIBE_CONFIGS": 10}
_CLUSTER_OPERATIONS |= {"ALTER_CONFIGS": 11, "IDEMPOTENT_WRITE": 12}
_NOT_ASKED = -(2**31)


async def metadata(call: Call, request: Any) -> Fields:
    """Describe topics, all of them if none is named; may create those that are missing."""
    topics = [_described(call, topic, request) for topic in _wanted(call, request)]
    wants_operations = given(request, "include_cluster_authorized_operations", False)
    return {
        "brokers": [brokers_entry(call.broker)],
        "cluster_id": call.broker.cluster_id,
        "controller_id": call.broker.node_id,
        "topics": topics,
        "cluster_authorized_operations": cluster_operations(call) if wants_operations else _NOT_ASKED,
    }


def brokers_entry(broker: Broker) -> Fields:
    """Return the one broker."""
    return {"node_id": broker.node_id, "broker_id": broker.node_id, "host": broker.host, "port": broker.port}


def cluster_operations(call: Call) -> int:
    """Return what the client may do to the cluster, as Kafka's bits."""
    return _bits(call, _CLUSTER_OPERATIONS, "CLUSTER", CLUSTER)


def topic_operations(call: Call, name: str) -> int:
    """Return what the client may do to a topic, as Kafka's bits."""
    return _bits(call, _TOPIC_OPERATIONS, "TOPIC", name)


def _bits(call: Call, operations: dict[str, int], resource: str, name: str) -> int:
    return sum(1 << bit for operation, bit in operations.items() if call.allowed(operation, resource, name))


def _wanted(call: Call, request: Any) -> Iterable[Topic | tuple[str | None, Any, ErrorCode]]:
    topics = call.broker.store.topics
    asked = request.topics
    if asked is None or (call.version == 0 and not asked):
        return [topic for topic in topics.values() if call.allowed("DESCRIBE", "TOPIC", topic.name)]
    return [_find(call, given(one, "name", None), given(one, "topic_id", None), request) for one in distinct(asked)]


def _find(call: Call, name: str | None, topic_id: Any, request: Any) -> Topic | tuple[str | None, Any, ErrorCode]:
    topics = call.broker.store.topics
    if name is None:
        found = next((topic for topic in topics.values() if topic.id == topic_id), None)
        if found is None or not call.allowed("DESCRIBE", "TOPIC", found.name):
            return None, topic_id, ErrorCode.unknown_topic_id
        return found
    if not call.allowed("DESCRIBE", "TOPIC", name):
        return name, None, ErrorCode.topic_authorization_failed
    if name in topics:
        return topics[name]
    if not is_topic_name(name):
        return name, None, ErrorCode.invalid_topic_exception
    may_create = given(request, "allow_auto_topic_creation", True) and call.broker.auto_create
    if not may_create or name in INTERNAL_TOPICS:
        return name, None, ErrorCode.unknown_topic_or_partition
    return _create(call, name)


def _create(call: Call, name: str) -> Topic | tuple[str | None, Any, ErrorCode]:
    if not (call.allowed("CREATE", "CLUSTER", CLUSTER) or call.allowed("CREATE", "TOPIC", name)):
        return name, None, ErrorCode.topic_authorization_failed
    try:
        return call.broker.store.create_topic(name, call.broker.default_partitions, {})
    except LogError as error:
        return name, None, error.code


def _described(call: Call, topic: Topic | tuple[str | None, Any, ErrorCode], request: Any) -> Fields:
    if not isinstance(topic, Topic):
        name, topic_id, code = topic
        return {"name": name, "topic_id": topic_id, "error_code": code, "topic_authorized_operations": _NOT_ASKED}
    wants_operations = given(request, "include_topic_authorized_operations", False)
    operations = topic_operations(call, topic.name) if wants_operations else _NOT_ASKED
    return {
        "name": topic.name,
        "topic_id": topic.id,
        "is_internal": topic.internal,
        "partitions": [partition_entry(call.broker, topic, index) for index in range(topic.partitions)],
        "topic_authorized_operations": operations,
    }


def partition_entry(broker: Broker, topic: Topic, index: int) -> Fields:
    """Return one partition, led by this broker."""
    replicas = [broker.node_id]
    return {
        "partition_index": index,
        "leader_id": broker.node_id,
        "leader_epoch": broker.store.leader_epoch(topic.name, index),
        "replica_nodes": replicas,
        "isr_nodes": replicas,
    }


HANDLERS = {"metadata": metadata}
