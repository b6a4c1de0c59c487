"""Topic settings: Kafka 4.2's names, types and defaults, and what values they may have."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.errors import SettingsError
from penstock.log.configs.broker import BROKER_SETTINGS, GROUP_SETTINGS, TOPIC_OF, DynamicSettings
from penstock.log.configs.definition import Kind
from penstock.log.configs.topic import SETTINGS, checked_config
from penstock.log.errors import ErrorCode, LogError
from penstock.log.storage.store import Store

VALID = {
    "cleanup.policy": ["", "compact", "delete", "compact,delete", " delete , compact "],
    "compression.gzip.level": ["-1", "1", "9"],
    "compression.type": ["gzip", "snappy", "lz4", "zstd", "uncompressed", "producer"],
    "leader.replication.throttled.replicas": ["", "*", "0:1,1:1"],
    "min.cleanable.dirty.ratio": ["0", "1", "0.25", "1e-3"],
    "preallocate": ["true", "FALSE"],
    "remote.storage.enable": ["false"],
    "retention.bytes": ["-1", "-5", "0", str(2**63 - 1)],
    "retention.ms": ["-1", " 5 ", "0"],
}
INVALID = {
    "cleanup.policy": ["nothing", "compact,nothing"],
    "compression.gzip.level": ["0", "10", "-2"],
    "compression.lz4.level": ["0", "18"],
    "compression.type": ["", "brotli", "GZIP"],
    "compression.zstd.level": ["23", "-131073"],
    "flush.messages": ["0"],
    "leader.replication.throttled.replicas": ["x", "0:1,*"],
    "max.message.bytes": ["-1", "1.5", "", str(2**31)],
    "message.timestamp.type": ["createtime"],
    "min.cleanable.dirty.ratio": ["1.1", "-0.1", "nan", "x"],
    "min.insync.replicas": ["0"],
    "preallocate": ["yes", ""],
    "remote.storage.enable": ["true"],
    "retention.ms": ["-2", "", str(2**63)],
    "segment.index.bytes": ["3"],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name in VALID for value in VALID[name]])
def test_a_valid_value_is_stored_in_one_form(name: str, value: str) -> None:
    (stored,) = checked_config({name: value}).values()
    assert stored == checked_config({name: stored})[name]
    assert stored == stored.strip()


@pytest.mark.parametrize(("name", "value"), [(name, value) for name in INVALID for value in INVALID[name]])
def test_an_invalid_value_is_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(LogError) as failure:
        checked_config({name: value})
    assert failure.value.code is ErrorCode.invalid_config
    assert name in failure.value.message


def test_lags_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(LogError, match="is above"):
        checked_config({"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "4"})


@pytest.mark.parametrize("table", [SETTINGS, BROKER_SETTINGS, GROUP_SETTINGS], ids=["topic", "broker", "group"])
def test_every_default_is_a_valid_value(table: dict[str, object]) -> None:
    for name, setting in table.items():
        if setting.default is not None:  # type: ignore[attr-defined]
            assert setting.normal(name, setting.default) == setting.default  # type: ignore[attr-defined]


def test_all_topic_settings_of_kafka_are_there() -> None:
    assert len(SETTINGS) == 33
    assert len([each for each in SETTINGS.values() if each.kind is Kind.LIST]) == 3
    assert set(TOPIC_OF.values()) == {name for name, each in SETTINGS.items() if each.broker}


def test_settings_of_broker_cluster_and_groups_survive_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    first = DynamicSettings(path)
    first.change_cluster({"log.retention.ms": "7", "compression.type": "lz4"})
    first.change_broker({"log.retention.ms": "5"})
    first.change_group("g", {"consumer.session.timeout.ms": "50000"})
    again = DynamicSettings(path)
    assert (again.value("log.retention.ms"), again.value("compression.type")) == (5, "lz4")
    assert again.topic_defaults == {"retention.ms": "5", "compression.type": "lz4"}
    assert again.group_value("g", "consumer.session.timeout.ms") == 50_000
    assert again.group_value("other", "consumer.session.timeout.ms") == 45_000
    again.change_group("g", {})
    assert DynamicSettings(path).groups == {}


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"broker": 1, "cluster": {}, "groups": {}}'])
def test_a_damaged_file_is_named_at_start(tmp_path: Path, text: str) -> None:
    (tmp_path / "settings.json").write_text(text)
    with pytest.raises(SettingsError, match=r"settings\.json is damaged"):
        Store(tmp_path)


def test_topics_of_an_earlier_version_are_read(tmp_path: Path) -> None:
    topic = {"name": "t", "id": "0" * 32, "partitions": 1, "config": {"retention.ms": "5"}, "internal": False}
    (tmp_path / "topics.json").write_text(json.dumps({"version": 1, "topics": [topic]}))
    store = Store(tmp_path)
    assert store.topic("t").setting("retention.ms") == 5
    assert store.topics.names == {bytes(16): "t"}
    store.configure("t", {"retention.ms": "6"})
    assert "defaults" not in (tmp_path / "topics.json").read_text()
    store.close()
