"""Consumer groups on a real store, asked through the bytes of requests: durability, offsets, tools, both protocols."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from penstock.log.errors import ErrorCode
from penstock.log.security.acls import ANONYMOUS, Acl, Authorizer, Operation, Pattern, Permission, Resource
from penstock.log.security.setup import open_security
from tests.log.groups.broker_fixture import TRADES, Still, let_it_work, number, offset, pass_time, play
from tests.log.groups.test_handlers import Ask, client, commit_of
from tests.log.groups.test_handlers import join as join_classic
from tests.log.transactions.brokers import running

OFFSETS = ("__consumer_offsets", 0)
SESSION = 45_000
DAY = 24 * 3_600_000


async def beat(ask: Ask, member: str = "m", epoch: int = 0, *, version: int = 1, **more: Any) -> Any:
    first = {"rebalance_timeout": 300_000, "subscribed_topic_names": ["trades"], "topic_partitions": []}
    fields = {"group_id": "g", "member_id": member, "member_epoch": epoch} | (first if epoch == 0 else {}) | more
    return await ask("consumer_group_heartbeat", version, **fields)


def indexes(answer: Any) -> list[int]:
    return [index for topic in answer.assignment.topic_partitions for index in topic.partitions]


async def commit(ask: Ask, member: str, epoch: int, version: int = 9) -> ErrorCode:
    fields = {"group_id": "g", "member_id": member, "generation_id_or_member_epoch": epoch}
    reply = await ask("offset_commit", version, **fields, topics=commit_of(0, 7))
    return reply.topics[0].partitions[0].error_code


async def fetch(ask: Ask, member: str | None, epoch: int) -> Any:
    topics = [{"name": "trades", "partition_indexes": [0]}]
    group = {"group_id": "g", "member_id": member, "member_epoch": epoch, "topics": topics}
    return (await ask("offset_fetch", 9, groups=[group])).groups[0]


def test_a_member_joins_commits_fetches_and_leaves(tmp_path: Path) -> None:
    async def story(broker: Still) -> None:
        ask = client(broker)
        joined = await beat(ask)
        assert (joined.error_code, joined.member_id, joined.member_epoch) == (ErrorCode.none, "m", 1)
        assert indexes(joined) == [0, 1, 2, 3]
        assert joined.assignment.topic_partitions[0].topic_id == broker.store.topics["trades"].id
        assert await commit(ask, "m", 1) is ErrorCode.none
        assert (await fetch(ask, "m", 1)).topics[0].partitions[0].committed_offset == 7
        left = await beat(ask, epoch=-1)
        assert (left.error_code, left.member_epoch) == (ErrorCode.none, -1)
        assert not broker.groups.consumers.all["g"].members

    play(tmp_path, story)


def test_members_and_their_assignments_survive_a_restart(tmp_path: Path) -> None:
    async def before(broker: Still) -> None:
        ask = client(broker)
        await beat(ask, "a", instance_id="i")
        assert (await beat(ask, "b")).member_epoch == 2
        await commit(ask, "b", 2)

    async def after(broker: Still) -> None:
        ask = client(broker)
        group = broker.groups.consumers.all["g"]
        assert (group.epoch, group.members["a"].instance_id, group.state) == (2, "i", "Reconciling")
        asked = await beat(ask, "a", 1, instance_id="i", topic_partitions=[])
        assert (asked.error_code, asked.member_epoch) == (ErrorCode.none, 2), "what it does not own is revoked"
        kept = set(indexes(asked))
        assert len(kept) == 2
        assert set(indexes(await beat(ask, "b", 2))) == {0, 1, 2, 3} - kept
        assert number(broker) == 7
        await pass_time(broker, SESSION + 10)
        assert group.id in broker.groups.consumers

    async def later(broker: Still) -> None:
        assert not broker.groups.consumers.all["g"].members
        assert broker.groups.consumers.all["g"].epoch == 3, "both went at once"

    play(tmp_path, before, after, later)


def test_what_the_disk_refuses_did_not_happen(tmp_path: Path) -> None:
    async def story(broker: Still) -> None:
        ask = client(broker)
        broker.refuses = {OFFSETS}
        assert (await beat(ask)).error_code is ErrorCode.coordinator_not_available
        assert "g" not in broker.groups.consumers
        broker.refuses = set()
        await beat(ask)
        group = broker.groups.consumers.all["g"]
        broker.refuses = {OFFSETS}
        assert (await beat(ask, epoch=-1)).error_code is ErrorCode.coordinator_not_available
        assert broker.groups.consumers.all["g"] is group
        await pass_time(broker, SESSION + 5_000)
        assert broker.groups.consumers.all["g"].members, "its removal cannot be written"
        broker.refuses = set()
        await pass_time(broker, 2_000)
        assert not broker.groups.consumers.all["g"].members

    play(tmp_path, story)


def test_offsets_are_taken_from_current_members_alone(tmp_path: Path) -> None:
    async def story(broker: Still) -> None:
        ask = client(broker)
        await beat(ask, "m")
        codes = [
            await commit(ask, "m", 0),
            await commit(ask, "m", 2),
            await commit(ask, "x", 1),
            await commit(ask, "", -1),
        ]
        stale, unknown = ErrorCode.stale_member_epoch, ErrorCode.unknown_member_id
        assert codes == [stale, stale, unknown, unknown]
        assert await commit(ask, "m", 1, version=8) is ErrorCode.unsupported_version
        fetched = [(await fetch(ask, *who)).error_code for who in (("m", 1), ("m", 3), ("x", 1), (None, -1))]
        assert fetched == [ErrorCode.none, stale, unknown, ErrorCode.none]
        await beat(ask, epoch=-1)
        assert await commit(ask, "", -1) is ErrorCode.none, "an administrator may, while nobody is there"

    play(tmp_path, story)


@pytest.mark.parametrize(
    ("member", "epoch", "code"), [("m", 1, "none"), ("m", 2, "illegal_generation"), ("", -1, "none")]
)
def test_offsets_of_transactions_name_their_member_or_nobody(
    tmp_path: Path, member: str, epoch: int, code: str
) -> None:
    async def story(broker: Still) -> None:
        ask = client(broker)
        await beat(ask)
        producer = await ask("init_producer_id", 4, transactional_id="t", transaction_timeout=60_000)
        who = {"transactional_id": "t", "producer_id": producer.producer_id, "producer_epoch": 0, "group_id": "g"}
        await ask("add_offsets_to_txn", 3, **who)
        fields = who | {"member_id": member, "generation_id": epoch}
        reply = await ask("txn_offset_commit", 3, **fields, topics=commit_of(0, 7))
        assert reply.topics[0].partitions[0].error_code is ErrorCode[code]

    play(tmp_path, story)


def test_an_empty_classic_group_becomes_a_consumer_group_and_back(tmp_path: Path) -> None:
    async def before(broker: Still) -> None:
        ask = client(broker)
        joined = await join_classic(broker, ask, 9)
        refused = await beat(ask)
        assert refused.error_code is ErrorCode.group_id_not_found
        await ask("leave_group", 5, group_id="g", members=[{"member_id": joined.member_id}])
        await broker.groups.commit("g", {TRADES: offset(5)})
        assert not (await beat(ask)).error_code
        assert "g" not in broker.groups.groups
        refused = await ask("join_group", 9, group_id="g", session_timeout=10_000, protocol_type="consumer")
        assert refused.error_code is ErrorCode.inconsistent_group_protocol

    async def after(broker: Still) -> None:
        ask = client(broker)
        assert ("g" in broker.groups.groups, "g" in broker.groups.consumers) == (False, True)
        assert number(broker) == 5
        await beat(ask, epoch=-1)
        await join_classic(broker, ask, 9)
        assert ("g" in broker.groups.groups, "g" in broker.groups.consumers) == (True, False)

    async def later(broker: Still) -> None:
        assert ("g" in broker.groups.groups, "g" in broker.groups.consumers) == (True, False)
        assert number(broker) == 5

    play(tmp_path, before, after, later)


def test_tools_list_describe_and_delete_both_kinds_of_groups(tmp_path: Path) -> None:
    async def story(broker: Still) -> None:
        ask = client(broker)
        await beat(ask, rack_id="r", server_assignor="range")
        await broker.groups.commit("old", {TRADES: offset(1)})
        listed = {each.group_id: each for each in (await ask("list_groups", 5)).groups}
        assert (listed["g"].group_type, listed["g"].protocol_type, listed["g"].group_state) == (
            "consumer",
            "consumer",
            "Stable",
        )
        assert listed["old"].group_type == "classic"
        for filters, found in [({"types_filter": ["Consumer"]}, ["g"]), ({"states_filter": ["empty"]}, ["old"])]:
            assert [each.group_id for each in (await ask("list_groups", 5, **filters)).groups] == found
        described, old, none = (await ask("consumer_group_describe", 1, group_ids=["g", "old", "x"])).groups
        assert (described.group_state, described.group_epoch, described.assignor_name) == ("Stable", 1, "range")
        (member,) = described.members
        assert (member.member_id, member.rack_id, member.member_type) == ("m", "r", 1)
        assert member.assignment.topic_partitions[0].topic_name == "trades"
        assert member.target_assignment.topic_partitions[0].partitions == (0, 1, 2, 3)
        assert {old.error_code, none.error_code} == {ErrorCode.group_id_not_found}
        assert (await ask("describe_groups", 5, groups=["g"])).groups[0].group_state == "Dead"
        assert (await ask("delete_groups", 2, groups_names=["g"])).results[0].error_code is ErrorCode.non_empty_group
        removed = await ask("leave_group", 5, group_id="g", members=[{"member_id": "m"}, {"member_id": "x"}])
        assert [each.error_code for each in removed.members] == [ErrorCode.none, ErrorCode.unknown_member_id]
        assert (await ask("delete_groups", 2, groups_names=["g"])).results[0].error_code is ErrorCode.none
        assert "g" not in broker.groups.consumers

    async def after(broker: Still) -> None:
        assert "g" not in broker.groups.consumers

    play(tmp_path, story, after)


def test_offsets_of_subscribed_topics_are_not_deleted_and_do_not_expire(tmp_path: Path) -> None:
    async def story(broker: Still) -> None:
        ask = client(broker)
        await beat(ask)
        await commit(ask, "m", 1)
        topics = [{"name": "trades", "partitions": [{"partition_index": 0}]}]
        refused = await ask("offset_delete", 0, group_id="g", topics=topics)
        assert refused.topics[0].partitions[0].error_code is ErrorCode.group_subscribed_to_topic
        await beat(ask, epoch=-1)
        broker.now += 8 * DAY
        await pass_time(broker, broker.groups.settings.sweep_every + 10)
        assert number(broker) is None
        assert "g" not in broker.groups.consumers

    play(tmp_path, story)


@pytest.mark.parametrize(
    "wrong",
    [
        {"group_id": ""},
        {"member_id": ""},
        {"instance_id": ""},
        {"rack_id": ""},
        {"rebalance_timeout": -1},
        {"topic_partitions": None},
        {"subscribed_topic_names": None},
        {"member_epoch": -3},
        {"member_epoch": -2},
    ],
)
def test_a_heartbeat_that_makes_no_sense_is_an_invalid_request(tmp_path: Path, wrong: dict[str, Any]) -> None:
    async def story(broker: Still) -> None:
        assert (await beat(client(broker), **({"epoch": wrong.pop("member_epoch", 0)} | wrong))).error_code is (
            ErrorCode.invalid_request
        )
        assert "g" not in broker.groups.consumers

    play(tmp_path, story)


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"server_assignor": "sticky"}, ErrorCode.unsupported_assignor),
        ({"subscribed_topic_regex": "("}, ErrorCode.invalid_regular_expression),
        ({"epoch": 1}, ErrorCode.group_id_not_found),
    ],
)
def test_what_cannot_be_served_says_why(tmp_path: Path, more: dict[str, Any], code: ErrorCode) -> None:
    async def story(broker: Still) -> None:
        refused = await beat(client(broker), **more)
        assert refused.error_code is code
        assert refused.error_message

    play(tmp_path, story)


def test_version_0_gives_out_member_ids(tmp_path: Path) -> None:
    async def story(broker: Still) -> None:
        joined = await beat(client(broker), "", version=0)
        assert joined.member_id in broker.groups.consumers.all["g"].members

    play(tmp_path, story)


def test_a_client_that_hangs_up_has_joined_all_the_same(tmp_path: Path) -> None:
    async def story(broker: Still) -> None:
        asking = asyncio.create_task(beat(client(broker)))
        await asyncio.sleep(0)
        asking.cancel()
        await let_it_work()
        assert "g" in broker.groups.consumers

    play(tmp_path, story)


def test_a_member_finds_only_topics_that_it_may_see(tmp_path: Path) -> None:
    rights = [(Resource.GROUP, "g", Operation.READ), (Resource.TOPIC, "trades", Operation.DESCRIBE)]
    Authorizer(tmp_path).add(
        Acl(resource, name, Pattern.LITERAL, ANONYMOUS, "*", operation, Permission.ALLOW)
        for resource, name, operation in rights
    )

    async def whole() -> None:
        async with running(Still(tmp_path, open_security(tmp_path, acls=True))) as broker:
            for name in ("trades", "travels"):
                broker.store.create_topic(name, 1, {})
            ask = client(broker)
            refused = await beat(ask, subscribed_topic_names=["trades", "travels"])
            assert refused.error_code is ErrorCode.topic_authorization_failed
            joined = await beat(ask, subscribed_topic_names=None, subscribed_topic_regex=".*")
            (topic,) = joined.assignment.topic_partitions
            assert topic.topic_id == broker.store.topics["trades"].id
            refused = await beat(ask, group_id="other")
            assert refused.error_code is ErrorCode.group_authorization_failed

    asyncio.run(whole())
