"""The requests of consumers and of tools, in every version, asked through their bytes as a connection does."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from kio.index import load_request_schema

from penstock.log.errors import ErrorCode, LogError
from penstock.log.handlers import COROUTINES
from penstock.log.network.connection import Connection
from penstock.log.protocol.apis import BY_NAME
from penstock.log.protocol.messages import _builder, error_reply, read_request, write_reply
from penstock.log.request_context import Call
from penstock.log.security.setup import open_security
from tests.log.groups.broker_fixture import TRADES, Still, number, offset, only_member, pass_time, play
from tests.log.groups.group_driver import subscription
from tests.log.requests import decoded_reply, encoded
from tests.log.transactions.brokers import running

Ask = Callable[..., Awaitable[Any]]
PROTOCOLS = [{"name": "range", "metadata": subscription("trades")}]


def client(broker: Still, principal: str | None = None) -> Ask:
    """Return what asks a broker, in the name of someone."""
    connection = Connection(broker, "10.0.0.1", broker.security.authentication(principal))

    async def ask(name: str, version: int, **fields: Any) -> Any:
        api = BY_NAME[name]
        body = encoded(_builder(load_request_schema(api.key, version))(fields))
        call = Call(connection, api, version, "test", lambda _: None)
        try:
            reply = write_reply(api, version, await COROUTINES[name](call, read_request(api, version, body)))
        except LogError as error:
            reply = error_reply(api, version, error) or b""
        return decoded_reply(api, version, reply)

    return ask


def newest(name: str, age: int = 0) -> int:
    """The version that a client of some age takes: its own, or the last that there is."""
    return max(min(BY_NAME[name].newest, BY_NAME[name].newest - age), BY_NAME[name].oldest)


def commit_of(partition: int, at: int, topic_id: UUID | None = None) -> list[dict[str, Any]]:
    part = {"partition_index": partition, "committed_offset": at, "committed_metadata": "note"}
    return [{"name": "trades", "topic_id": topic_id, "partitions": [part]}]


@pytest.mark.parametrize("age", range(10))
def test_a_consumer_of_any_age_joins_commits_fetches_and_leaves(tmp_path: Path, age: int) -> None:
    async def story(broker: Still) -> None:
        ask = client(broker)
        joined = await join(broker, ask, newest("join_group", age))
        me = {"group_id": "g", "member_id": joined.member_id, "generation_id": 1}
        parts = [{"member_id": joined.member_id, "assignment": b"everything"}]
        synced = await ask("sync_group", newest("sync_group", age), **me, assignments=parts)
        assert synced.assignment == b"everything"
        assert not (await ask("heartbeat", newest("heartbeat", age), **me)).error_code
        await commit_and_fetch(ask, age, me, broker.store.topic("trades").id)
        left = await ask("leave_group", newest("leave_group", age), **me, members=[me])
        assert not left.error_code
        assert not [each.error_code for each in getattr(left, "members", ()) if each.error_code]
        assert not broker.groups.groups["g"].members

    play(tmp_path, story)


async def join(broker: Still, ask: Ask, version: int, member_id: str = "") -> Any:
    timeouts = {"session_timeout": 10_000, "rebalance_timeout": 10_000}
    consumer = {"protocol_type": "consumer", "protocols": PROTOCOLS}
    fields = {"group_id": "g", "member_id": member_id, **timeouts, **consumer}
    waiting = asyncio.create_task(ask("join_group", version, **fields))
    await pass_time(broker, 300)
    joined = await waiting
    if joined.error_code is ErrorCode.member_id_required:
        return await join(broker, ask, version, joined.member_id)
    assert not joined.error_code
    assert [member.member_id for member in joined.members] == [joined.member_id] == [joined.leader]
    return joined


async def commit_and_fetch(ask: Ask, age: int, me: dict[str, Any], topic_id: UUID) -> None:
    generation = {"generation_id_or_member_epoch": 1, "retention_time": -1}
    version = newest("offset_commit", age)
    done = await ask("offset_commit", version, **me, **generation, topics=commit_of(1, 7, topic_id))
    assert [part.error_code for part in done.topics[0].partitions] == [ErrorCode.none]
    wanted = [{"name": "trades", "topic_id": topic_id, "partition_indexes": [0, 1]}]
    version = newest("offset_fetch", age)
    found = await ask(
        "offset_fetch", version, group_id="g", topics=wanted, groups=[{"group_id": "g", "topics": wanted}]
    )
    topics = found.groups[0].topics if version >= 8 else found.topics
    offsets = [(part.committed_offset, part.metadata, part.error_code) for part in topics[0].partitions]
    assert offsets == [(-1, "", ErrorCode.none), (7, "note", ErrorCode.none)]


@pytest.mark.parametrize("version", range(5))
def test_this_broker_coordinates_everything(tmp_path: Path, version: int) -> None:
    async def story(broker: Still) -> None:
        broker.host, broker.port = "log.example", 9092
        found = await client(broker)("find_coordinator", version, key="g", coordinator_keys=["g"], key_type=version % 2)
        (node,) = found.coordinators if version >= 4 else (found,)
        assert (node.node_id, node.host, node.port, node.error_code) == (1, "log.example", 9092, ErrorCode.none)

    play(tmp_path, story)


def test_nothing_else_has_a_coordinator(tmp_path: Path) -> None:
    async def story(broker: Still) -> None:
        found = await client(broker)("find_coordinator", 4, coordinator_keys=["s"], key_type=2)
        assert found.coordinators[0].error_code is ErrorCode.invalid_request

    play(tmp_path, story)


def test_a_group_needs_a_name(tmp_path: Path) -> None:
    async def story(broker: Still) -> None:
        for name in ("join_group", "sync_group", "heartbeat", "leave_group"):
            assert (await client(broker)(name, newest(name), group_id="")).error_code is ErrorCode.invalid_group_id

    play(tmp_path, story)


def test_each_partition_of_a_commit_is_judged_on_its_own(tmp_path: Path) -> None:
    async def story(broker: Still) -> None:
        parts = [
            {"partition_index": 0, "committed_offset": 3},
            {"partition_index": 1, "committed_offset": 3, "committed_metadata": "x" * 4097},
            {"partition_index": 99, "committed_offset": 3},
        ]
        topics = [{"name": "trades", "partitions": parts}, {"name": "nowhere", "partitions": parts[:1]}]
        done = await client(broker)("offset_commit", 9, group_id="g", generation_id_or_member_epoch=-1, topics=topics)
        assert [part.error_code.name for topic in done.topics for part in topic.partitions] == [
            "none",
            "offset_metadata_too_large",
            "unknown_topic_or_partition",
            "unknown_topic_or_partition",
        ]
        assert number(broker) == 3

    play(tmp_path, story)


@pytest.mark.parametrize("version", [2, 4, 5])
def test_an_old_client_says_itself_how_long_an_offset_is_kept(tmp_path: Path, version: int) -> None:
    async def before(broker: Still) -> None:
        fields = {"generation_id_or_member_epoch": -1, "retention_time": 1000, "topics": commit_of(0, 3)}
        await client(broker)("offset_commit", version, group_id="g", **fields)

    async def after(broker: Still) -> None:
        await pass_time(broker, 2 * broker.groups.settings.sweep_every)
        assert number(broker) == (3 if version == 5 else None)

    play(tmp_path, before, after)


def test_offsets_that_a_transaction_may_move_are_unstable_for_those_who_ask(tmp_path: Path) -> None:
    async def story(broker: Still) -> None:
        await broker.groups.commit("g", {TRADES: offset(5), ("trades", 1): offset(6)})
        await broker.groups.begin_offsets(7, 0, "g", {TRADES: offset(8)})
        for stable_only, expected in [
            (False, [(5, "none"), (6, "none")]),
            (True, [(-1, "unstable_offset_commit"), (6, "none")]),
        ]:
            groups = [{"group_id": "g", "topics": None}]
            found = await client(broker)("offset_fetch", 9, groups=groups, require_stable=stable_only)
            parts = found.groups[0].topics[0].partitions
            assert [(part.committed_offset, part.error_code.name) for part in parts] == expected

    play(tmp_path, story)


def test_only_offsets_that_nobody_reads_are_deleted(tmp_path: Path) -> None:
    async def story(broker: Still) -> None:
        broker.store.create_topic("quotes", 1, {})
        await only_member(broker, "g")
        await broker.groups.commit("g", {TRADES: offset(5), ("quotes", 0): offset(6)})
        topics = [{"name": name, "partitions": [{"partition_index": 0}]} for name in ("trades", "quotes", "nowhere")]
        done = await client(broker)("offset_delete", 0, group_id="g", topics=topics)
        assert [topic.partitions[0].error_code.name for topic in done.topics] == [
            "group_subscribed_to_topic",
            "none",
            "unknown_topic_or_partition",
        ]
        assert (number(broker), number(broker, "g", ("quotes", 0))) == (5, None)
        missing = await client(broker)("offset_delete", 0, group_id="h", topics=topics)
        assert missing.error_code is ErrorCode.group_id_not_found

    play(tmp_path, story)


@pytest.mark.parametrize("version", range(6))
def test_groups_are_listed_and_described(tmp_path: Path, version: int) -> None:
    async def story(broker: Still) -> None:
        ask = client(broker)
        await only_member(broker, "g", client_id="me", client_host="/10.0.0.1")
        await broker.groups.commit("h", {TRADES: offset(1)})
        listed = await ask("list_groups", version, states_filter=["stable"], types_filter=["Classic"])
        assert [group.group_id for group in listed.groups] == (["g"] if version >= 4 else ["g", "h"])
        described = await ask(
            "describe_groups", version, groups=["g", "h", "nobody"], include_authorized_operations=True
        )
        assert [group.group_state for group in described.groups] == ["Stable", "Empty", "Dead"]
        (member,) = described.groups[0].members
        assert (member.client_id, member.client_host, member.member_assignment) == ("me", "/10.0.0.1", b"everything")
        assert described.groups[0].protocol_data == "range"

    play(tmp_path, story)


def test_deleting_answers_for_each_group(tmp_path: Path) -> None:
    async def story(broker: Still) -> None:
        await only_member(broker, "g")
        await broker.groups.commit("h", {TRADES: offset(1)})
        done = await client(broker)("delete_groups", 2, groups_names=["g", "h", "nobody"])
        assert [each.error_code.name for each in done.results] == ["non_empty_group", "none", "group_id_not_found"]

    play(tmp_path, story)


def test_without_rights_nothing_of_a_group_is_seen_or_changed(tmp_path: Path) -> None:
    async def whole() -> None:
        broker = Still(tmp_path)
        broker.security = open_security(tmp_path, client_certificates=True)
        async with running(broker):
            broker.store.create_topic("trades", 1, {})
            await broker.groups.commit("g", {TRADES: offset(1)})
            await everything_is_refused(client(broker, "User:mallory"))
            assert number(broker) == 1

    asyncio.run(whole())


async def everything_is_refused(ask: Ask) -> None:
    refused = ErrorCode.group_authorization_failed
    for name in ("join_group", "sync_group", "heartbeat", "leave_group", "offset_delete"):
        assert (await ask(name, newest(name), group_id="g")).error_code is refused
    assert (await ask("find_coordinator", 4, coordinator_keys=["g"])).coordinators[0].error_code is refused
    assert (await ask("list_groups", 5)).groups == ()
    assert (await ask("describe_groups", 5, groups=["g"])).groups[0].error_code is refused
    assert (await ask("delete_groups", 2, groups_names=["g"])).results[0].error_code is refused
    assert (await ask("offset_fetch", 9, groups=[{"group_id": "g", "topics": None}])).groups[0].error_code is refused
    done = await ask("offset_commit", 9, group_id="g", generation_id_or_member_epoch=-1, topics=commit_of(0, 9))
    assert done.topics[0].partitions[0].error_code is ErrorCode.topic_authorization_failed
