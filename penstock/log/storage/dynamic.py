"""Settings of the broker and of groups that were changed while the log ran, stored in one file and kept over restarts.

What holds for the broker: its own settings, then those of the cluster, then how it was started, then the default.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock.errors import SettingsError
from penstock.log.errors import ErrorCode, LogError
from penstock.log.storage.broker_settings import BROKER_SETTINGS, GROUP_SETTINGS, TOPIC_OF
from penstock.log.storage.snapshot import write_whole

FILE_NAME = "settings.json"


class DynamicSettings:
    """Every change is on disk before it is seen. `topic_defaults` is live: topics read it whenever they are asked."""

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
        """Return a setting of the broker as it holds now."""
        setting = BROKER_SETTINGS[name]
        text = self.broker.get(name, self.cluster.get(name, setting.default))
        return None if text is None else setting.parse(name, text)

    def is_set(self, name: str) -> bool:
        """Say whether somebody changed a setting of the broker."""
        return name in self.broker or name in self.cluster

    def group_value(self, group_id: str, name: str) -> Any:
        """Return a setting of a group as it holds now."""
        setting = GROUP_SETTINGS[name]
        return setting.parse(name, self.groups.get(group_id, {}).get(name, setting.default or ""))

    def change_broker(self, config: Mapping[str, str]) -> None:
        """Replace what was set for this broker."""
        self._store(config, self.cluster, self.groups)

    def change_cluster(self, config: Mapping[str, str]) -> None:
        """Replace what was set for all brokers of the cluster, which is this one."""
        self._store(self.broker, config, self.groups)

    def change_group(self, group_id: str, config: Mapping[str, str]) -> None:
        """Replace what was set for a group."""
        groups = {**self.groups, group_id: config}
        self._store(self.broker, self.cluster, {name: each for name, each in groups.items() if each})

    def _store(
        self, broker: Mapping[str, str], cluster: Mapping[str, str], groups: Mapping[str, Mapping[str, str]]
    ) -> None:
        body = {"version": 1, "broker": broker, "cluster": cluster, "groups": groups}
        try:
            write_whole(self._path, json.dumps(body, indent=1).encode())
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
