"""ListConfigResources: what has settings that can be described."""

from __future__ import annotations

from typing import Any

from penstock.log.calls import CLUSTER, Call
from penstock.log.errors import ErrorCode, LogError
from penstock.log.protocol.messages import Fields, distinct, given

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
_KINDS = (TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP)


async def list_config_resources(call: Call, request: Any) -> Fields:
    """Name the resources of some kinds, of all kinds if none is named; v0 asks for client metrics alone."""
    if not call.allowed("DESCRIBE_CONFIGS", "CLUSTER", CLUSTER):
        raise LogError(ErrorCode.cluster_authorization_failed, "DESCRIBE_CONFIGS on the cluster is not allowed")
    kinds = distinct(given(request, "resource_types", (CLIENT_METRICS,))) or _KINDS
    unknown = [kind for kind in kinds if kind not in _KINDS]
    if unknown:
        raise LogError(ErrorCode.unsupported_version, f"there are no settings of kind {unknown[0]}")
    found = [{"resource_name": name, "resource_type": kind} for kind in kinds for name in _names(call, kind)]
    return {"error_code": ErrorCode.none, "config_resources": found}


def _names(call: Call, kind: int) -> list[str]:
    if kind == TOPIC:
        return list(call.broker.store.topics)
    if kind in (BROKER, BROKER_LOGGER):
        return [str(call.broker.node_id)]
    if kind == GROUP:
        return list(call.broker.store.settings.groups)
    return []  # there are no subscriptions to client metrics


HANDLERS = {"list_config_resources": list_config_resources}
