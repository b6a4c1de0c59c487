"""Settings of topics, and of the broker, shown and changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.log.calls import CLUSTER, Call
from penstock.log.errors import ErrorCode, LogError
from penstock.log.protocol.messages import Fields, distinct
from penstock.log.storage.topics import SETTINGS, check_config

_TOPIC, _BROKER = 2, 4
_SET, _DELETE = 0, 1
_OF_TOPIC, _STATIC, _DEFAULT = 1, 4, 5
_TYPES = {int: 5, float: 6, str: 2}


async def describe_configs(call: Call, request: Any) -> Fields:
    """Show settings."""
    return {"results": [_describe(call, resource) for resource in distinct(request.resources)]}


def _describe(call: Call, resource: Any) -> Fields:
    answer: Fields = {"resource_type": resource.resource_type, "resource_name": resource.resource_name}
    try:
        entries = _entries(call, resource.resource_type, resource.resource_name)
    except LogError as error:
        return {**answer, "error_code": error.code, "error_message": error.message}
    keys = resource.configuration_keys
    return {**answer, "configs": [entry for entry in entries if keys is None or entry["name"] in keys]}


def _entries(call: Call, kind: int, name: str) -> list[Fields]:
    if kind == _TOPIC:
        if not call.allowed("DESCRIBE_CONFIGS", "TOPIC", name):
            raise LogError(ErrorCode.topic_authorization_failed)
        config = call.broker.store.topic(name).config
        return [
            _entry(key, config.get(key), setting.default, _TYPES[setting.kind]) for key, setting in SETTINGS.items()
        ]
    if not call.allowed("DESCRIBE_CONFIGS", "CLUSTER", CLUSTER):
        raise LogError(ErrorCode.cluster_authorization_failed)
    if kind == _BROKER and name in ("", str(call.broker.node_id)):
        return [_fixed(key, value) for key, value in call.broker.described().items()]
    raise LogError(ErrorCode.invalid_request, f"there are no settings of kind {kind} for {name!r}")


def _entry(name: str, value: str | None, default: str, kind: int) -> Fields:
    return {
        "name": name,
        "value": default if value is None else value,
        "is_default": value is None,
        "config_source": _DEFAULT if value is None else _OF_TOPIC,
        "config_type": kind,
    }


def _fixed(name: str, value: str) -> Fields:
    return {"name": name, "value": value, "read_only": True, "config_source": _STATIC, "config_type": 2}


async def alter_configs(call: Call, request: Any) -> Fields:
    """Replace all settings of a topic."""
    changed = [
        (each, {one.name: one.value for one in each.configs if one.value is not None})
        for each in distinct(request.resources)
    ]
    return {"responses": [_alter(call, each, config, request.validate_only) for each, config in changed]}


async def incremental_alter_configs(call: Call, request: Any) -> Fields:
    """Set or remove single settings of a topic."""
    answers = []
    for each in distinct(request.resources):
        try:
            config = _merged(call, each)
        except LogError as error:
            answers.append(_refused(each, error))
        else:
            answers.append(_alter(call, each, config, request.validate_only))
    return {"responses": answers}


def _merged(call: Call, resource: Any) -> Mapping[str, str]:
    topic = call.broker.store.topics.get(resource.resource_name)
    config = dict(topic.config) if topic is not None else {}
    for one in resource.configs:
        if one.config_operation == _SET and one.value is not None:
            config[one.name] = one.value
        elif one.config_operation == _DELETE:
            config.pop(one.name, None)
        else:
            raise LogError(ErrorCode.invalid_config, f"{one.name} can be set or deleted, not appended to")
    return config


def _alter(call: Call, resource: Any, config: Mapping[str, str], validate_only: bool) -> Fields:
    try:
        _change(call, resource.resource_type, resource.resource_name, config, validate_only)
    except LogError as error:
        return _refused(resource, error)
    return {"resource_type": resource.resource_type, "resource_name": resource.resource_name}


def _change(call: Call, kind: int, name: str, config: Mapping[str, str], validate_only: bool) -> None:
    if kind != _TOPIC:
        raise LogError(ErrorCode.invalid_request, "only settings of topics can be changed while the log runs")
    if not call.allowed("ALTER_CONFIGS", "TOPIC", name):
        raise LogError(ErrorCode.topic_authorization_failed)
    call.broker.store.topic(name)
    if validate_only:
        check_config(config, name)
    else:
        call.broker.store.configure(name, config)


def _refused(resource: Any, error: LogError) -> Fields:
    return {
        "resource_type": resource.resource_type,
        "resource_name": resource.resource_name,
        "error_code": error.code,
        "error_message": error.message,
    }


HANDLERS = {
    "describe_configs": describe_configs,
    "alter_configs": alter_configs,
    "incremental_alter_configs": incremental_alter_configs,
}
