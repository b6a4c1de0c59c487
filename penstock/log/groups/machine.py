"""The life of a group, as a pure function: an event and the time in, instructions out. No I/O, no clock, no tasks.

    Empty --join--> PreparingRebalance --all joined, or time is up--> CompletingRebalance --assignment--> Stable
      ^                  |    ^                                             |                              |
      +--nobody left-----+    +---a member joins, leaves, or falls silent---+------------------------------+

Joining is in `joining`, the turns of a rebalance in `rebalance`; codes and rules are those of Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.log.errors import ErrorCode
from penstock.log.groups.events import (
    NO_MEMBER,
    Assigned,
    Commit,
    Delete,
    Event,
    Heartbeat,
    Instruction,
    Join,
    Kept,
    Leave,
    Reply,
    Returned,
    Sync,
    Synced,
    Tick,
)
from penstock.log.groups.group import Group, State
from penstock.log.groups.joining import join, returned
from penstock.log.groups.rebalance import assign, assigned, drop, expire, forget_id, unfit
from penstock.log.groups.turn import Turn


def handle(group: Group, event: Event, now: int) -> list[Instruction]:
    """Change the group as the event demands, and return what is to be done, in order."""
    turn = Turn(group, now)
    _HANDLERS[type(event)](turn, event)
    return turn.out


def _sync(turn: Turn, event: Sync) -> None:
    group = turn.group
    error = _unsynced(turn, event)
    if error:
        turn.out.append(Synced(event.to, error))
    elif group.state is State.STABLE:
        member = group.members[event.member_id]
        turn.heard_of(member)
        member.owes_sync = False
        turn.answer_sync(event.to, member)
    else:
        assign(turn, event)


def _unsynced(turn: Turn, event: Sync) -> ErrorCode:
    group = turn.group
    if error := unfit(group, event.member_id, event.instance_id) or _outdated(group, event.generation):
        return error
    if event.protocol_type not in (None, group.protocol_type) or event.protocol not in (None, group.protocol):
        return ErrorCode.inconsistent_group_protocol
    return ErrorCode.rebalance_in_progress if group.state is State.PREPARING else ErrorCode.none


def _outdated(group: Group, generation: int) -> ErrorCode:
    return ErrorCode.none if generation == group.generation else ErrorCode.illegal_generation


def _heartbeat(turn: Turn, event: Heartbeat) -> None:
    group = turn.group
    error = unfit(group, event.member_id, event.instance_id) or _outdated(group, event.generation)
    if not error:
        turn.heard_of(group.members[event.member_id])
        error = ErrorCode.rebalance_in_progress if group.state is State.PREPARING else ErrorCode.none
    turn.out.append(Reply(event.to, error))


def _commit(turn: Turn, event: Commit) -> None:
    turn.out.append(Reply(event.to, _uncommittable(turn, event)))


def _uncommittable(turn: Turn, event: Commit) -> ErrorCode:
    group = turn.group
    if group.state is State.DEAD:
        return ErrorCode.coordinator_not_available
    # An administrator, or a consumer that chooses its partitions itself: welcome while nobody else is here.
    if event.generation < 0 and group.state is State.EMPTY:
        return ErrorCode.none
    if event.generation < 0 and event.member_id == NO_MEMBER and event.instance_id is None:
        # Transactions of old clients do not say which member they are for.
        return ErrorCode.none if event.transactional else ErrorCode.unknown_member_id
    return _uncommittable_by_member(turn, event)


def _uncommittable_by_member(turn: Turn, event: Commit) -> ErrorCode:
    group = turn.group
    error = unfit(group, event.member_id, event.instance_id) or _outdated(group, event.generation)
    if error or event.transactional:
        return error
    # The member knows of its generation but not yet what it reads there, so the offsets are of the one before.
    if group.state is State.COMPLETING:
        return ErrorCode.rebalance_in_progress
    turn.heard_of(group.members[event.member_id])
    return ErrorCode.none


def _leave(turn: Turn, event: Leave) -> None:
    group = turn.group
    member_id = event.member_id or group.static.get(event.instance_id or "", NO_MEMBER)
    if member_id in group.reserved:
        turn.out.append(Reply(event.to))
        return forget_id(turn, member_id)
    error = unfit(group, member_id, event.instance_id)
    turn.out.append(Reply(event.to, error))
    if not error:
        drop(turn, group.members[member_id])


def _delete(turn: Turn, event: Delete) -> None:
    group = turn.group
    if group.state is State.EMPTY:
        turn.enter(State.DEAD)
        turn.out.append(Reply(event.to))
    else:
        gone = group.state is State.DEAD
        turn.out.append(Reply(event.to, ErrorCode.group_id_not_found if gone else ErrorCode.non_empty_group))


def _kept(turn: Turn, _: Kept) -> None:
    turn.enter(State.EMPTY)


def _tick(turn: Turn, _: Tick) -> None:
    expire(turn)


_HANDLERS: dict[type[Event], Callable[[Turn, Any], None]] = {
    Join: join,
    Sync: _sync,
    Heartbeat: _heartbeat,
    Commit: _commit,
    Leave: _leave,
    Delete: _delete,
    Kept: _kept,
    Tick: _tick,
    Assigned: assigned,
    Returned: returned,
}
