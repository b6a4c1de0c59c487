"""The turns of a rebalance: it begins, members join, the leader assigns; and members that are lost on the way."""

from __future__ import annotations

from penstock.log.errors import ErrorCode
from penstock.log.groups.events import Assigned, Store, Sync
from penstock.log.groups.group import Group, Member, State
from penstock.log.groups.turn import Turn


def unfit(group: Group, member_id: str, instance_id: str | None) -> ErrorCode:
    """Return why a request cannot come from a member, or `none`."""
    if group.state is State.DEAD:
        return ErrorCode.coordinator_not_available
    if instance_id is not None:
        known = group.static.get(instance_id)
        if known is not None and known != member_id:
            return ErrorCode.fenced_instance_id
        return ErrorCode.none if known else ErrorCode.unknown_member_id
    return ErrorCode.none if member_id in group.members else ErrorCode.unknown_member_id


def begin(turn: Turn) -> None:
    """Ask all members to join again. A group that was empty first waits a little for others that start with it."""
    group, now = turn.group, turn.now
    for member in group.members.values():
        turn.refuse_sync(member, ErrorCode.rebalance_in_progress)
        member.owes_sync = False
    group.sync_deadline = None
    group.fills_until = now + group.rebalance_timeout if group.state is State.EMPTY else None
    group.has_grown = False
    group.join_deadline = now + (group.rebalance_timeout if group.fills_until is None else group.initial_delay)
    turn.enter(State.PREPARING)
    try_to_complete(turn)


def try_to_complete(turn: Turn) -> None:
    """End the wait for joins if there is nobody left to wait for."""
    if turn.group.all_joined and turn.group.fills_until is None:
        _complete(turn)


def _complete(turn: Turn) -> None:
    group = turn.group
    # A static member is given its whole session to come back, and keeps its place until then.
    for member in [each for each in group.members.values() if each.joining is None and each.instance_id is None]:
        group.remove(member)
    if group.members and not _elect_leader(group):
        group.join_deadline = turn.now + group.rebalance_timeout
        return
    group.generation += 1
    group.join_deadline = group.fills_until = None
    if group.members:
        _invite_syncs(turn)
    else:
        group.protocol = None
        turn.enter(State.EMPTY)
        turn.out.append(Store(group.snapshot()))


def _elect_leader(group: Group) -> bool:
    joined = [id for id, member in group.members.items() if member.joining is not None]
    if joined and group.leader not in joined:
        group.leader = joined[0]
    return bool(joined)


def _invite_syncs(turn: Turn) -> None:
    group = turn.group
    group.protocol = group.elected_protocol()
    group.sync_deadline = turn.now + group.rebalance_timeout
    turn.enter(State.COMPLETING)
    for member in group.members.values():
        if member.joining is not None:
            turn.out.append(turn.joined(member.joining, member))
            turn.heard_of(member)
            member.joining, member.is_new, member.owes_sync = None, False, True


def assign(turn: Turn, event: Sync) -> None:
    """Let a member wait for its assignment; the leader's sync brings it."""
    group = turn.group
    member = group.members[event.member_id]
    turn.refuse_sync(member, ErrorCode.rebalance_in_progress)
    member.syncing, member.owes_sync = event.to, False
    if member.id == group.leader:
        whole = {id: event.assignments.get(id, b"") for id in group.members}
        turn.out.append(Store(group.snapshot(whole), Assigned(group.generation, whole)))


def assigned(turn: Turn, event: Assigned) -> None:
    """Give everybody who waits what the leader gave them, now that it is stored."""
    group = turn.group
    if group.state is not State.COMPLETING or event.generation != group.generation:
        return  # a rebalance began meanwhile, and has told those who waited
    if event.error:
        for member in group.members.values():
            turn.refuse_sync(member, event.error)
        return begin(turn)
    turn.enter(State.STABLE)
    for member in group.members.values():
        member.assignment = event.assignments.get(member.id, b"")
        if member.syncing is not None:
            turn.answer_sync(member.syncing, member)
            turn.heard_of(member)
            member.syncing = None


def drop(turn: Turn, *members: Member) -> None:
    """Remove members, answer what they wait for, and let the others rebalance."""
    group = turn.group
    for member in members:
        turn.refuse_join(member, ErrorCode.unknown_member_id)
        turn.refuse_sync(member, ErrorCode.unknown_member_id)
        group.remove(member)
    if group.state is State.PREPARING:
        try_to_complete(turn)
    elif members:
        begin(turn)


def forget_id(turn: Turn, member_id: str) -> None:
    """Stop waiting for someone who was told an id and did not join with it."""
    del turn.group.reserved[member_id]
    if turn.group.state is State.PREPARING:
        try_to_complete(turn)


def expire(turn: Turn) -> None:
    """Act on every deadline that has passed."""
    group, now = turn.group, turn.now
    for member_id in [id for id, until in group.reserved.items() if until <= now]:
        forget_id(turn, member_id)
    drop(turn, *[each for each in group.members.values() if each.expires <= now and not each.is_waiting])
    if group.sync_deadline is not None and group.sync_deadline <= now:
        group.sync_deadline = None
        drop(turn, *[each for each in group.members.values() if each.owes_sync])
    if group.join_deadline is not None and group.join_deadline <= now:
        _end_of_wait(turn)


def _end_of_wait(turn: Turn) -> None:
    group = turn.group
    if group.has_grown and group.fills_until is not None and turn.now < group.fills_until:
        group.join_deadline = min(turn.now + group.initial_delay, group.fills_until)
        group.has_grown = False
    else:
        _complete(turn)
