"""Metadata, DescribeTopicPartitions, DescribeCluster, ApiVersions, DescribeLogDirs."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from typing import Any

from penstock.log.broker import Broker
from penstock.log.configs.topic import INTERNAL_TOPICS
from penstock.log.errors import ErrorCode, LogError
from penstock.log.protocol.apis import APIS
from penstock.log.protocol.messages import Fields, distinct, given
from penstock.log.request_context import CLUSTER, Call
from penstock.log.storage.topics import Topic, is_topic_name

Missing = tuple[str | None, Any, ErrorCode]  # name and id as in the request
_TOPIC_OPERATIONS = {"READ": 3, "WRITE": 4, "CREATE": 5, "DELETE": 6, "ALTER": 7, "DESCRIBE": 8}
_TOPIC_OPERATIONS |= {"DESCRIBE_CONFIGS": 10, "ALTER_CONFIGS": 11}
_CLUSTER_OPERATIONS = {"CREATE": 5, "ALTER": 7, "DESCRIBE": 8, "CLUSTER_ACTION": 9, "DESCRIBE_CONFIGS": 10}
_CLUSTER_OPERATIONS |= {"ALTER_CONFIGS": 11, "IDEMPOTENT_WRITE": 12}
_NOT_ASKED = -(2**31)
MOST_PARTITIONS = 2000  # in one reply, as in Kafka (max.request.partition.size.limit)
_BROKERS, _CONTROLLERS = 1, 2
_FEATURES = {"group.version": 1, "transaction.version": 1}  # the consumer protocol; transactions before KIP-890
_FEATURES_FROM_ZERO = 4


async def metadata(call: Call, request: Any) -> Fields:
    """Describe topics, by default all of them; may create missing ones."""
    topics = [_described(call, topic, request) for topic in await _wanted(call, request)]
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
    """Return the client's allowed operations on the cluster, as Kafka's bits."""
    return call.allowed_operations(_CLUSTER_OPERATIONS, "CLUSTER", CLUSTER)


def topic_operations(call: Call, name: str) -> int:
    """Return the client's allowed operations on a topic, as Kafka's bits."""
    return call.allowed_operations(_TOPIC_OPERATIONS, "TOPIC", name)


async def _wanted(call: Call, request: Any) -> Iterable[Topic | Missing]:
    topics = call.broker.store.topics
    asked = request.topics
    if asked is None or (call.version == 0 and not asked):
        return [topic for topic in topics.values() if call.allowed("DESCRIBE", "TOPIC", topic.name)]
    named = [(given(one, "name", None), given(one, "topic_id", None)) for one in distinct(asked)]
    found = [await _find(call, *each, request) for each in named]
    # One topic can be asked for by its name, with any id beside it, and by its id.
    return {one.name if isinstance(one, Topic) else one: one for one in found}.values()


async def _find(call: Call, name: str | None, topic_id: Any, request: Any) -> Topic | Missing:
    topics = call.broker.store.topics
    if name is None:
        known = None if topic_id is None else topics.names.get(topic_id.bytes)
        if known is None or not call.allowed("DESCRIBE", "TOPIC", known):
            return None, topic_id, ErrorCode.unknown_topic_id
        return topics[known]
    if not call.allowed("DESCRIBE", "TOPIC", name):
        return name, None, ErrorCode.topic_authorization_failed
    if name in topics:
        return topics[name]
    if not is_topic_name(name):
        return name, None, ErrorCode.invalid_topic_exception
    may_create = given(request, "allow_auto_topic_creation", True) and call.broker.auto_create
    if not may_create or name in INTERNAL_TOPICS:
        return name, None, ErrorCode.unknown_topic_or_partition
    return await _create(call, name)


async def _create(call: Call, name: str) -> Topic | Missing:
    if not (call.allowed("CREATE", "CLUSTER", CLUSTER) or call.allowed("CREATE", "TOPIC", name)):
        return name, None, ErrorCode.topic_authorization_failed
    try:
        return await call.broker.create_topic(name, call.broker.default_partitions, {})
    except LogError as error:
        return name, None, error.code


def _described(call: Call, topic: Topic | Missing, request: Any) -> Fields:
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


async def describe_topic_partitions(call: Call, request: Any) -> Fields:
    """Describe topics by name, by default all that the client may describe, one page from the cursor on."""
    cursor = request.cursor
    names = sorted(_names(call, request))
    if cursor is not None and cursor.partition_index < 0:
        # The reply has error codes only in its topics.
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
        topic = _find_existing(call, name)
        if isinstance(topic, ErrorCode):
            found.append({"name": name, "error_code": topic})
        else:
            end = min(first + left, topic.partitions)
            found.append(_described_page(call, topic, range(first, end)))
            left -= max(end - first, 0)
            if end < topic.partitions:
                return found, {"topic_name": name, "partition_index": end}
        first = 0
    return found, None


def _find_existing(call: Call, name: str) -> Topic | ErrorCode:
    if not call.allowed("DESCRIBE", "TOPIC", name):
        return ErrorCode.topic_authorization_failed
    if not is_topic_name(name):
        return ErrorCode.invalid_topic_exception
    return call.broker.store.topics.get(name, ErrorCode.unknown_topic_or_partition)


def _described_page(call: Call, topic: Topic, indexes: range) -> Fields:
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


async def api_versions(call: Call, _request: Any) -> Fields:
    """Return the APIs and versions that are served."""
    offered = [(api.key, *api.offered) for api in APIS.values()]
    served = [{"api_key": key, "min_version": oldest, "max_version": newest} for key, oldest, newest in offered]
    return {"error_code": ErrorCode.none, "api_keys": served, **_features(call.version)}


def _features(version: int) -> Fields:
    # Older clients do not accept a feature whose versions start at 0.
    supported = [{"name": name, "min_version": 0, "max_version": newest} for name, newest in _FEATURES.items()]
    finalized = [
        {"name": name, "max_version_level": newest, "min_version_level": newest} for name, newest in _FEATURES.items()
    ]
    return {
        "supported_features": supported if version >= _FEATURES_FROM_ZERO else [],
        "finalized_features_epoch": 0,
        "finalized_features": finalized,
    }


async def describe_cluster(call: Call, request: Any) -> Fields:
    """Describe the one broker."""
    wants_operations = request.include_cluster_authorized_operations
    kind = given(request, "endpoint_type", _BROKERS)
    if kind == _CONTROLLERS:
        raise LogError(ErrorCode.mismatched_endpoint_type, "this is the endpoint of a broker, not of a controller")
    if kind != _BROKERS:
        raise LogError(ErrorCode.unsupported_endpoint_type, f"there are no endpoints of type {kind}")
    return {
        "endpoint_type": _BROKERS,
        "cluster_id": call.broker.cluster_id,
        "controller_id": call.broker.node_id,
        "brokers": [brokers_entry(call.broker)],
        "cluster_authorized_operations": cluster_operations(call) if wants_operations else -(2**31),
    }


async def describe_log_dirs(call: Call, request: Any) -> Fields:
    """Return the sizes of partitions."""
    if not call.allowed("DESCRIBE", "CLUSTER", CLUSTER):
        return {"error_code": ErrorCode.cluster_authorization_failed, "results": []}
    store = call.broker.store
    disk = shutil.disk_usage(store.folder)
    asked: dict[str, Sequence[int]] = {topic.name: range(topic.partitions) for topic in store.topics.values()}
    if request.topics is not None:
        asked = {one.topic: distinct(one.partitions) for one in request.topics if one.topic in store.topics}
    topics = [{"name": name, "partitions": _sizes(call, name, indexes)} for name, indexes in asked.items()]
    result = {"log_dir": str(store.folder), "topics": topics, "total_bytes": disk.total, "usable_bytes": disk.free}
    return {"results": [result]}


def _sizes(call: Call, name: str, indexes: Sequence[int]) -> list[Fields]:
    store = call.broker.store
    count = store.topics[name].partitions
    partitions = [store.partition(name, index) for index in indexes if 0 <= index < count]
    return [{"partition_index": one.index, "partition_size": one.size} for one in partitions]


async def list_partition_reassignments(_call: Call, _request: Any) -> Fields:
    """There are no reassignments with one broker."""
    return {"topics": []}


HANDLERS = {
    "metadata": metadata,
    "describe_topic_partitions": describe_topic_partitions,
    "api_versions": api_versions,
    "describe_cluster": describe_cluster,
    "describe_log_dirs": describe_log_dirs,
    "list_partition_reassignments": list_partition_reassignments,
}
