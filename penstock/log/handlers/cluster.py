"""What the broker says of itself: versions, cluster, disks."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from typing import Any

from penstock.log.calls import CLUSTER, Call
from penstock.log.errors import ErrorCode, LogError
from penstock.log.handlers.metadata import brokers_entry, cluster_operations
from penstock.log.protocol.apis import APIS
from penstock.log.protocol.messages import Fields, distinct, given

_BROKERS, _CONTROLLERS = 1, 2
_FEATURES = {"group.version": 1, "transaction.version": 1}  # the consumer protocol; transactions before KIP-890
_FEATURES_FROM_ZERO = 4


async def api_versions(call: Call, _request: Any) -> Fields:
    """Tell which requests are served."""
    offered = [(api.key, *api.offered) for api in APIS.values()]
    served = [{"api_key": key, "min_version": oldest, "max_version": newest} for key, oldest, newest in offered]
    return {"error_code": ErrorCode.none, "api_keys": served, **_features(call.version)}


def _features(version: int) -> Fields:
    # Older clients take no feature whose versions begin at 0.
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
    """Tell how large partitions are."""
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
    """Nothing moves between brokers where there is one."""
    return {"topics": []}


HANDLERS = {
    "api_versions": api_versions,
    "describe_cluster": describe_cluster,
    "describe_log_dirs": describe_log_dirs,
    "list_partition_reassignments": list_partition_reassignments,
}
