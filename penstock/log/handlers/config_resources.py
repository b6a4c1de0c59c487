"""The resources with configs: topics, the broker, the cluster, groups; their values and the source of each value."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import ClassVar, Protocol

from penstock.log.broker import Broker
from penstock.log.configs.broker import (
    BROKER_SETTINGS,
    GROUP_SETTINGS,
    DynamicSettings,
    checked_broker_config,
    checked_group_config,
)
from penstock.log.configs.definition import Kind, Setting, Source
from penstock.log.configs.topic import SETTINGS, checked_config
from penstock.log.errors import ErrorCode, LogError
from penstock.log.protocol.messages import Fields, Lazy
from penstock.log.request_context import CLUSTER, Call
from penstock.log.storage.topics import Topic

TOPIC, BROKER, GROUP = 2, 4, 32
# Shown by Kafka instead of the first, where nothing is set.
_IN_HOURS = {"log.retention.ms": ("log.retention.hours", "168"), "log.roll.ms": ("log.roll.hours", "168")}
_IN_HOURS |= {"log.roll.jitter.ms": ("log.roll.jitter.hours", "0")}
Value = tuple[str, str, Source]
# Configurable in Kafka and fixed here; shown for tools that read them.
_FIXED = {
    "default.replication.factor": "1",
    "delete.topic.enable": "true",
    "group.max.session.timeout.ms": "1800000",
    "log.cleaner.enable": "true",
    "log.retention.check.interval.ms": "15000",
    "log.retention.hours": "168",
    "log.roll.hours": "168",
    "offset.metadata.max.bytes": "4096",
    "offsets.retention.minutes": "10080",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "process.roles": "broker",
    "transaction.max.timeout.ms": "900000",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transactional.id.expiration.ms": "604800000",
}


class Resource(Protocol):
    """A resource with configs."""

    @property
    def known(self) -> Mapping[str, Setting]:
        """The definitions of its configs."""

    def allow(self, operation: str) -> None:
        """Refuse a client that is not allowed the operation."""

    def current(self) -> Mapping[str, str]:
        """Return the configs that are set on this resource."""

    def effective(self, name: str) -> str:
        """Return the effective value of a config."""

    def entries(self) -> Collection[Fields]:
        """Return all configs for DescribeConfigs."""

    def change(self, config: Mapping[str, str], *, validate_only: bool) -> None:
        """Replace the configs of this resource."""


def find_resource(call: Call, kind: int, name: str) -> Resource:
    """Return the resource that a request names, or refuse."""
    if kind == TOPIC:
        return _TopicResource(call, name)
    if kind == GROUP:
        return _GroupResource(call, name)
    if kind == BROKER:
        return _BrokerResource(call, name)
    raise LogError(ErrorCode.invalid_request, f"unknown config resource type {kind} of {name!r}")


def topic_entries(topic: Topic, settings: DynamicSettings) -> Collection[Fields]:
    """Return all configs of a topic, each with its synonyms in order of precedence."""

    def entry(name: str) -> Fields:
        return _entry(name, SETTINGS[name], _topic_values(topic, settings, name, SETTINGS[name]))

    return Lazy(entry, SETTINGS)


def _topic_values(topic: Topic, settings: DynamicSettings, name: str, setting: Setting) -> list[Value]:
    own = [(name, topic.config[name], Source.TOPIC)] if name in topic.config else []
    return own + (_broker_values(settings, setting.broker) if setting.broker else [])


def _broker_values(settings: DynamicSettings, name: str) -> list[Value]:
    levels = ((settings.broker, Source.BROKER), (settings.cluster, Source.CLUSTER))
    found = [(name, config[name], source) for config, source in levels if name in config]
    default = BROKER_SETTINGS[name].default
    last = _IN_HOURS.get(name) or ((name, default) if default is not None else None)
    return found if last is None else [*found, (*last, Source.DEFAULT)]


def _entry(name: str, setting: Setting, values: list[Value], *, read_only: bool = False) -> Fields:
    given = [value for value in values if value[2] is not Source.DEFAULT]
    value, source = given[0][1:] if given else (setting.default, Source.DEFAULT)
    return {
        "name": name,
        "value": value,
        "read_only": read_only,
        "is_default": not given,
        "config_source": source,
        "config_type": setting.kind,
        "synonyms": [{"name": each, "value": text, "source": origin} for each, text, origin in values],
        "documentation": _documentation(setting, read_only),
    }


def _documentation(setting: Setting, read_only: bool) -> str:
    if read_only:
        return "Set by the start options."
    return "As in Kafka." if setting.effect else "Stored and reported as in Kafka; without effect in this log."


def _allow_named(call: Call, operation: str, kind: str, name: str, refused: ErrorCode) -> None:
    if not call.allowed(operation, kind, name):
        raise LogError(refused)
    if not name:
        raise LogError(ErrorCode.invalid_request, f"the name of the {kind.lower()} is missing")


@dataclass(frozen=True)
class _TopicResource:
    call: Call
    name: str
    known: ClassVar[Mapping[str, Setting]] = SETTINGS

    def allow(self, operation: str) -> None:
        _allow_named(self.call, operation, "TOPIC", self.name, ErrorCode.topic_authorization_failed)

    def current(self) -> Mapping[str, str]:
        return self._topic.config

    def effective(self, name: str) -> str:
        topic = self._topic
        return topic.config.get(name, topic.defaults.get(name, SETTINGS[name].default or ""))

    def entries(self) -> Collection[Fields]:
        return topic_entries(self._topic, self.call.broker.store.settings)

    def change(self, config: Mapping[str, str], *, validate_only: bool) -> None:
        topic = self._topic
        if validate_only:
            checked_config(config, topic.name)
        else:
            self.call.broker.store.configure(topic.name, config)

    @property
    def _topic(self) -> Topic:
        return self.call.broker.store.topic(self.name)


@dataclass(frozen=True)
class _BrokerResource:
    """The broker, by its node id, or with an empty name the cluster: the defaults of all brokers."""

    call: Call
    name: str
    known: ClassVar[Mapping[str, Setting]] = BROKER_SETTINGS

    def allow(self, operation: str) -> None:
        if not self.call.allowed(operation, "CLUSTER", CLUSTER):
            raise LogError(ErrorCode.cluster_authorization_failed)
        own = self.call.broker.described()["broker.id"]
        if self.name not in ("", own):
            raise LogError(ErrorCode.invalid_request, f"there is one broker, {own}, not {self.name!r}")

    def current(self) -> Mapping[str, str]:
        return self._settings.broker if self.name else self._settings.cluster

    def effective(self, name: str) -> str:
        return self.current().get(name, self._settings.cluster.get(name, BROKER_SETTINGS[name].default or ""))

    def entries(self) -> Collection[Fields]:
        if not self.name:
            return [
                _entry(name, BROKER_SETTINGS[name], [(name, value, Source.CLUSTER)])
                for name, value in self._settings.cluster.items()
            ]
        dynamic = [_entry(name, each, _broker_values(self._settings, name)) for name, each in BROKER_SETTINGS.items()]
        return dynamic + [_fixed_entry(name, value) for name, value in _fixed(self.call.broker).items()]

    def change(self, config: Mapping[str, str], *, validate_only: bool) -> None:
        normal = checked_broker_config(config, _fixed(self.call.broker))
        if validate_only:
            return
        if self.name:
            self._settings.change_broker(normal)
        else:
            self._settings.change_cluster(normal)
        self.call.broker.store.refresh_configs()

    @property
    def _settings(self) -> DynamicSettings:
        return self.call.broker.store.settings


def _fixed(broker: Broker) -> dict[str, str]:
    described = broker.described()
    return {**_FIXED, "node.id": described["broker.id"], **described}


def _fixed_entry(name: str, value: str) -> Fields:
    kind = Kind.BOOLEAN if value in ("true", "false") else Kind.INT if value.isdigit() else Kind.STRING
    return _entry(name, Setting(kind, value), [(name, value, Source.STATIC)], read_only=True)


@dataclass(frozen=True)
class _GroupResource:
    """A group, existing or not."""

    call: Call
    name: str
    known: ClassVar[Mapping[str, Setting]] = GROUP_SETTINGS

    def allow(self, operation: str) -> None:
        _allow_named(self.call, operation, "GROUP", self.name, ErrorCode.group_authorization_failed)

    def current(self) -> Mapping[str, str]:
        return self._settings.groups.get(self.name, {})

    def effective(self, name: str) -> str:
        return self.current().get(name, GROUP_SETTINGS[name].default or "")

    def entries(self) -> Collection[Fields]:
        return Lazy(self._entry, GROUP_SETTINGS)

    def _entry(self, name: str) -> Fields:
        config, setting = self.current(), GROUP_SETTINGS[name]
        own = [(name, config[name], Source.GROUP)] if name in config else []
        return _entry(name, setting, own or [(name, setting.default or "", Source.DEFAULT)])

    def change(self, config: Mapping[str, str], *, validate_only: bool) -> None:
        normal = checked_group_config(config)
        if not validate_only:
            self._settings.change_group(self.name, normal)

    @property
    def _settings(self) -> DynamicSettings:
        return self.call.broker.store.settings
