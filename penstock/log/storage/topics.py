"""Topics and their configs, stored in one file that is replaced atomically."""

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
from penstock.kafka.compression import CODECS, Codec
from penstock.log.configs.topic import INTERNAL_TOPICS, SETTINGS, checked_config, folded, refuse_reserved
from penstock.log.errors import ErrorCode, LogError
from penstock.log.storage.partition import LogConfig
from penstock.log.storage.segments.files import write_atomically

log = logging.getLogger("penstock.log")
_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_MOST_PARTITIONS = 10_000


@dataclass(frozen=True)
class Topic:
    """A topic; two of the same name have different ids."""

    name: str
    id: UUID
    partitions: int
    config: Mapping[str, str] = field(default_factory=dict)
    internal: bool = False
    # Defaults from the broker's dynamic configs; shared by all topics, never stored with one.
    defaults: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)

    def setting(self, name: str) -> Any:
        """Return the effective value of a config."""
        setting = SETTINGS[name]
        found = self.config.get(name, self.defaults.get(name, setting.default))
        return setting.parse(name, found or "")

    @property
    def compacted(self) -> bool:
        """Whether only the last record of each key is retained."""
        return "compact" in self.setting("cleanup.policy")

    @property
    def deletes(self) -> bool:
        """Whether records are deleted by age or size."""
        return "delete" in self.setting("cleanup.policy")

    @property
    def log_config(self) -> LogConfig:
        """The configs that its partitions use for appends."""
        return LogConfig(
            segment_bytes=self.setting("segment.bytes"),
            segment_ms=self.setting("segment.ms"),
            max_message_bytes=self.setting("max.message.bytes"),
            log_append_time=self.setting("message.timestamp.type") == "LogAppendTime",
            compacted=self.compacted,
            codec=self._codec,
            before_ms=self.setting("message.timestamp.before.max.ms"),
            after_ms=self.setting("message.timestamp.after.max.ms"),
        )

    @property
    def _codec(self) -> Codec | None:
        name = self.setting("compression.type")
        if name == "producer":
            return None
        level = self.setting(f"compression.{name}.level") if f"compression.{name}.level" in SETTINGS else None
        return Codec(CODECS[name], level)


def is_topic_name(name: str) -> bool:
    """Return whether a name is a valid topic name."""
    return bool(_NAME.fullmatch(name)) and name not in (".", "..")


class Topics(dict[str, Topic]):
    """All topics by name; every change is on disk before it is visible."""

    def __init__(self, path: Path, defaults: Mapping[str, str] | None = None) -> None:
        super().__init__()
        self._path = path
        self._defaults = {} if defaults is None else defaults
        self.names: dict[bytes, str] = {}  # by topic id
        self.revision = 0  # counts the changes since the start
        try:
            self.update(self._read() if path.exists() else {})
            self.names.update({topic.id.bytes: topic.name for topic in self.values()})
        except (ValueError, TypeError, KeyError) as error:
            message = f"{path} is damaged: no topics can be read from it ({type(error).__name__})"
            raise SettingsError(
                message, hint="restore it from a backup; the folders beside it hold the records"
            ) from None

    def add(self, name: str, partitions: int, config: Mapping[str, str], *, internal: bool = False) -> Topic:
        """Create a topic."""
        self.check_new(name, partitions, config, internal=internal)
        return self._put(Topic(name, uuid4(), partitions, checked_config(config), internal, self._defaults))

    def check_new(self, name: str, partitions: int, config: Mapping[str, str], *, internal: bool = False) -> None:
        """Refuse a topic that cannot be created; only the broker creates internal ones."""
        if not internal:
            refuse_reserved(name)
        if not is_topic_name(name):
            message = f"{name!r} is no topic name: letters, digits, '.', '_', '-', at most 249"
            raise LogError(ErrorCode.invalid_topic_exception, message)
        if name in self:
            raise LogError(ErrorCode.topic_already_exists, f"topic {name!r} exists")
        if not internal:  # those are needed; earlier versions let clients create topics that collide with them
            self._refuse_collision(name)
        if not 1 <= partitions <= _MOST_PARTITIONS:
            message = f"a topic has 1 to {_MOST_PARTITIONS} partitions, not {partitions}"
            raise LogError(ErrorCode.invalid_partitions, message)
        checked_config(config)

    def _refuse_collision(self, name: str) -> None:
        same = folded(name)
        other = next((each for each in self if "_" in same and folded(each) == same), None)
        if other is not None:
            message = f"topic {name!r} collides with {other!r}: they differ only in '.' and '_'"
            raise LogError(ErrorCode.invalid_topic_exception, message)

    def grow(self, name: str, partitions: int) -> Topic:
        """Add partitions to a topic."""
        self.check_grown(name, partitions)
        return self._put(replace(self[name], partitions=partitions))

    def check_grown(self, name: str, partitions: int) -> None:
        """Refuse an invalid new number of partitions."""
        topic = self[name]
        if not topic.partitions < partitions <= _MOST_PARTITIONS:
            message = (
                f"topic {name!r} can get {topic.partitions + 1} to {_MOST_PARTITIONS} partitions, not {partitions}"
            )
            raise LogError(ErrorCode.invalid_partitions, message)

    def configure(self, name: str, config: Mapping[str, str]) -> Topic:
        """Replace the settings of a topic."""
        return self._put(replace(self[name], config=checked_config(config, name)))

    def remove(self, name: str) -> None:
        """Delete a topic."""
        self._save({key: topic for key, topic in self.items() if key != name})
        self.names.pop(self.pop(name).id.bytes, None)
        self.revision += 1

    def repair_internal(self) -> None:
        """Make internal topics compacted that a client of an earlier version created as ordinary ones."""
        for name, config in INTERNAL_TOPICS.items():
            topic = self.get(name)
            if topic is not None and not (topic.internal and topic.setting("cleanup.policy") == ("compact",)):
                log.warning("%s was an ordinary topic with retention; it is internal and compacted from now on", name)
                self._put(replace(topic, internal=True, config=dict(config)))

    def _read(self) -> dict[str, Topic]:
        items = json.loads(self._path.read_bytes())["topics"]
        return {item["name"]: Topic(**{**item, "id": UUID(item["id"])}, defaults=self._defaults) for item in items}

    def _put(self, topic: Topic) -> Topic:
        self._save({**self, topic.name: topic})
        self[topic.name] = topic
        self.names[topic.id.bytes] = topic.name
        self.revision += 1
        return topic

    def _save(self, topics: Mapping[str, Topic]) -> None:
        body = {"version": 1, "topics": [_encoded(topic) for topic in topics.values()]}
        try:
            write_atomically(self._path, json.dumps(body, indent=1).encode())
        except OSError as error:
            raise LogError(ErrorCode.kafka_storage_error, f"cannot write {self._path.name}: {error}") from error


def _encoded(topic: Topic) -> dict[str, Any]:
    kept = {name: value for name, value in vars(topic).items() if name != "defaults"}
    return {**kept, "id": str(topic.id)}
