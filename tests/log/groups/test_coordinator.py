"""The coordinator over a real store: who waits, what is durable, what a restart finds."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.log.errors import ErrorCode, LogError
from penstock.log.groups.classic.events import Commit, Heartbeat, Leave, Sync
from penstock.log.groups.classic.group import State
from penstock.log.groups.formats import OffsetKey
from penstock.log.groups.offsets import OffsetTable, expired_offsets
from tests.log.groups.broker_fixture import TRADES, Still, let_it_work, number, offset, only_member, pass_time, play
from tests.log.groups.group_driver import SESSION, Drill, join
from tests.log.groups.test_handlers import client

OFFSETS = ("__consumer_offsets", 0)
QUOTES = ("quotes", 0)
DAY = 24 * 3_600_000


def test_a_member_goes_on_after_a_restart(tmp_path: Path) -> None:
    member_ids = []

    async def before(broker: Still) -> None:
        joined, synced = await only_member(broker, "g")
        assert synced.assignment == b"everything"
        member_ids.append(joined.member_id)

    async def after(broker: Still) -> None:
        (member_id,) = member_ids
        assert broker.groups.submit("g", Heartbeat(generation=1, member_id=member_id)) is ErrorCode.none
        synced = await broker.groups.sync("g", Sync(generation=1, member_id=member_id))
        assert synced.assignment == b"everything"
        await pass_time(broker, SESSION + 10)
        assert broker.groups.groups["g"].state is State.EMPTY

    async def later(broker: Still) -> None:
        group = broker.groups.groups["g"]
        assert (group.state, group.generation, group.protocol_type) == (State.EMPTY, 2, "consumer")

    play(tmp_path, before, after, later)


def test_a_static_member_is_known_by_its_new_id_after_a_restart(tmp_path: Path) -> None:
    async def before(broker: Still) -> None:
        waiting = asyncio.create_task(broker.groups.join("g", join(instance_id="a")))
        await pass_time(broker, 200)
        first = await waiting
        await broker.groups.sync("g", Sync(generation=1, member_id=first.member_id))
        await broker.groups.join("g", join(instance_id="a", new_id="came back"))

    async def after(broker: Still) -> None:
        beat = Heartbeat(generation=1, member_id="came back", instance_id="a")
        assert broker.groups.submit("g", beat) is ErrorCode.none

    play(tmp_path, before, after)


@pytest.mark.parametrize(
    ("session", "code"), [(5_999, ErrorCode.invalid_session_timeout), (1_800_001, ErrorCode.invalid_session_timeout)]
)
def test_a_session_is_between_six_seconds_and_half_an_hour(tmp_path: Path, session: int, code: ErrorCode) -> None:
    async def story(broker: Still) -> None:
        assert (await broker.groups.join("g", join(session_timeout=session))).error is code

    play(tmp_path, story)


def test_a_group_that_does_not_exist_knows_nobody(tmp_path: Path) -> None:
    async def story(broker: Still) -> None:
        groups = broker.groups
        assert (await groups.join("g", join("stranger"))).error is ErrorCode.unknown_member_id
        assert (await groups.sync("g", Sync(generation=1, member_id="x"))).error is ErrorCode.unknown_member_id
        assert groups.submit("g", Leave(member_id="x")) is ErrorCode.unknown_member_id
        commit = Commit(generation=1, member_id="x")
        assert groups.check_commit("g", commit) is ErrorCode.group_id_not_found, "as in Kafka since version 9"
        for other in (replace(commit, by_epoch=False), replace(commit, transactional=True)):
            assert groups.check_commit("g", other) is ErrorCode.illegal_generation
        assert await groups.delete("g") is ErrorCode.group_id_not_found

    play(tmp_path, story)


def test_stopping_answers_everybody_who_waits(tmp_path: Path) -> None:
    waiting: list[asyncio.Task[object]] = []

    async def story(broker: Still) -> None:
        waiting.append(asyncio.create_task(broker.groups.join("g", join(reserves_id=False))))
        await let_it_work()

    async def both(broker: Still) -> None:
        await story(broker)
        await broker.groups.stop()
        with pytest.raises(LogError) as caught:
            await waiting[0]
        assert caught.value.code is ErrorCode.coordinator_not_available

    play(tmp_path, both)


def test_an_assignment_that_the_disk_refuses_is_not_given_out(tmp_path: Path) -> None:
    async def story(broker: Still) -> None:
        broker.refuses = {OFFSETS}
        _, synced = await only_member(broker, "g")
        assert synced.error is ErrorCode.coordinator_not_available
        assert broker.groups.groups["g"].state is State.PREPARING

    play(tmp_path, story)


def test_a_client_that_hangs_up_while_it_waits_harms_nobody(tmp_path: Path) -> None:
    async def story(broker: Still) -> None:
        waiting = asyncio.create_task(broker.groups.join("g", join(reserves_id=False)))
        await let_it_work()
        waiting.cancel()
        await pass_time(broker, 200)
        assert broker.groups.groups["g"].state is State.COMPLETING
        await pass_time(broker, 10 * SESSION)
        assert broker.groups.groups["g"].state is State.EMPTY

    play(tmp_path, story)


def test_deleting_a_group_deletes_its_offsets_for_good(tmp_path: Path) -> None:
    async def before(broker: Still) -> None:
        await broker.groups.commit("g", {TRADES: offset(5)})
        assert await broker.groups.delete("g") is ErrorCode.none
        assert "g" not in broker.groups.groups

    async def after(broker: Still) -> None:
        assert number(broker) is None
        assert "g" not in broker.groups.groups

    play(tmp_path, before, after)


def test_a_group_whose_deletion_the_disk_refuses_lives_on(tmp_path: Path) -> None:
    async def story(broker: Still) -> None:
        await broker.groups.commit("g", {TRADES: offset(5)})
        broker.refuses = {OFFSETS}
        with pytest.raises(LogError):
            await broker.groups.delete("g")
        assert broker.groups.groups["g"].state is State.EMPTY
        assert number(broker) == 5

    play(tmp_path, story)


def test_a_group_with_members_is_not_deleted(tmp_path: Path) -> None:
    async def story(broker: Still) -> None:
        await only_member(broker, "g")
        assert await broker.groups.delete("g") is ErrorCode.non_empty_group

    play(tmp_path, story)


def test_offsets_of_a_group_long_without_members_expire_and_the_group_with_them(tmp_path: Path) -> None:
    async def story(broker: Still) -> None:
        await only_member(broker, "g")
        await broker.groups.commit("g", {TRADES: offset(5, broker.now)})
        await pass_time(broker, SESSION + 10)
        for days, left in [(6, 5), (2, None)]:
            broker.now += days * DAY
            await pass_time(broker, broker.groups.settings.sweep_every + 10)
            assert number(broker) == left
        assert "g" not in broker.groups.groups

    play(tmp_path, story)


def test_offsets_of_topics_that_members_read_never_expire_and_those_of_others_do() -> None:
    drill = Drill()
    drill.first_members(1)
    table = OffsetTable()
    for topic in ("trades", "quotes"):
        table.commit(OffsetKey("readers", topic, 0), offset(5, drill.now))
    assert list(expired_offsets(drill.group, table, drill.now + 6 * DAY, 7 * DAY)) == []
    (key,) = expired_offsets(drill.group, table, drill.now + 8 * DAY, 7 * DAY)
    assert key.topic == "quotes"


@pytest.mark.parametrize("recreated", [False, True])
def test_offsets_of_a_topic_whose_deletion_was_interrupted_are_gone_after_the_restart(
    tmp_path: Path, recreated: bool
) -> None:
    async def before(broker: Still) -> None:
        broker.store.create_topic("quotes", 1, {})
        await broker.groups.commit("g", {TRADES: offset(5), QUOTES: offset(6)})
        await broker.groups.begin_offsets(7, 0, "other", {QUOTES: offset(7)})
        broker.store.delete_topic("quotes")

    async def after(broker: Still) -> None:
        if recreated:
            await broker.create_topic("quotes", 1, {})
        broker.groups.end_offsets(7, True)
        assert (number(broker), number(broker, "g", QUOTES), number(broker, "other", QUOTES)) == (5, None, None)

    play(tmp_path, before, after)


def test_a_topic_is_not_created_again_before_the_offsets_of_the_deleted_one_are_gone(tmp_path: Path) -> None:
    async def story(broker: Still) -> None:
        ask = client(broker)
        broker.store.create_topic("quotes", 1, {})
        await broker.groups.commit("g", {QUOTES: offset(6)})
        broker.refuses = {OFFSETS}
        deleted = await ask("delete_topics", 5, topic_names=["quotes"])
        assert deleted.responses[0].error_code is ErrorCode.coordinator_not_available
        with pytest.raises(LogError, match="no space left"):
            await broker.create_topic("quotes", 1, {})
        found = await ask("metadata", 9, topics=[{"name": "quotes"}], allow_auto_topic_creation=True)
        assert found.topics[0].error_code is ErrorCode.coordinator_not_available
        broker.refuses = set()
        await broker.create_topic("quotes", 1, {})
        assert number(broker, "g", QUOTES) is None

    play(tmp_path, story)


def test_an_offset_that_is_being_written_while_its_topic_is_deleted_is_forgotten_too(tmp_path: Path) -> None:
    async def story(broker: Still) -> None:
        broker.store.create_topic("quotes", 1, {})
        held, make_durable = [], broker.when_durable
        broker.when_durable = lambda *asked: held.append(asked)  # type: ignore[method-assign]
        commit = asyncio.create_task(broker.groups.commit("g", {QUOTES: offset(6)}))
        await let_it_work()
        broker.store.delete_topic("quotes")
        forget = asyncio.create_task(broker.groups.forget_topic("quotes"))
        await let_it_work()
        for asked in held:
            make_durable(*asked)
        await asyncio.gather(commit, forget)
        assert number(broker, "g", QUOTES) is None

    play(tmp_path, story)


def test_offsets_of_a_deleted_topic_are_forgotten(tmp_path: Path) -> None:
    async def story(broker: Still) -> None:
        await broker.groups.commit("g", {TRADES: offset(5), ("quotes", 0): offset(6)})
        await broker.groups.forget_topic("trades")
        assert (number(broker), number(broker, "g", ("quotes", 0))) == (None, 6)

    play(tmp_path, story)
