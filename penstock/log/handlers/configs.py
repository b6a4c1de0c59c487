"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, ListConfigResources."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from penstock.log.configs.definition import Kind, split_list
from penstock.log.errors import ErrorCode, LogError
from penstock.log.handlers.config_resources import Resource, find_resource
from penstock.log.protocol.messages import Fields, Lazy, distinct, given, grouped
from penstock.log.request_context import CLUSTER, Call

_SET, _DELETE, _APPEND, _SUBTRACT = range(4)
Merge = Callable[[Resource, Any], Mapping[str, str]]
TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
_MOST_GROUPS = 10_000  # of one request: any name is that of a group, which has at least the default configs
_KINDS = (TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP)


async def describe_configs(call: Call, request: Any) -> Fields:
    """Describe configs."""
    hidden = set()
    if not given(request, "include_synonyms", False):
        hidden.add("synonyms")
    if not given(request, "include_documentation", False):
        hidden.add("documentation")
    asked = grouped(request.resources, lambda each: (each.resource_type, each.resource_name))
    excess = sum(kind == GROUP for kind, _ in asked) > _MOST_GROUPS
    return {"results": [_describe(call, *named, _keys(same), hidden, excess) for named, same in asked.items()]}


def _keys(asked: Sequence[Any]) -> set[str] | None:
    if any(each.configuration_keys is None for each in asked):
        return None
    return {key for each in asked for key in each.configuration_keys}


def _describe(call: Call, kind: int, name: str, keys: set[str] | None, hidden: set[str], excess: bool) -> Fields:
    answer: Fields = {"resource_type": kind, "resource_name": name}
    try:
        if kind == GROUP and excess:
            raise LogError(ErrorCode.policy_violation, f"more than {_MOST_GROUPS} groups: use several requests")
        resource = find_resource(call, kind, name)
        resource.allow("DESCRIBE_CONFIGS")
        entries = resource.entries()
    except LogError as error:
        return {**answer, "error_code": error.code, "error_message": error.message}
    wanted = entries if keys is None else [entry for entry in entries if entry["name"] in keys]

    def shown(entry: Fields) -> Fields:
        return {name: value for name, value in entry.items() if name not in hidden}

    return {**answer, "configs": Lazy(shown, wanted)}


async def alter_configs(call: Call, request: Any) -> Fields:
    """Replace all configs of resources."""
    return _alter_all(call, request, _replaced)


async def incremental_alter_configs(call: Call, request: Any) -> Fields:
    """Set or delete single configs, append to lists and subtract from them."""
    return _alter_all(call, request, _merged)


def _alter_all(call: Call, request: Any, merge: Merge) -> Fields:
    named = Counter((each.resource_type, each.resource_name) for each in request.resources)
    once = {(each.resource_type, each.resource_name): each for each in request.resources}
    changes = [_alter(call, each, merge, request.validate_only, repeated=named[key] > 1) for key, each in once.items()]
    return {"responses": changes}


def _alter(call: Call, asked: Any, merge: Merge, validate_only: bool, *, repeated: bool) -> Fields:
    answer: Fields = {"resource_type": asked.resource_type, "resource_name": asked.resource_name}
    try:
        if repeated:
            raise LogError(ErrorCode.invalid_request, f"{asked.resource_name!r} appears more than once")
        _refuse_repeated(one.name for one in asked.configs)
        resource = find_resource(call, asked.resource_type, asked.resource_name)
        resource.allow("ALTER_CONFIGS")
        resource.change(merge(resource, asked), validate_only=validate_only)
    except LogError as error:
        return {**answer, "error_code": error.code, "error_message": error.message}
    return answer


def _refuse_repeated(names: Iterable[str]) -> None:
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise LogError(ErrorCode.invalid_request, f"settings appear more than once: {', '.join(repeated)}")


def _replaced(_resource: Resource, asked: Any) -> Mapping[str, str]:
    return {one.name: _given_value(one) for one in asked.configs}


def _merged(resource: Resource, asked: Any) -> Mapping[str, str]:
    config = dict(resource.current())
    for one in asked.configs:
        match one.config_operation:
            case operation if operation == _DELETE:
                config.pop(one.name, None)
            case operation if operation == _SET:
                config[one.name] = _given_value(one)
            case operation if operation in (_APPEND, _SUBTRACT):
                config[one.name] = _changed_list(resource, one)
            case operation:
                raise LogError(ErrorCode.invalid_request, f"unknown operation {operation} on {one.name}")
    return config


def _given_value(one: Any) -> str:
    if one.value is None:
        raise LogError(ErrorCode.invalid_request, f"{one.name} has no value")
    return str(one.value)


def _changed_list(resource: Resource, one: Any) -> str:
    items, setting = split_list(_given_value(one)), resource.known.get(one.name)
    if setting is None or setting.kind is not Kind.LIST:
        message = f"{one.name} is not a list: it can be set or deleted, not appended to or subtracted from"
        raise LogError(ErrorCode.invalid_config, message)
    kept = split_list(resource.effective(one.name))
    if one.config_operation == _APPEND:
        return ",".join(dict.fromkeys([*kept, *items]))
    return ",".join(item for item in kept if item not in items)


async def list_config_resources(call: Call, request: Any) -> Fields:
    """List the resources of some types, of all types by default; v0 requests only client metrics."""
    if not call.allowed("DESCRIBE_CONFIGS", "CLUSTER", CLUSTER):
        raise LogError(ErrorCode.cluster_authorization_failed, "DESCRIBE_CONFIGS on the cluster is not allowed")
    kinds = distinct(given(request, "resource_types", (CLIENT_METRICS,))) or _KINDS
    unknown = [kind for kind in kinds if kind not in _KINDS]
    if unknown:
        raise LogError(ErrorCode.unsupported_version, f"unknown config resource type {unknown[0]}")
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


HANDLERS = {
    "describe_configs": describe_configs,
    "alter_configs": alter_configs,
    "incremental_alter_configs": incremental_alter_configs,
    "list_config_resources": list_config_resources,
}
