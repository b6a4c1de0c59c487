"""How a consumer becomes a member: new, known, or static and back from a restart."""

from __future__ import annotations

from dataclasses import replace

from penstock.log.errors import ErrorCode
from penstock.log.groups.events import NO_MEMBER, Join, Joined, Returned, Store
from penstock.log.groups.group import Group, Member, State
from penstock.log.groups.rebalance import begin, try_to_complete, unfit
from penstock.log.groups.subscriptions import subscribed_topics
from penstock.log.groups.turn import Turn

# Nothing is heard of a new member while it waits for its first join, and it may have gone: then it retries as another.
NEW_MEMBER_TIMEOUT = 5 * 60_000


def join(turn: Turn, event: Join) -> None:
    """Let a consumer in, or tell it why not."""
    group = turn.group
    if error := _unwelcome(group, event):
        turn.out.append(Joined(event.to, error, member_id=event.member_id))
    elif event.member_id != NO_MEMBER:
        _join_again(turn, event)
    elif event.instance_id in group.static:
        _return(turn, event)
    elif event.instance_id is None and event.reserves_id:
        group.reserved[event.new_id] = turn.now + event.session_timeout
        turn.out.append(Joined(event.to, ErrorCode.member_id_required, member_id=event.new_id))
    else:
        _admit(turn, event, event.new_id)


def _unwelcome(group: Group, event: Join) -> ErrorCode:
    if group.state is State.DEAD:
        return ErrorCode.coordinator_not_available
    if not group.supports(event.protocol_type, [name for name, _ in event.protocols]):
        return ErrorCode.inconsistent_group_protocol
    if event.member_id == NO_MEMBER or event.member_id in group.reserved:
        return ErrorCode.none
    return unfit(group, event.member_id, event.instance_id)


def _join_again(turn: Turn, event: Join) -> None:
    group = turn.group
    if group.reserved.pop(event.member_id, None) is not None:
        return _admit(turn, event, event.member_id)
    member = group.members[event.member_id]
    if _changes_nothing(group, member, event):
        turn.heard_of(member)
        turn.out.append(turn.joined(event.to, member))
    else:
        _wait(turn, member, event)
        _rebalance(turn)


def _changes_nothing(group: Group, member: Member, event: Join) -> bool:
    same = list(member.protocols.items()) == list(event.protocols)
    # The answer to its join was lost; or, in a stable group, a follower asks again. A leader that asks wants to
    # assign anew: that is how clients react to new partitions.
    settled = group.state is State.STABLE and member.id != group.leader
    return same and (settled or group.state is State.COMPLETING)


def _admit(turn: Turn, event: Join, member_id: str) -> None:
    turn.group.add(event, member_id, expires=turn.now + NEW_MEMBER_TIMEOUT)
    turn.group.has_grown = True
    _rebalance(turn)


def _wait(turn: Turn, member: Member, event: Join) -> None:
    turn.refuse_join(member, ErrorCode.rebalance_in_progress)  # the sender of that one has given up on it
    member.joining = event.to
    _update(member, event)


def _update(member: Member, event: Join) -> None:
    member.protocols = dict(event.protocols)
    member.session_timeout = event.session_timeout
    member.rebalance_timeout = event.rebalance_timeout


def _rebalance(turn: Turn) -> None:
    if turn.group.state is State.PREPARING:
        try_to_complete(turn)
    else:
        begin(turn)


def _return(turn: Turn, event: Join) -> None:
    group = turn.group
    member = group.members[group.static[event.instance_id or ""]]
    for refuse in (turn.refuse_join, turn.refuse_sync):
        refuse(member, ErrorCode.fenced_instance_id)
    leader, topics = group.leader, _topics(group, member)
    group.rename(member, event.new_id)
    _update(member, event)
    turn.heard_of(member)
    if group.state is State.STABLE and group.elected_protocol() == group.protocol and _topics(group, member) == topics:
        return _take_over(turn, member, event, leader)
    member.joining = event.to
    _rebalance(turn)


def _topics(group: Group, member: Member) -> frozenset[str] | None:
    # Not the whole subscription: sticky assignors write there what they own, which a restart forgets.
    return subscribed_topics(group.subscription(member))


def _take_over(turn: Turn, member: Member, event: Join, old_leader: str | None) -> None:
    reply = turn.joined(event.to, member, skip_assignment=member.id == turn.group.leader)
    if not event.skips_assignment:
        # Before v9 a leader cannot be told that its assignment stands. Told of a leader by its old id it takes itself
        # for a follower, and assigns nothing that a stable group would ignore.
        reply = replace(reply, leader=old_leader or "", skip_assignment=False, members=())
    turn.out.append(Store(turn.group.snapshot(), Returned(reply)))


def returned(turn: Turn, event: Returned) -> None:
    """Answer the static member once its new id is stored."""
    failed = Joined(event.reply.to, event.error)
    turn.out.append(failed if event.error else event.reply)
