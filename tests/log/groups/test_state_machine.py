"""The life of a group, event by event. Time is a number here."""

from __future__ import annotations

import pytest

from penstock.log.errors import ErrorCode
from penstock.log.groups.classic.events import Commit, Delete, Heartbeat, Joined, Leave
from penstock.log.groups.classic.group import Group, State
from tests.log.groups.group_driver import REBALANCE, SESSION, Drill, heartbeat, join, subscription


def commit(member: Joined, **more: object) -> Commit:
    return Commit(generation=member.generation, member_id=member.member_id, **more)  # type: ignore[arg-type]


def test_a_new_member_is_told_its_id_and_joins_with_it() -> None:
    drill = Drill()
    answer = drill.answers[drill.send(join())]
    assert isinstance(answer, Joined)
    assert answer.error is ErrorCode.member_id_required
    drill.send(join(answer.member_id))
    drill.pass_time(0)
    assert list(drill.group.members) == [answer.member_id]


def test_an_old_client_joins_at_once() -> None:
    drill = Drill()
    number = drill.send(join(reserves_id=False))
    drill.pass_time(0)
    assert drill.joined(number).generation == 1


def test_an_id_that_nobody_joins_with_is_forgotten_after_a_session() -> None:
    drill = Drill()
    drill.send(join())
    drill.pass_time(SESSION)
    assert not drill.group.reserved


def test_a_new_group_waits_a_little_so_that_consumers_started_together_share_one_generation() -> None:
    drill = Drill(initial_delay=100)
    first = drill.join()
    drill.pass_time(90)
    second = drill.join()
    drill.pass_time(90)
    assert drill.waiting() == {first, second}, "each newcomer prolongs the wait"
    drill.pass_time(110)
    assert drill.joined(first).generation == drill.joined(second).generation == 1


def test_the_leader_alone_is_told_who_is_there_and_gives_everybody_a_part() -> None:
    drill = Drill()
    leader, follower = (drill.joined(number) for number in _two_joins(drill))
    assert leader.leader == follower.leader == leader.member_id
    assert {id for id, _, _ in leader.members} == {leader.member_id, follower.member_id}
    assert follower.members == ()
    waits = drill.sync(follower)
    assert drill.waiting() == {waits}
    assert drill.synced(drill.sync(leader)).assignment == f"part of {leader.member_id}".encode()
    assert drill.synced(waits).assignment == f"part of {follower.member_id}".encode()
    assert drill.group.state is State.STABLE


def _two_joins(drill: Drill) -> tuple[int, int]:
    numbers = drill.join(), drill.join()
    drill.pass_time(0)
    return numbers


def test_what_the_leader_leaves_out_gets_nothing() -> None:
    drill = Drill()
    leader, follower = (drill.joined(number) for number in _two_joins(drill))
    drill.sync(leader, assignments={leader.member_id: b"all"})
    assert drill.synced(drill.sync(follower)).assignment == b""


def test_a_second_consumer_makes_the_first_join_again() -> None:
    drill = Drill()
    (first,) = drill.first_members(1)
    newcomer = drill.join()
    assert drill.error(heartbeat(first)) is ErrorCode.rebalance_in_progress
    rejoin = drill.join(first.member_id)
    first, second = drill.settle(rejoin, newcomer)
    assert first.generation == second.generation == 2
    assert drill.error(heartbeat(first)) is ErrorCode.none


def test_a_member_that_does_not_join_again_in_time_is_dropped() -> None:
    drill = Drill()
    first, second = drill.first_members(2)
    rejoin = drill.join(first.member_id)
    for _ in range(12):
        drill.pass_time(REBALANCE // 12)
        drill.send(heartbeat(second))
    assert drill.joined(rejoin).generation == 2
    assert list(drill.group.members) == [first.member_id]
    assert drill.error(heartbeat(second)) is ErrorCode.unknown_member_id


def test_the_longest_rebalance_timeout_counts() -> None:
    drill = Drill()
    quick, slow = drill.first_members(2)
    rejoin = drill.join(quick.member_id, rebalance_timeout=1, session_timeout=10 * REBALANCE)
    drill.pass_time(SESSION - 1)
    assert drill.waiting() == {rejoin}
    drill.join(slow.member_id)
    assert not drill.waiting()


def test_a_silent_member_is_dropped_after_its_session_and_the_others_rebalance() -> None:
    drill = Drill()
    talks, _ = drill.first_members(2)
    for _ in range(3):
        drill.pass_time(SESSION // 2)
        drill.send(heartbeat(talks))
    assert list(drill.group.members) == [talks.member_id]
    assert drill.group.state is State.PREPARING


def test_a_member_that_waits_for_an_answer_is_not_silent() -> None:
    drill = Drill()
    first, second = drill.first_members(2, session_timeout=6000)
    rejoin = drill.join(first.member_id, session_timeout=6000)
    drill.pass_time(5999)
    drill.send(heartbeat(second))
    drill.pass_time(5999)
    assert drill.waiting() == {rejoin}
    assert first.member_id in drill.group.members


def test_a_member_that_joined_and_never_syncs_is_dropped() -> None:
    drill = Drill()
    leader, follower = (drill.joined(number) for number in _two_joins(drill))
    drill.sync(leader)
    for _ in range(12):
        drill.pass_time(REBALANCE // 12)
        drill.send(heartbeat(leader))
        drill.send(heartbeat(follower))
    assert list(drill.group.members) == [leader.member_id]


def test_those_who_wait_for_the_assignment_are_told_when_a_rebalance_begins() -> None:
    drill = Drill()
    leader, follower = (drill.joined(number) for number in _two_joins(drill))
    waits = drill.sync(follower)
    drill.send(Leave(member_id=leader.member_id))
    assert drill.answers[waits].error is ErrorCode.rebalance_in_progress
    assert drill.error(heartbeat(follower)) is ErrorCode.rebalance_in_progress


def test_an_assignment_stored_too_late_is_ignored() -> None:
    drill = Drill()
    leader, follower = (drill.joined(number) for number in _two_joins(drill))
    drill.holds_stores = True
    drill.sync(leader)
    drill.send(Leave(member_id=follower.member_id))
    drill.release()
    assert drill.group.state is State.PREPARING
    assert drill.group.members[leader.member_id].assignment == b""


def test_an_assignment_that_cannot_be_stored_makes_everybody_join_again() -> None:
    drill = Drill()
    drill.fails_stores = ErrorCode.coordinator_not_available
    (member,) = (drill.joined(number) for number in _one_join(drill))
    assert drill.answers[drill.sync(member)].error is ErrorCode.coordinator_not_available
    assert drill.group.state is State.PREPARING


def _one_join(drill: Drill) -> tuple[int]:
    numbers = (drill.join(),)
    drill.pass_time(0)
    return numbers


def test_a_follower_that_asks_again_without_change_is_told_the_same_generation() -> None:
    drill = Drill()
    leader, follower = drill.first_members(2)
    assert drill.joined(drill.join(follower.member_id)).generation == leader.generation
    assert drill.group.state is State.STABLE


def test_a_leader_that_asks_again_wants_a_rebalance() -> None:
    drill = Drill()
    leader, _ = drill.first_members(2)
    drill.join(leader.member_id)
    assert drill.group.state is State.PREPARING


def test_changed_metadata_with_the_same_id_begins_a_rebalance_as_cooperative_assignors_need() -> None:
    drill = Drill()
    leader, follower = drill.first_members(2)
    drill.join(follower.member_id, protocols=(("range", subscription("trades", "quotes")),))
    assert drill.group.state is State.PREPARING
    assert drill.error(heartbeat(leader)) is ErrorCode.rebalance_in_progress


def test_a_join_that_is_sent_again_while_it_waits_answers_the_first_one_too() -> None:
    drill = Drill()
    first, _ = drill.first_members(2)
    older = drill.join(first.member_id)
    newer = drill.join(first.member_id)
    assert drill.answers[older].error is ErrorCode.rebalance_in_progress
    assert drill.waiting() == {newer}


def test_the_last_member_that_leaves_leaves_an_empty_group_of_the_next_generation() -> None:
    drill = Drill()
    (member,) = drill.first_members(1)
    assert drill.error(Leave(member_id=member.member_id)) is ErrorCode.none
    assert (drill.group.state, drill.group.generation) == (State.EMPTY, 2)
    assert drill.stored[-1].snapshot.members == ()


def test_leaving_answers_what_the_member_waits_for() -> None:
    drill = Drill()
    first, _ = drill.first_members(2)
    rejoin = drill.join(first.member_id)
    drill.send(Leave(member_id=first.member_id))
    assert drill.answers[rejoin].error is ErrorCode.unknown_member_id


def test_someone_who_was_only_told_an_id_can_leave() -> None:
    drill = Drill()
    answer = drill.answers[drill.send(join())]
    assert isinstance(answer, Joined)
    assert drill.error(Leave(member_id=answer.member_id)) is ErrorCode.none
    assert not drill.group.reserved


@pytest.mark.parametrize(
    "protocols", [{"protocol_type": "connect"}, {"protocols": (("sticky", b""),)}, {"protocols": ()}]
)
def test_a_consumer_with_nothing_in_common_is_refused(protocols: dict[str, object]) -> None:
    drill = Drill()
    drill.first_members(1)
    assert drill.error(join(**protocols)) is ErrorCode.inconsistent_group_protocol


def test_a_group_needs_at_least_one_protocol() -> None:
    drill = Drill()
    assert drill.error(join(protocols=())) is ErrorCode.inconsistent_group_protocol
    assert drill.error(join(protocol_type="")) is ErrorCode.inconsistent_group_protocol


def test_the_protocol_that_most_members_prefer_among_the_common_ones_is_chosen() -> None:
    drill = Drill()
    votes = ("a", "b", "c"), ("b", "a"), ("b", "a", "c")
    numbers = [drill.join(protocols=tuple((name, b"") for name in names)) for names in votes]
    drill.pass_time(0)
    assert {drill.joined(number).protocol for number in numbers} == {"b"}


@pytest.mark.parametrize("member_id", ["stranger", ""])
def test_strangers_are_told_so(member_id: str) -> None:
    drill = Drill()
    (member,) = drill.first_members(1)
    assert drill.error(Heartbeat(generation=1, member_id=member_id)) is ErrorCode.unknown_member_id
    assert drill.error(Leave(member_id=member_id)) is ErrorCode.unknown_member_id
    assert drill.error(Commit(generation=1, member_id=member_id)) is ErrorCode.unknown_member_id
    assert drill.answers[drill.sync(member, member_id=member_id)].error is ErrorCode.unknown_member_id
    assert drill.error(join("stranger")) is ErrorCode.unknown_member_id


def test_another_generation_is_told_so() -> None:
    drill = Drill()
    (member,) = drill.first_members(1)
    assert drill.error(Heartbeat(generation=7, member_id=member.member_id)) is ErrorCode.illegal_generation
    assert drill.error(Commit(generation=7, member_id=member.member_id)) is ErrorCode.illegal_generation
    assert drill.answers[drill.sync(member, generation=7)].error is ErrorCode.illegal_generation


@pytest.mark.parametrize("claim", [{"protocol_type": "connect"}, {"protocol": "sticky"}])
def test_a_sync_of_another_protocol_is_refused(claim: dict[str, str]) -> None:
    drill = Drill()
    (member,) = drill.first_members(1)
    assert drill.answers[drill.sync(member, **claim)].error is ErrorCode.inconsistent_group_protocol


# Commits


def test_members_commit_while_stable_and_while_they_are_asked_to_join_again() -> None:
    drill = Drill()
    first, second = drill.first_members(2)
    assert drill.error(commit(first)) is ErrorCode.none
    drill.send(Leave(member_id=second.member_id))
    assert drill.error(commit(first)) is ErrorCode.none


def test_a_commit_before_the_assignment_is_known_waits_for_it() -> None:
    drill = Drill()
    leader, _ = (drill.joined(number) for number in _two_joins(drill))
    assert drill.error(commit(leader)) is ErrorCode.rebalance_in_progress
    assert drill.error(commit(leader, transactional=True)) is ErrorCode.none


def test_a_commit_is_a_sign_of_life() -> None:
    drill = Drill()
    (member,) = drill.first_members(1)
    for _ in range(4):
        drill.pass_time(SESSION - 1)
        assert drill.error(commit(member)) is ErrorCode.none


def test_without_a_generation_one_commits_only_where_there_are_no_members() -> None:
    drill = Drill()
    assert drill.error(Commit()) is ErrorCode.none
    drill.first_members(1)
    assert drill.error(Commit()) is ErrorCode.unknown_member_id
    assert drill.error(Commit(transactional=True)) is ErrorCode.none, "old producers cannot say who they are"


# Restart and deletion


def test_after_a_restart_members_go_on_as_if_nothing_had_been() -> None:
    before = Drill()
    leader, follower = before.first_members(2)
    after = Drill(Group.restored("readers", before.stored[-1].snapshot, before.now, 0))
    after.now = before.now
    assert after.error(heartbeat(leader)) is ErrorCode.none
    assert after.synced(after.sync(follower)).assignment == f"part of {follower.member_id}".encode()
    after.pass_time(SESSION)
    assert after.group.state is State.EMPTY, "those who did not come back are dropped"


def test_only_a_group_without_members_can_be_deleted() -> None:
    drill = Drill()
    (member,) = drill.first_members(1)
    assert drill.error(Delete()) is ErrorCode.non_empty_group
    drill.send(Leave(member_id=member.member_id))
    assert drill.error(Delete()) is ErrorCode.none
    assert drill.error(join()) is ErrorCode.coordinator_not_available
    assert drill.error(Delete()) is ErrorCode.group_id_not_found
