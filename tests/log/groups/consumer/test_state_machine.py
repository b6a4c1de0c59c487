"""What a consumer group answers, case by case; codes and epochs are those of Apache Kafka."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.log.errors import ErrorCode, LogError
from penstock.log.groups.consumer.state import (
    LEFT,
    LEFT_FOR_A_WHILE,
    NOTHING,
    GroupState,
    Heartbeat,
    MemberState,
    TopicInfo,
)
from penstock.log.groups.consumer.state_machine import check_epoch, handle
from tests.log.groups.consumer.group_driver import REBALANCE, SETTINGS, Client, Drill, parts, topic_id

JOIN = {"rebalance_timeout": REBALANCE, "topics": frozenset({"trades"}), "owned": NOTHING}


def test_the_first_member_gets_everything_with_its_first_answer() -> None:
    drill = Drill(trades=3)
    answer = drill.beat("a", 0, **JOIN)
    assert (answer.epoch, answer.assignment) == (1, parts("trades", 0, 1, 2))
    assert answer.heartbeat_interval == SETTINGS.heartbeat_interval
    assert drill.group.state is GroupState.STABLE


def test_an_answer_repeats_the_assignment_only_where_the_member_asks_for_all() -> None:
    drill = Drill(trades=1)
    drill.beat("a", 0, **JOIN)
    assert drill.beat("a", 1).assignment is None
    assert drill.beat("a", 1, **(JOIN | {"owned": parts("trades", 0)})).assignment == parts("trades", 0)


def test_a_second_member_gets_partitions_only_after_the_first_has_revoked_them() -> None:
    drill = Drill(trades=4)
    first, second = drill.join("a", "trades"), drill.join("b", "trades")
    assert (second.epoch, second.owned) == (2, NOTHING)
    assert drill.group.state is GroupState.RECONCILING

    first.beat()
    assert (first.epoch, len(first.wanted)) == (1, 2), "it stays in its epoch until it has revoked"
    second.beat()
    assert second.owned == NOTHING
    first.beat()
    assert drill.group.members["a"].state is MemberState.UNREVOKED, "it still says that it owns them"

    first.revoke()
    first.beat()
    assert first.epoch == 2
    second.beat()
    assert first.owned | second.owned == parts("trades", 0, 1, 2, 3)
    assert len(first.owned) == len(second.owned) == 2
    assert drill.group.state is GroupState.STABLE


def test_members_that_keep_their_partitions_never_stop_to_read_them() -> None:
    drill = Drill(trades=6)
    first, second = drill.join("a", "trades"), drill.join("b", "trades")
    drill.settle(first, second)
    kept = first.owned, second.owned
    third = drill.join("c", "trades")
    drill.settle(first, second, third)
    assert all(now < before for now, before in zip((first.owned, second.owned), kept, strict=True))
    assert {len(each.owned) for each in (first, second, third)} == {2}


def test_a_member_that_leaves_gives_its_partitions_to_the_others() -> None:
    drill = Drill(trades=4)
    first, second = drill.join("a", "trades"), drill.join("b", "trades")
    drill.settle(first, second)
    answer = drill.beat("b", LEFT)
    assert (answer.epoch, answer.assignment) == (LEFT, None)
    assert drill.group.state is GroupState.ASSIGNING
    first.beat()
    assert first.owned == parts("trades", 0, 1, 2, 3)


def test_a_member_that_is_silent_for_its_session_is_removed() -> None:
    drill = Drill(trades=2)
    first, second = drill.join("a", "trades"), drill.join("b", "trades")
    drill.settle(first, second)
    drill.pass_time(SETTINGS.session_timeout - 1)
    first.beat()
    drill.pass_time(1)
    assert list(drill.group.members) == ["a"]
    first.beat()
    assert first.owned == parts("trades", 0, 1)
    second.beat()
    assert second.error is ErrorCode.unknown_member_id


def test_a_member_that_does_not_revoke_within_its_rebalance_timeout_is_removed() -> None:
    drill = Drill(trades=2)
    first, second = drill.join("a", "trades"), drill.join("b", "trades")
    first.beat()
    for _ in range(REBALANCE // 5_000 + 1):
        drill.pass_time(5_000)
        first.beat()
        second.beat()
    assert first.error is ErrorCode.unknown_member_id or first.epoch > 2
    assert second.owned, "it no longer waits"


@pytest.mark.parametrize("epoch", [2, 5])
def test_an_epoch_ahead_of_the_groups_is_fenced(epoch: int) -> None:
    drill = Drill(trades=1)
    drill.join("a", "trades")
    assert drill.error("a", epoch) is ErrorCode.fenced_member_epoch


def test_the_epoch_before_is_accepted_after_a_lost_answer_and_fenced_otherwise() -> None:
    drill = Drill(trades=4)
    first, second = drill.join("a", "trades"), drill.join("b", "trades")
    first.beat()
    first.revoke()
    first.loses_answers = True
    first.beat()
    assert drill.group.members["a"].epoch == 2
    assert first.epoch == 1
    assert drill.error("a", 1) is ErrorCode.fenced_member_epoch, "it does not say what it owns"
    assert drill.error("a", 1, owned=parts("trades", 0, 1, 2, 3)) is ErrorCode.fenced_member_epoch
    first.loses_answers = False
    first.beat()
    assert (first.epoch, first.error) == (2, ErrorCode.none)
    second.beat()
    assert first.owned.isdisjoint(second.owned)


def test_a_fenced_member_joins_again_with_its_id() -> None:
    drill = Drill(trades=2)
    first = drill.join("a", "trades")
    first.fenced(ErrorCode.fenced_member_epoch)
    first.beat()
    assert (first.epoch, first.owned) == (1, parts("trades", 0, 1))


def test_strangers_are_unknown() -> None:
    drill = Drill(trades=1)
    drill.join("a", "trades")
    assert drill.error("b", 1) is ErrorCode.unknown_member_id
    assert drill.error("b", LEFT) is ErrorCode.unknown_member_id
    assert drill.error("b", 1, instance_id="i") is ErrorCode.unknown_member_id


def test_a_static_member_that_comes_back_gets_its_partitions_and_nobody_else_notices() -> None:
    drill = Drill(trades=4)
    first, static = drill.join("a", "trades"), drill.join("b", "trades", instance_id="i")
    drill.settle(first, static)
    epoch, owned = drill.group.epoch, static.owned
    assert drill.beat("b", LEFT_FOR_A_WHILE, instance_id="i").epoch == LEFT_FOR_A_WHILE
    first.beat()
    back = drill.join("c", "trades", instance_id="i")
    assert (back.epoch, back.owned, drill.group.epoch) == (epoch, owned, epoch)
    assert drill.error("b", epoch, instance_id="i") is ErrorCode.fenced_instance_id
    assert sorted(drill.group.members) == ["a", "c"]


def test_a_static_member_that_does_not_come_back_is_removed_after_its_session() -> None:
    drill = Drill(trades=2)
    drill.join("b", "trades", instance_id="i")
    drill.beat("b", LEFT_FOR_A_WHILE, instance_id="i")
    drill.pass_time(SETTINGS.session_timeout)
    assert drill.group.state is GroupState.EMPTY


def test_an_instance_id_in_use_is_not_released() -> None:
    drill = Drill(trades=2)
    drill.join("b", "trades", instance_id="i")
    assert drill.error("c", 0, instance_id="i", **JOIN) is ErrorCode.unreleased_instance_id


def test_an_administrator_removes_a_member_by_instance_id() -> None:
    drill = Drill(trades=2)
    drill.join("b", "trades", instance_id="i")
    drill.remove(instance_id="i")
    assert drill.group.state is GroupState.EMPTY
    with pytest.raises(LogError) as caught:
        drill.remove(instance_id="i")
    assert caught.value.code is ErrorCode.unknown_member_id


def test_new_partitions_and_new_topics_are_assigned_with_the_next_heartbeat() -> None:
    drill = Drill(trades=1)
    first = drill.join("a", "trades", "quotes")
    drill.topics["trades"] = TopicInfo(topic_id("trades"), 2)
    first.beat()
    assert (first.epoch, first.owned) == (2, parts("trades", 0, 1))
    drill.topics["quotes"] = TopicInfo(topic_id("quotes"), 1)
    drill.topics["others"] = TopicInfo(topic_id("others"), 1)
    first.beat()
    assert (first.epoch, first.owned) == (3, parts("trades", 0, 1) | parts("quotes", 0))


def test_partitions_of_a_deleted_topic_are_revoked_and_those_of_its_successor_assigned() -> None:
    drill = Drill(trades=2)
    first = drill.join("a", "trades")
    drill.topics["trades"] = TopicInfo(topic_id("trades", 1), 1)
    drill.settle(first)
    assert first.owned == {(topic_id("trades", 1), 0)}


def test_a_regular_expression_takes_in_topics_as_they_come() -> None:
    drill = Drill(trades=1, quotes=1)
    client = Client(drill, "a", None, regex="tr.*|or.*")
    client.beat()
    assert client.owned == parts("trades", 0)
    drill.topics["orders"] = TopicInfo(topic_id("orders"), 1)
    client.beat()
    assert client.owned == parts("trades", 0) | parts("orders", 0)


def test_names_and_a_regular_expression_add_up() -> None:
    drill = Drill(trades=1, quotes=1)
    assert drill.join("a", "quotes", regex="t.*").owned == parts("trades", 0) | parts("quotes", 0)


def test_a_changed_subscription_is_revoked_and_assigned() -> None:
    drill = Drill(trades=1, quotes=1)
    first = drill.join("a", "trades")
    first.subscribe("quotes")
    drill.settle(first)
    assert (first.owned, first.epoch) == (parts("quotes", 0), 2)


def test_the_assignor_that_most_members_ask_for_is_used() -> None:
    drill = Drill(trades=2, quotes=2)
    clients = [drill.join(name, "trades", "quotes", assignor="range") for name in "ab"]
    clients.append(drill.join("c", "trades", "quotes", assignor="uniform"))
    drill.settle(*clients)
    # Ranges of two topics of two partitions leave nothing for the third member.
    assert [len(each.owned) for each in clients] == [2, 2, 0]
    assert {index for _, index in clients[0].owned} == {0}


def test_a_full_group_lets_in_no_more() -> None:
    drill = Drill(trades=1)
    drill.join("a", "trades")
    small = replace(SETTINGS, max_size=1)
    beat = Heartbeat(member_id="b", epoch=0, **JOIN)  # type: ignore[arg-type]
    with pytest.raises(LogError) as caught:
        handle(drill.group, beat, drill.now, drill.image(), small)
    assert caught.value.code is ErrorCode.group_max_size_reached


@pytest.mark.parametrize(
    ("member", "epoch", "code"),
    [
        ("a", 1, None),
        ("a", 0, ErrorCode.stale_member_epoch),
        ("a", 2, ErrorCode.stale_member_epoch),
        ("b", 1, ErrorCode.unknown_member_id),
        ("", -1, ErrorCode.unknown_member_id),
    ],
)
def test_offsets_are_taken_from_members_in_their_current_epoch(member: str, epoch: int, code: ErrorCode | None) -> None:
    drill = Drill(trades=1)
    drill.join("a", "trades")
    if code is None:
        return check_epoch(drill.group, member, epoch)
    with pytest.raises(LogError) as caught:
        check_epoch(drill.group, member, epoch)
    assert caught.value.code is code
