"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs for topics, the broker, the cluster and groups.

What is expected here is what Apache Kafka 4.2 answered to the same requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.kafka.records import Record, build_batch
from penstock.log.broker import Broker
from penstock.log.configs.topic import SETTINGS
from penstock.log.errors import ErrorCode, LogError
from penstock.log.network.limits import ConnectionCounter
from penstock.log.security.setup import open_security
from tests.log.groups.test_handlers import client
from tests.log.storage.logs import NOW
from tests.log.transactions.brokers import Still, running

TOPIC, BROKER, GROUP = 2, 4, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
Story = Callable[[Still, Any], Awaitable[None]]
Ops = list[tuple[str, int, str | None]]


def tell(folder: Path, *stories: Story) -> None:
    """Let each story happen on a broker that finds what the one before has left."""

    async def whole() -> None:
        for story in stories:
            async with running(Still(folder)) as broker:
                if "t" not in broker.store.topics:
                    broker.store.create_topic("t", 1, {})
                await story(broker, client(broker))

    asyncio.run(whole())


async def change(ask: Any, kind: int, name: str, ops: Ops, **more: Any) -> Any:
    configs = [{"name": each, "config_operation": operation, "value": value} for each, operation, value in ops]
    asked = {"resource_type": kind, "resource_name": name, "configs": configs}
    (answer,) = (await ask("incremental_alter_configs", 1, resources=[asked], **more)).responses
    return answer


async def shown(ask: Any, kind: int, name: str, *keys: str, **more: Any) -> dict[str, Any]:
    asked = {"resource_type": kind, "resource_name": name, "configuration_keys": keys or None}
    (answer,) = (await ask("describe_configs", 4, resources=[asked], include_synonyms=True, **more)).results
    assert not answer.error_code, answer.error_message
    return {each.name: each for each in answer.configs}


def synonyms(entry: Any) -> list[tuple[str, str | None, int]]:
    return [(each.name, each.value, each.source) for each in entry.synonyms]


def test_all_topic_settings_are_shown_with_type_source_and_synonyms(tmp_path: Path) -> None:
    async def story(_broker: Still, ask: Any) -> None:
        found = await shown(ask, TOPIC, "t")
        assert list(found) == list(SETTINGS)
        retention, policy = found["retention.ms"], found["cleanup.policy"]
        assert (retention.value, retention.config_source, retention.config_type) == ("604800000", 5, 5)
        assert synonyms(retention) == [("log.retention.hours", "168", 5)]
        assert (policy.value, policy.config_type, synonyms(policy)) == (
            "delete",
            7,
            [("log.cleanup.policy", "delete", 5)],
        )
        assert synonyms(found["remote.storage.enable"]) == []
        await change(ask, TOPIC, "t", [("file.delete.delay.ms", SET, " 7 "), ("preallocate", SET, "TRUE")])
        found = await shown(ask, TOPIC, "t", "file.delete.delay.ms", "preallocate", "nothing")
        assert {name: (each.value, each.config_source) for name, each in found.items()} == {
            "file.delete.delay.ms": ("7", 1),
            "preallocate": ("true", 1),
        }
        assert synonyms(found["file.delete.delay.ms"]) == [
            ("file.delete.delay.ms", "7", 1),
            ("log.segment.delete.delay.ms", "60000", 5),
        ]

    async def later(_broker: Still, ask: Any) -> None:
        assert (await shown(ask, TOPIC, "t", "preallocate"))["preallocate"].value == "true"

    tell(tmp_path, story, later)


def test_documentation_and_synonyms_come_only_when_asked_for(tmp_path: Path) -> None:
    async def story(_broker: Still, ask: Any) -> None:
        asked = {"resource_type": TOPIC, "resource_name": "t", "configuration_keys": ["flush.ms", "retention.ms"]}
        (bare,) = (await ask("describe_configs", 4, resources=[asked])).results
        assert [(each.synonyms, each.documentation) for each in bare.configs] == [((), None)] * 2
        found = await shown(ask, TOPIC, "t", "flush.ms", "retention.ms", include_documentation=True)
        assert "without effect" in found["flush.ms"].documentation
        assert "without effect" not in found["retention.ms"].documentation

    tell(tmp_path, story)


def test_lists_are_appended_to_and_subtracted_from(tmp_path: Path) -> None:
    async def story(broker: Still, ask: Any) -> None:
        steps = [
            (APPEND, "compact", "delete,compact"),
            (APPEND, "compact", "delete,compact"),
            (SUBTRACT, "delete", "compact"),
            (SUBTRACT, "delete", "compact"),
            (SUBTRACT, "compact", ""),
            (APPEND, "compact,delete", "compact,delete"),
            (SET, "", ""),
        ]
        for operation, value, expected in steps:
            assert not (await change(ask, TOPIC, "t", [("cleanup.policy", operation, value)])).error_code
            entry = (await shown(ask, TOPIC, "t", "cleanup.policy"))["cleanup.policy"]
            assert (entry.value, entry.config_source) == (expected, 1)
        topic = broker.store.topic("t")
        assert (topic.deletes, topic.compacted, broker.store.partition("t", 0).config.compacted) == (
            False,
            False,
            False,
        )
        for replicas, expected in (("0:1", "0:1"), ("1:1,0:1", "0:1,1:1")):
            await change(ask, TOPIC, "t", [("leader.replication.throttled.replicas", APPEND, replicas)])
            assert broker.store.topic("t").config["leader.replication.throttled.replicas"] == expected

    tell(tmp_path, story)


REFUSED: list[tuple[int, str, Ops, ErrorCode]] = [
    (TOPIC, "t", [("retention.ms", APPEND, "1")], ErrorCode.invalid_config),
    (TOPIC, "t", [("nothing", APPEND, "1")], ErrorCode.invalid_config),
    (TOPIC, "t", [("cleanup.policy", APPEND, "nothing")], ErrorCode.invalid_config),
    (TOPIC, "t", [("cleanup.policy", APPEND, None)], ErrorCode.invalid_request),
    (TOPIC, "t", [("retention.ms", SET, None)], ErrorCode.invalid_request),
    (TOPIC, "t", [("nothing", SET, "1")], ErrorCode.invalid_config),
    (TOPIC, "t", [("retention.ms", SET, "1"), ("retention.ms", SET, "2")], ErrorCode.invalid_request),
    (TOPIC, "t", [("retention.ms", 9, "1")], ErrorCode.invalid_request),
    (TOPIC, "missing", [("retention.ms", SET, "1")], ErrorCode.unknown_topic_or_partition),
    (TOPIC, "", [("retention.ms", SET, "1")], ErrorCode.invalid_request),
    (BROKER, "1", [("log.dirs", SET, "/x")], ErrorCode.invalid_request),
    (BROKER, "", [("num.partitions", SET, "3")], ErrorCode.invalid_request),
    (BROKER, "7", [("log.retention.ms", SET, "1")], ErrorCode.invalid_request),
    (BROKER, "1", [("log.retention.ms", SET, "x")], ErrorCode.invalid_request),
    (BROKER, "1", [("nothing", SET, "x")], ErrorCode.invalid_request),
    (GROUP, "g", [("consumer.session.timeout.ms", SET, "1")], ErrorCode.invalid_config),
    (GROUP, "g", [("consumer.heartbeat.interval.ms", SET, "60000")], ErrorCode.invalid_config),
    (GROUP, "g", [("nothing", SET, "1")], ErrorCode.invalid_config),
    (GROUP, "", [("consumer.session.timeout.ms", SET, "50000")], ErrorCode.invalid_request),
    (16, "m", [("interval.ms", SET, "50000")], ErrorCode.invalid_request),
]


@pytest.mark.parametrize(("kind", "name", "ops", "code"), REFUSED)
def test_what_cannot_be_changed_is_refused_and_nothing_is(
    tmp_path: Path, kind: int, name: str, ops: Ops, code: ErrorCode
) -> None:
    async def story(broker: Still, ask: Any) -> None:
        answer = await change(ask, kind, name, ops)
        assert answer.error_code is code
        assert answer.error_message
        assert broker.store.topic("t").config == {}
        assert (broker.store.settings.broker, broker.store.settings.cluster) == ({}, {})

    tell(tmp_path, story)


def test_a_resource_that_is_named_twice_is_not_changed(tmp_path: Path) -> None:
    async def story(broker: Still, ask: Any) -> None:
        both = [
            {"resource_type": TOPIC, "resource_name": "t", "configs": [{"name": "retention.ms", "value": value}]}
            for value in ("1", "2")
        ]
        (answer,) = (await ask("alter_configs", 2, resources=both)).responses
        assert answer.error_code is ErrorCode.invalid_request
        assert broker.store.topic("t").config == {}

    tell(tmp_path, story)


def test_the_brokers_settings_are_the_defaults_of_topics_also_after_a_restart(tmp_path: Path) -> None:
    async def story(broker: Still, ask: Any) -> None:
        partition = broker.store.partition("t", 0)
        await change(ask, BROKER, "", [("log.retention.ms", SET, "7000"), ("message.max.bytes", SET, "2000")])
        await change(ask, BROKER, "1", [("log.retention.ms", SET, "5000"), ("compression.type", SET, "zstd")])
        assert partition.config.max_message_bytes == 2000
        assert partition.config.codec is not None
        await check(broker, ask)

    async def check(broker: Still, ask: Any) -> None:
        entry = (await shown(ask, TOPIC, "t", "retention.ms"))["retention.ms"]
        assert (entry.value, entry.config_source) == ("5000", 2)
        assert synonyms(entry) == [
            ("log.retention.ms", "5000", 2),
            ("log.retention.ms", "7000", 3),
            ("log.retention.hours", "168", 5),
        ]
        assert broker.store.topic("t").setting("retention.ms") == 5000
        (cluster,) = [each for each in (await shown(ask, BROKER, "")).values() if each.name == "message.max.bytes"]
        assert (cluster.value, cluster.config_source) == ("2000", 3)
        own = (await shown(ask, BROKER, "1"))["message.max.bytes"]
        assert (own.value, own.config_source) == ("2000", 3)

    async def undo(broker: Still, ask: Any) -> None:
        assert broker.store.partition("t", 0).config.max_message_bytes == 2000
        await check(broker, ask)
        await change(ask, BROKER, "1", [("log.retention.ms", DELETE, None)])
        assert broker.store.topic("t").setting("retention.ms") == 7000
        await change(ask, TOPIC, "t", [("retention.ms", SET, "1")])
        assert broker.store.topic("t").setting("retention.ms") == 1

    tell(tmp_path, story, undo)


def test_the_brokers_cleanup_policy_can_be_appended_to(tmp_path: Path) -> None:
    async def story(broker: Still, ask: Any) -> None:
        await change(ask, BROKER, "", [("log.cleanup.policy", APPEND, "compact")])
        topic = broker.store.topic("t")
        assert (topic.deletes, topic.compacted) == (True, True)

    tell(tmp_path, story)


def test_internal_topics_stay_compacted_whatever_the_brokers_default_is(tmp_path: Path) -> None:
    async def story(broker: Still, ask: Any) -> None:
        broker.store.create_internal("__consumer_offsets")
        await change(ask, BROKER, "", [("log.cleanup.policy", SET, "delete"), ("log.retention.ms", SET, "1")])
        topic = broker.store.topic("__consumer_offsets")
        assert (topic.deletes, topic.compacted) == (False, True)

    tell(tmp_path, story)


def test_what_the_log_was_started_with_is_shown_and_read_only(tmp_path: Path) -> None:
    async def story(_broker: Still, ask: Any) -> None:
        found = await shown(ask, BROKER, "1")
        assert (found["num.partitions"].read_only, found["num.partitions"].config_type) == (True, 3)
        assert (found["log.retention.ms"].read_only, found["log.retention.ms"].value) == (False, None)
        assert found["node.id"].value == "1"

    tell(tmp_path, story)


def test_validate_only_changes_nothing(tmp_path: Path) -> None:
    async def story(broker: Still, ask: Any) -> None:
        for kind, name, key in (
            (TOPIC, "t", "retention.ms"),
            (BROKER, "1", "log.retention.ms"),
            (BROKER, "", "log.retention.ms"),
            (GROUP, "g", "consumer.session.timeout.ms"),
        ):
            assert not (await change(ask, kind, name, [(key, SET, "50000")], validate_only=True)).error_code
        settings = broker.store.settings
        assert (broker.store.topic("t").config, settings.broker, settings.cluster, settings.groups) == ({}, {}, {}, {})

    tell(tmp_path, story)


def test_a_group_has_settings_before_it_exists_and_after_a_restart(tmp_path: Path) -> None:
    async def story(_broker: Still, ask: Any) -> None:
        before = (await shown(ask, GROUP, "g"))["consumer.session.timeout.ms"]
        assert (before.value, before.config_source) == ("45000", 5)
        assert not (await change(ask, GROUP, "g", [("consumer.session.timeout.ms", SET, "50000")])).error_code

    async def later(broker: Still, ask: Any) -> None:
        after = (await shown(ask, GROUP, "g"))["consumer.session.timeout.ms"]
        assert (after.value, after.config_source) == ("50000", 8)
        replaced = {"name": "consumer.heartbeat.interval.ms", "value": "6000"}
        asked = {"resource_type": GROUP, "resource_name": "g", "configs": [replaced]}
        (answer,) = (await ask("alter_configs", 2, resources=[asked])).responses
        assert not answer.error_code
        assert broker.store.settings.groups == {"g": {"consumer.heartbeat.interval.ms": "6000"}}

    tell(tmp_path, story, later)


def test_connections_are_bounded_by_the_brokers_settings(tmp_path: Path) -> None:
    async def story(broker: Still, ask: Any) -> None:
        count = ConnectionCounter(broker.limits, broker.store.settings.value)
        count.opened("a")
        await change(ask, BROKER, "", [("max.connections.per.ip", SET, "1"), ("max.connections", SET, "2")])
        with pytest.raises(LogError, match="the limit for one host"):
            count.opened("a")
        count.opened("b")
        with pytest.raises(LogError, match="which is the limit"):
            count.opened("c")

    tell(tmp_path, story)


def test_producers_are_forgotten_after_the_time_that_is_set(tmp_path: Path) -> None:
    async def story(broker: Still, ask: Any) -> None:
        partition = broker.store.partition("t", 0)
        batch = build_batch([Record(b"k", b"v")], producer_id=7, producer_epoch=0, base_sequence=0)
        broker.append(partition, batch)
        await change(ask, BROKER, "", [("producer.id.expiration.ms", SET, "1000")])
        broker.now += 1001
        await broker.cleaner.retain_all()
        assert len(partition.producers) == 0

    tell(tmp_path, story)


@pytest.mark.parametrize("name", ["describe_configs", "incremental_alter_configs"])
def test_settings_need_the_right_to_them(tmp_path: Path, name: str) -> None:
    expected = {
        (TOPIC, "t"): ErrorCode.topic_authorization_failed,
        (BROKER, "1"): ErrorCode.cluster_authorization_failed,
        (BROKER, ""): ErrorCode.cluster_authorization_failed,
        (GROUP, "g"): ErrorCode.group_authorization_failed,
    }

    async def whole() -> None:
        security = open_security(tmp_path, client_certificates=True)
        async with running(Still(tmp_path, security)) as broker:
            broker.store.create_topic("t", 1, {})
            ask = client(broker, "User:nobody")
            for (kind, resource), code in expected.items():
                asked = {"resource_type": kind, "resource_name": resource, "configuration_keys": None, "configs": []}
                answer = await ask(name, 1, resources=[asked])
                (one,) = answer.results if name == "describe_configs" else answer.responses
                assert one.error_code is code

    asyncio.run(whole())


def test_a_full_disk_leaves_the_settings_as_they_were(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    async def story(broker: Still, ask: Any) -> None:
        monkeypatch.setattr("penstock.log.configs.broker.write_atomically", refuse)
        answer = await change(ask, BROKER, "", [("log.retention.ms", SET, "1")])
        assert answer.error_code is ErrorCode.kafka_storage_error
        assert broker.store.topic("t").setting("retention.ms") == 604_800_000

    tell(tmp_path, story)


def test_retention_follows_the_brokers_default(tmp_path: Path) -> None:
    async def whole() -> None:
        broker = Broker(tmp_path, sync="none", clock=lambda: NOW)
        await broker.start()
        broker.store.create_topic("t", 1, {"segment.bytes": "1024"})
        partition = broker.store.partition("t", 0)
        for _ in range(3):
            broker.append(partition, build_batch([Record(b"k", bytes(900), timestamp=NOW - 5000)]))
        partition.advance_high_watermark(partition.end)
        await change(client(broker), BROKER, "", [("log.retention.ms", SET, "1000")])  # type: ignore[arg-type]
        await broker.cleaner.retain_all()
        await broker.cleaner.retain_all()
        assert (partition.log_start, partition.end) == (3, 3)
        await broker.stop()

    asyncio.run(whole())
