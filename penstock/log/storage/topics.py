"""Topics and their settings, kept in one file that is replaced as a whole."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from penstock.errors import SettingsError
from penstock.log.errors import ErrorCode, LogError
from penstock.log.storage.internal import INTERNAL_TOPICS, check_internal_config, refuse_internal
from penstock.log.storage.partition import Rules
from penstock.log.storage.snapshot import write_whole

log = logging.getLogger("penstock.log")
_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_MOST_PARTITIONS = 10_000
_DAY = 24 * 3600 * 1000


@dataclass(frozen=True)
class Setting:
    """One setting of a topic: Kafka's name, its default, and what values are allowed."""

    default: str
    kind: type = int
    choices: tuple[str, ...] = ()
    least: int = 0
    most: int = 2**63 - 1


# Kafka's names and defaults, but for the segment size: recovery reads one segment, so a smaller one starts faster.
SETTINGS: dict[str, Setting] = {
    "cleanup.policy": Setting("delete", str, ("delete", "compact", "compact,delete", "delete,compact")),
    "compression.type": Setting("producer", str, ("producer",)),
    "delete.retention.ms": Setting(str(_DAY)),
    "max.compaction.lag.ms": Setting(str(2**63 - 1), least=1),
    "max.message.bytes": Setting("1048588", most=2**31 - 1),
    "message.timestamp.type": Setting("CreateTime", str, ("CreateTime", "LogAppendTime")),
    "min.cleanable.dirty.ratio": Setting("0.5", float, most=1),
    "min.compaction.lag.ms": Setting("0"),
    "min.insync.replicas": Setting("1", least=1),
    "retention.bytes": Setting("-1", least=-1),
    "retention.ms": Setting(str(7 * _DAY), least=-1),
    "segment.bytes": Setting(str(1 << 28), least=1024, most=2**31 - 1),
    "segment.ms": Setting(str(7 * _DAY), least=1),
}


@dataclass(frozen=True)
class Topic:
    """A topic; two of the same name have different ids."""

    name: str
    id: UUID
    partitions: int
    config: Mapping[str, str] = field(default_factory=dict)
    internal: bool = False

    def setting(self, name: str) -> Any:
        """Return a setting as it holds for this topic."""
        setting = SETTINGS[name]
        return setting.kind(self.config.get(name, setting.default))

    @property
    def compacted(self) -> bool:
        """Whether only the last record of each key is kept."""
        return "compact" in self.setting("cleanup.policy")

    @property
    def deletes(self) -> bool:
        """Whether records go when they are too old or too many."""
        return "delete" in self.setting("cleanup.policy")

    @property
    def rules(self) -> Rules:
        """What its partitions go by when they append."""
        return Rules(
            segment_bytes=self.setting("segment.bytes"),
            segment_ms=self.setting("segment.ms"),
            max_message_bytes=self.setting("max.message.bytes"),
            stamps_arrival=self.setting("message.timestamp.type") == "LogAppendTime",
            compacted=self.compacted,
        )


def check_config(config: Mapping[str, str], topic: str = "") -> None:
    """Refuse settings that do not exist, cannot have that value, or would make an internal topic lose records."""
    check_internal_config(topic, config)
    for name, value in config.items():
        setting = SETTINGS.get(name)
        if setting is None:
            known = ", ".join(SETTINGS)
            raise LogError(ErrorCode.invalid_config, f"unknown setting {name!r}; there are {known}")
        _check_value(name, value, setting)


def _check_value(name: str, value: str, setting: Setting) -> None:
    if setting.choices and value not in setting.choices:
        raise LogError(ErrorCode.invalid_config, f"{name} can be {', '.join(setting.choices)}, not {value!r}")
    if setting.kind is str:
        return
    try:
        number = setting.kind(value)
    except (TypeError, ValueError):
        raise LogError(ErrorCode.invalid_config, f"{name} is a number, not {value!r}") from None
    if not setting.least <= number <= setting.most:
        message = f"{name} is a number from {setting.least} to {setting.most}, not {value}"
        raise LogError(ErrorCode.invalid_config, message)


def is_topic_name(name: str) -> bool:
    """Say whether a topic can be called so."""
    return bool(_NAME.fullmatch(name)) and name not in (".", "..")


class Topics(dict[str, Topic]):
    """All topics by name; every change is on disk before it is seen."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self.revision = 0  # counts the changes since the start
        try:
            self.update(_read(path) if path.exists() else {})
        except (ValueError, TypeError, KeyError) as error:
            message = f"{path} is damaged: no topics can be read from it ({type(error).__name__})"
            raise SettingsError(
                message, hint="restore it from a backup; the folders beside it hold the records"
            ) from None

    def add(self, name: str, partitions: int, config: Mapping[str, str], *, internal: bool = False) -> Topic:
        """Create a topic."""
        self.check_new(name, partitions, config, internal=internal)
        return self._put(Topic(name, uuid4(), partitions, dict(config), internal))

    def check_new(self, name: str, partitions: int, config: Mapping[str, str], *, internal: bool = False) -> None:
        """Refuse a topic that cannot be created; an internal one is created by the broker alone."""
        if not internal:
            refuse_internal(name, "create")
        if not is_topic_name(name):
            message = f"{name!r} is no topic name: letters, digits, '.', '_', '-', at most 249"
            raise LogError(ErrorCode.invalid_topic_exception, message)
        if name in self:
            raise LogError(ErrorCode.topic_already_exists, f"topic {name!r} exists")
        if not 1 <= partitions <= _MOST_PARTITIONS:
            message = f"a topic has 1 to {_MOST_PARTITIONS} partitions, not {partitions}"
            raise LogError(ErrorCode.invalid_partitions, message)
        check_config(config)

    def grow(self, name: str, partitions: int) -> Topic:
        """Add partitions to a topic."""
        self.check_grown(name, partitions)
        return self._put(replace(self[name], partitions=partitions))

    def check_grown(self, name: str, partitions: int) -> None:
        """Refuse a number of partitions that a topic cannot have from now on."""
        topic = self[name]
        if not topic.partitions < partitions <= _MOST_PARTITIONS:
            message = (
                f"topic {name!r} can get {topic.partitions + 1} to {_MOST_PARTITIONS} partitions, not {partitions}"
            )
            raise LogError(ErrorCode.invalid_partitions, message)

    def configure(self, name: str, config: Mapping[str, str]) -> Topic:
        """Replace the settings of a topic."""
        check_config(config, name)
        return self._put(replace(self[name], config=dict(config)))

    def remove(self, name: str) -> None:
        """Delete a topic."""
        self._save({key: topic for key, topic in self.items() if key != name})
        del self[name]
        self.revision += 1

    def repair_internal(self) -> None:
        """Make internal topics compacted that a client of an earlier version created as ordinary ones."""
        for name, config in INTERNAL_TOPICS.items():
            topic = self.get(name)
            if topic is not None and not (topic.internal and topic.setting("cleanup.policy") == "compact"):
                log.warning("%s was an ordinary topic with retention; it is internal and compacted from now on", name)
                self._put(replace(topic, internal=True, config=dict(config)))

    def _put(self, topic: Topic) -> Topic:
        self._save({**self, topic.name: topic})
        self[topic.name] = topic
        self.revision += 1
        return topic

    def _save(self, topics: Mapping[str, Topic]) -> None:
        body = {"version": 1, "topics": [_encoded(topic) for topic in topics.values()]}
        try:
            write_whole(self._path, json.dumps(body, indent=1).encode())
        except OSError as error:
            raise LogError(ErrorCode.kafka_storage_error, f"cannot write {self._path.name}: {error}") from error


def _read(path: Path) -> dict[str, Topic]:
    return {topic.name: topic for topic in map(_decoded, json.loads(path.read_bytes())["topics"])}


def _encoded(topic: Topic) -> dict[str, Any]:
    return {**vars(topic), "id": str(topic.id)}


def _decoded(item: dict[str, Any]) -> Topic:
    return Topic(**{**item, "id": UUID(item["id"])})
