"""Dynamic configs of the broker and of groups: Kafka 4.2's, by its names, stored in one file.

The effective value for the broker: its own config, then the cluster's, then the start options, then the default.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from penstock.errors import SettingsError
from penstock.log.configs.definition import Kind, Setting, normal_config
from penstock.log.configs.topic import SETTINGS
from penstock.log.errors import ErrorCode, LogError
from penstock.log.storage.segments.files import write_atomically

_MOST_INT = 2**31 - 1
# Unset in Kafka, which then reads the same in hours, or has no limit.
_UNSET = ("log.flush.interval.ms", "log.retention.ms", "log.roll.jitter.ms", "log.roll.ms")
_THREADS = {
    "background.threads": 10,
    "log.cleaner.threads": 1,
    "num.io.threads": 8,
    "num.network.threads": 3,
    "num.recovery.threads.per.data.dir": 2,
    "num.replica.fetchers": 1,
    "remote.log.manager.copier.thread.pool.size": 10,
    "remote.log.manager.expiration.thread.pool.size": 10,
    "remote.log.manager.follower.thread.pool.size": 2,
    "remote.log.reader.threads": 10,
}
_RATES = (
    "follower.replication.throttled.rate",
    "leader.replication.throttled.rate",
    "remote.log.manager.copy.max.bytes.per.second",
    "remote.log.manager.fetch.max.bytes.per.second",
    "replica.alter.log.dirs.io.max.bytes.per.second",
)
TOPIC_OF: Mapping[str, str] = {each.broker: name for name, each in SETTINGS.items() if each.broker}
_SESSION = Setting(Kind.INT, "45000", least=45_000, most=60_000)
_HEARTBEAT = Setting(Kind.INT, "5000", least=5_000, most=15_000)
GROUP_SETTINGS: dict[str, Setting] = {
    "consumer.heartbeat.interval.ms": replace(_HEARTBEAT, effect=True),
    "consumer.session.timeout.ms": replace(_SESSION, effect=True),
    "share.auto.offset.reset": Setting(Kind.STRING, "latest", choices=("latest", "earliest")),
    "share.heartbeat.interval.ms": _HEARTBEAT,
    "share.isolation.level": Setting(Kind.STRING, "read_uncommitted", choices=("read_committed", "read_uncommitted")),
    "share.record.lock.duration.ms": Setting(Kind.INT, "30000", least=15_000, most=60_000),
    "share.session.timeout.ms": _SESSION,
    "streams.heartbeat.interval.ms": _HEARTBEAT,
    "streams.initial.rebalance.delay.ms": Setting(Kind.INT, "3000", least=0),
    "streams.num.standby.replicas": Setting(Kind.INT, "0", least=0, most=2),
    "streams.session.timeout.ms": _SESSION,
}
SETTINGS_FILE = "settings.json"


def _of_topics() -> dict[str, Setting]:
    """Return the broker configs that are defaults of topic configs."""
    found = {each.broker: replace(each, broker=None) for each in SETTINGS.values() if each.broker}
    return {name: replace(each, default=None) if name in _UNSET else each for name, each in found.items()}


BROKER_SETTINGS: dict[str, Setting] = dict(
    sorted(
        {
            **_of_topics(),
            **{name: Setting(Kind.INT, str(count), least=1) for name, count in _THREADS.items()},
            **{name: Setting(Kind.LONG, str(2**63 - 1), least=0) for name in _RATES},
            "log.cleaner.backoff.ms": Setting(Kind.LONG, "15000", least=0, effect=True),
            "log.cleaner.dedupe.buffer.size": Setting(Kind.LONG, "134217728"),
            "log.cleaner.io.buffer.load.factor": Setting(Kind.DOUBLE, "0.9"),
            "log.cleaner.io.buffer.size": Setting(Kind.INT, "524288", least=0),
            "log.cleaner.io.max.bytes.per.second": Setting(Kind.DOUBLE, "1.7976931348623157E308"),
            "max.connection.creation.rate": Setting(Kind.INT, str(_MOST_INT), least=0),
            "max.connections": Setting(Kind.INT, str(_MOST_INT), least=1, effect=True),
            "max.connections.per.ip": Setting(Kind.INT, str(_MOST_INT), least=1, effect=True),
            "max.connections.per.ip.overrides": Setting(Kind.STRING, ""),
            "producer.id.expiration.ms": Setting(Kind.INT, "86400000", least=1, effect=True),
            "remote.fetch.max.wait.ms": Setting(Kind.INT, "500", least=1),
            "remote.list.offsets.request.timeout.ms": Setting(Kind.LONG, "30000", least=1),
            "remote.log.index.file.cache.total.size.bytes": Setting(Kind.LONG, str(1 << 30), least=1),
            "transaction.partition.verification.enable": Setting(Kind.BOOLEAN, "true"),
        }.items()
    )
)


def checked_broker_config(config: Mapping[str, str], fixed: Mapping[str, str]) -> dict[str, str]:
    """Validate and normalise configs of the broker; `fixed` are those that only a restart can change."""
    for name in config:
        if name in fixed and name not in BROKER_SETTINGS:
            message = f"{name} cannot be changed while the log runs; it is set by the start options"
            raise LogError(ErrorCode.invalid_request, message)
    normal = normal_config(config, BROKER_SETTINGS, "broker", ErrorCode.invalid_request)
    least, most = (normal.get(f"log.cleaner.{end}.compaction.lag.ms") for end in ("min", "max"))
    if most is not None and int(least or 0) > int(most):
        raise LogError(ErrorCode.invalid_request, f"log.cleaner.min.compaction.lag.ms ({least}) is above max ({most})")
    return normal


def checked_group_config(config: Mapping[str, str]) -> dict[str, str]:
    """Validate and normalise configs of a group."""
    return normal_config(config, GROUP_SETTINGS, "group")


class DynamicSettings:
    """Every change is on disk before it is visible. `topic_defaults` is live: topics read it on every access."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.broker: Mapping[str, str] = {}
        self.cluster: Mapping[str, str] = {}
        self.groups: Mapping[str, Mapping[str, str]] = {}
        self.topic_defaults: dict[str, str] = {}
        if path.exists():
            self._load()
        self._update_defaults()

    def value(self, name: str) -> Any:
        """Return the effective value of a broker config."""
        setting = BROKER_SETTINGS[name]
        text = self.broker.get(name, self.cluster.get(name, setting.default))
        return None if text is None else setting.parse(name, text)

    def is_set(self, name: str) -> bool:
        """Return whether a broker config was changed at run time."""
        return name in self.broker or name in self.cluster

    def group_value(self, group_id: str, name: str) -> Any:
        """Return the effective value of a group config."""
        setting = GROUP_SETTINGS[name]
        return setting.parse(name, self.groups.get(group_id, {}).get(name, setting.default or ""))

    def change_broker(self, config: Mapping[str, str]) -> None:
        """Replace the dynamic configs of this broker."""
        self._store(config, self.cluster, self.groups)

    def change_cluster(self, config: Mapping[str, str]) -> None:
        """Replace the dynamic configs of the cluster."""
        self._store(self.broker, config, self.groups)

    def change_group(self, group_id: str, config: Mapping[str, str]) -> None:
        """Replace the dynamic configs of a group."""
        groups = {**self.groups, group_id: config}
        self._store(self.broker, self.cluster, {name: each for name, each in groups.items() if each})

    def _store(
        self, broker: Mapping[str, str], cluster: Mapping[str, str], groups: Mapping[str, Mapping[str, str]]
    ) -> None:
        body = {"version": 1, "broker": broker, "cluster": cluster, "groups": groups}
        try:
            write_atomically(self._path, json.dumps(body, indent=1).encode())
        except OSError as error:
            raise LogError(ErrorCode.kafka_storage_error, f"cannot write {self._path.name}: {error}") from error
        self.broker, self.cluster, self.groups = broker, cluster, groups
        self._update_defaults()

    def _update_defaults(self) -> None:
        both = {**self.cluster, **self.broker}
        self.topic_defaults.clear()
        self.topic_defaults.update({TOPIC_OF[name]: value for name, value in both.items() if name in TOPIC_OF})

    def _load(self) -> None:
        try:
            body = json.loads(self._path.read_bytes())
            self.broker, self.cluster, self.groups = dict(body["broker"]), dict(body["cluster"]), dict(body["groups"])
        except (ValueError, TypeError, KeyError) as error:
            message = f"{self._path} is damaged: no settings can be read from it ({type(error).__name__})"
            raise SettingsError(message, hint="restore it from a backup, or remove it and set them again") from None
