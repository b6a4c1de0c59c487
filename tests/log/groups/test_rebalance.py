"""Members with an instance id: they keep their place through a restart."""

from __future__ import annotations

from penstock.log.errors import ErrorCode
from penstock.log.groups.classic.events import Commit, Heartbeat, Joined, Leave
from penstock.log.groups.classic.group import State
from tests.log.groups.group_driver import REBALANCE, Drill, heartbeat, join, subscription


def test_a_static_member_that_comes_back_takes_its_place_without_a_rebalance() -> None:
    drill = Drill()
    leader, follower = drill.first_members(1, instance_id="a") + _join_stable(drill, instance_id="b")
    back = drill.joined(drill.send(join(instance_id="b")))
    assert (back.generation, back.member_id != follower.member_id) == (2, True)
    assert drill.group.state is State.STABLE
    assert drill.synced(drill.sync(back)).assignment == f"part of {follower.member_id}".encode()
    assert drill.stored[-1].snapshot.members[1].id == back.member_id, "and that is stored"
    assert drill.error(heartbeat(leader)) is ErrorCode.illegal_generation


def _join_stable(drill: Drill, **more: object) -> list[Joined]:
    newcomer = drill.send(join(**more))
    rejoin = [drill.send(join(id, instance_id=member.instance_id)) for id, member in list(drill.group.members.items())]
    return drill.settle(*rejoin[:1], newcomer)[1:]


def test_the_one_that_was_replaced_is_fenced() -> None:
    drill = Drill()
    (old,) = drill.first_members(1, instance_id="a")
    drill.send(join(instance_id="a"))
    fenced = Heartbeat(generation=1, member_id=old.member_id, instance_id="a")
    assert drill.error(fenced) is ErrorCode.fenced_instance_id
    assert drill.error(join(old.member_id, instance_id="a")) is ErrorCode.fenced_instance_id
    assert drill.error(Leave(member_id=old.member_id, instance_id="a")) is ErrorCode.fenced_instance_id
    zombie = Commit(generation=1, member_id=old.member_id, instance_id="a", transactional=True)
    assert drill.error(zombie) is ErrorCode.fenced_instance_id


def test_a_request_that_the_replaced_one_waits_for_is_answered_with_fenced() -> None:
    drill = Drill()
    first, second = drill.first_members(2)
    static = drill.send(join(instance_id="a"))
    drill.send(join(instance_id="a"))
    assert drill.answers[static].error is ErrorCode.fenced_instance_id
    assert {first.member_id, second.member_id} < drill.group.members.keys()


def test_a_static_leader_that_comes_back_is_told_that_its_assignment_stands() -> None:
    drill = Drill()
    drill.first_members(1, instance_id="a")
    back = drill.joined(drill.send(join(instance_id="a", skips_assignment=True)))
    assert (back.leader, back.skip_assignment) == (back.member_id, True)
    assert [instance for _, instance, _ in back.members] == ["a"]


def test_an_older_static_leader_that_comes_back_takes_itself_for_a_follower() -> None:
    drill = Drill()
    (old,) = drill.first_members(1, instance_id="a")
    back = drill.joined(drill.send(join(instance_id="a")))
    assert (back.leader, back.skip_assignment, back.members) == (old.member_id, False, ())


def test_a_static_member_that_comes_back_with_other_topics_begins_a_rebalance() -> None:
    drill = Drill()
    drill.first_members(1, instance_id="a")
    drill.send(join(instance_id="a", protocols=(("range", subscription("quotes")),)))
    assert drill.group.generation == 2


def test_what_a_sticky_assignor_forgot_in_a_restart_is_no_other_subscription() -> None:
    drill = Drill()
    owned = subscription("trades") + b"owned: trades 0, 1, 2"
    drill.first_members(1, instance_id="a", protocols=(("sticky", owned),))
    back = drill.joined(drill.send(join(instance_id="a", protocols=(("sticky", subscription("trades")),))))
    assert back.generation == 1


def test_a_static_member_keeps_its_place_until_its_session_ends_whatever_the_others_do() -> None:
    drill = Drill()
    (leader, absent) = drill.first_members(2, instance_id=None)
    drill.send(Leave(member_id=absent.member_id))
    drill.settle(drill.join(leader.member_id))
    static = drill.send(join(instance_id="a", session_timeout=2 * REBALANCE))
    leader, _ = drill.settle(drill.join(leader.member_id), static)
    rejoin = drill.join(leader.member_id, session_timeout=3 * REBALANCE)
    drill.pass_time(REBALANCE)
    assert len(drill.joined(rejoin).members) == 2, "the rebalance went on without it, but not over its head"
    drill.settle(rejoin)
    drill.pass_time(REBALANCE)
    assert list(drill.group.members) == [leader.member_id]


def test_an_administrator_removes_a_static_member_by_its_instance_id() -> None:
    drill = Drill()
    drill.first_members(1, instance_id="a")
    assert drill.error(Leave(instance_id="b")) is ErrorCode.unknown_member_id
    assert drill.error(Leave(instance_id="a")) is ErrorCode.none
    assert drill.group.state is State.EMPTY
