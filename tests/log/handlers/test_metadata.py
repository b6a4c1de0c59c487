"""DescribeTopicPartitions page by page, ListConfigResources, and what flags of `penstock log serve` change."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import PenstockError, SettingsError
from penstock.log.errors import ErrorCode
from penstock.log.groups.coordinator import GroupSettings
from penstock.log.security.acls import ANONYMOUS, Acl, AclFilter, Authorizer, Operation, Pattern, Permission, Resource
from penstock.log.security.setup import open_security
from penstock.log.serve import Options, _group_settings
from tests.log.groups.broker_fixture import Still, play
from tests.log.groups.test_handlers import Ask, client
from tests.log.transactions.brokers import running

MANY = 2_500


async def pages(ask: Ask, limit: int, *names: str) -> list[list[tuple[str, int]]]:
    """Follow the cursor to the end."""
    found: list[list[tuple[str, int]]] = []
    cursor: Any = None
    while True:
        topics = [{"name": name} for name in names]
        reply = await ask("describe_topic_partitions", 0, topics=topics, response_partition_limit=limit, cursor=cursor)
        found.append([(topic.name, each.partition_index) for topic in reply.topics for each in topic.partitions])
        if reply.next_cursor is None:
            return found
        last = reply.next_cursor
        cursor = {"topic_name": last.topic_name, "partition_index": last.partition_index}


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 6, 7, 100, 0, -1])
def test_pages_hold_every_partition_once_in_order(tmp_path: Path, limit: int) -> None:
    async def story(broker: Still) -> None:
        broker.store.create_topic("quotes", 3, {})
        expected = [(name, index) for name, count in (("quotes", 3), ("trades", 4)) for index in range(count)]
        for names in ((), ("trades", "quotes")):
            found = await pages(client(broker), limit, *names)
            assert [each for page in found for each in page] == expected
            assert all(len(page) <= max(limit, 1) for page in found)

    play(tmp_path, story)


def test_one_answer_has_at_most_two_thousand_partitions(tmp_path: Path) -> None:
    async def story(broker: Still) -> None:
        broker.store.create_topic("many", MANY, {})
        assert [len(page) for page in await pages(client(broker), MANY, "many")] == [2_000, 500]

    play(tmp_path, story)


def test_a_page_says_what_metadata_says(tmp_path: Path) -> None:
    async def story(broker: Still) -> None:
        reply = await client(broker)(
            "describe_topic_partitions", 0, topics=[{"name": "trades"}, {"name": "x"}, {"name": ".."}]
        )
        by_name = {topic.name: topic for topic in reply.topics}
        assert by_name["x"].error_code is ErrorCode.unknown_topic_or_partition
        assert by_name[".."].error_code is ErrorCode.invalid_topic_exception
        (listed,) = (await client(broker)("metadata", 12, topics=[{"name": "trades"}])).topics
        found = by_name["trades"]
        assert (found.topic_id, found.is_internal) == (listed.topic_id, listed.is_internal)
        assert [(each.leader_id, each.isr_nodes) for each in found.partitions] == [
            (each.leader_id, each.isr_nodes) for each in listed.partitions
        ]
        assert found.partitions[0].eligible_leader_replicas == ()

    play(tmp_path, story)


def test_a_cursor_behind_the_last_topic_finds_nothing_and_a_negative_one_is_refused(tmp_path: Path) -> None:
    async def story(broker: Still) -> None:
        ask = client(broker)
        reply = await ask("describe_topic_partitions", 0, cursor={"topic_name": "z", "partition_index": 0})
        assert (reply.topics, reply.next_cursor) == ((), None)
        # The topic that the cursor names may be gone: its place in the order is not.
        reply = await ask("describe_topic_partitions", 0, cursor={"topic_name": "quotes", "partition_index": 2})
        assert len(reply.topics[0].partitions) == 4
        # Behind the last partition: an answer without partitions, as the topic may have been created again meanwhile.
        reply = await ask("describe_topic_partitions", 0, cursor={"topic_name": "trades", "partition_index": 9})
        assert reply.topics[0].partitions == ()
        reply = await ask(
            "describe_topic_partitions",
            0,
            topics=[{"name": "trades"}],
            cursor={"topic_name": "trades", "partition_index": -1},
        )
        assert [(each.name, each.error_code) for each in reply.topics] == [("trades", ErrorCode.invalid_request)]

    play(tmp_path, story)


def test_resources_with_settings_are_listed_by_kind(tmp_path: Path) -> None:
    async def story(broker: Still) -> None:
        ask = client(broker)

        async def names(version: int, **kinds: Any) -> set[tuple[str, int]]:
            reply = await ask("list_config_resources", version, **kinds)
            return {(each.resource_name, getattr(each, "resource_type", 0)) for each in reply.config_resources}

        assert await names(1, resource_types=[2]) == {("trades", 2)}
        assert await names(1, resource_types=[]) == {("trades", 2), ("1", 4), ("1", 8)}
        assert await names(0) == set()
        refused = await ask("list_config_resources", 1, resource_types=[2, 77])
        assert refused.error_code is ErrorCode.unsupported_version

    play(tmp_path, story)


def test_the_node_id_of_a_start_is_the_one_that_all_answers_name(tmp_path: Path) -> None:
    async def story(broker: Still) -> None:
        broker.node_id = 42
        ask = client(broker)
        metadata = await ask("metadata", 12, topics=[{"name": "trades"}])
        assert (metadata.controller_id, [each.node_id for each in metadata.brokers]) == (42, [42])
        assert {each.leader_id for each in metadata.topics[0].partitions} == {42}
        assert (await ask("find_coordinator", 4, coordinator_keys=["g"])).coordinators[0].node_id == 42
        assert [each.broker_id for each in (await ask("describe_cluster", 1)).brokers] == [42]
        (described,) = (
            await ask(
                "describe_configs",
                4,
                resources=[{"resource_type": 4, "resource_name": "42", "configuration_keys": None}],
            )
        ).results
        assert {each.name: each.value for each in described.configs}["broker.id"] == "42"

    play(tmp_path, story)


def test_group_timeouts_of_a_start_are_read_as_durations() -> None:
    rules = _group_settings(Options(Path(), group_min_session_timeout="1500ms", group_initial_rebalance_delay="0s"))
    assert (rules.min_session, rules.initial_delay) == (1_500, 0)
    assert _group_settings(Options(Path())).initial_delay == 3_000, "as Kafka, for machines that start together"
    assert GroupSettings().initial_delay == 100


@pytest.mark.parametrize(
    "wrong",
    [
        {"group_min_session_timeout": "2h"},
        {"group_initial_rebalance_delay": "soon"},
        {"group_consumer_heartbeat_interval": "1m"},
        {"group_consumer_session_timeout": "0s"},
    ],
)
def test_group_timeouts_that_make_no_sense_are_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(PenstockError):
        _group_settings(Options(Path(), **wrong))  # type: ignore[arg-type]


def test_acls_hold_without_a_login_for_the_anonymous_user(tmp_path: Path) -> None:
    reads = Acl(Resource.TOPIC, "trades", Pattern.LITERAL, ANONYMOUS, "*", Operation.READ, Permission.ALLOW)

    async def whole() -> None:
        async with running(Still(tmp_path, open_security(tmp_path, acls=True, super_users=[ANONYMOUS]))) as broker:
            broker.store.create_topic("trades", 1, {})
            assert broker.security.authentication() is None
            acl = {"resource_type": 2, "resource_name": "trades", "resource_pattern_type": 3, "principal": ANONYMOUS}
            acl |= {"host": "*", "operation": 3, "permission_type": 3}
            assert not (await client(broker)("create_acls", 3, creations=[acl])).results[0].error_code
        assert Authorizer(tmp_path).find(AclFilter()) == [reads]
        async with running(Still(tmp_path, open_security(tmp_path, acls=True))) as broker:
            ask = client(broker)
            assert not (await ask("metadata", 12, topics=[{"name": "trades"}])).topics[0].error_code
            refused = await ask("delete_topics", 6, topics=[{"name": "trades"}])
            assert refused.responses[0].error_code is ErrorCode.topic_authorization_failed
            refused = await ask("describe_acls", 3, resource_type_filter=1, operation=1, permission_type=1)
            assert refused.error_code is ErrorCode.cluster_authorization_failed

    asyncio.run(whole())


def test_acls_without_a_login_that_would_lock_everybody_out_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="no ACL allows them anything"):
        open_security(tmp_path, acls=True)


def test_acls_do_not_open_the_log_to_other_machines(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="without authentication"):
        open_security(tmp_path, "0.0.0.0", acls=True, super_users=[ANONYMOUS])
