"""The state machine of a classic group, as a pure function: event and time in, instructions out. No I/O, no clock.

    Empty --join--> PreparingRebalance --all joined, or time is up--> CompletingRebalance --assignment--> Stable
      ^                  |    ^                                             |                              |
      +--no members------+    +---a member joins, leaves, or times out------+------------------------------+

Joining and the transitions of a rebalance are in `rebalance`; error codes and rules are those of Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.log.errors import ErrorCode
from penstock.log.groups.classic.events import (
    NO_MEMBER,
    Assigned,
    Commit,
    Delete,
    DeleteFailed,
    Event,
    Heartbeat,
    Instruction,
    Join,
    Leave,
    Reply,
    Returned,
    Sync,
    Synced,
    Tick,
)
from penstock.log.groups.classic.group import Group, State
from penstock.log.groups.classic.rebalance import (
    Transition,
    assign,
    assigned,
    expire,
    forget_id,
    join,
    member_error,
    remove_members,
    returned,
)


def handle(group: Group, event: Event, now: int) -> list[Instruction]:
    """Apply an event to the group, and return the instructions in order."""
    transition = Transition(group, now)
    _HANDLERS[type(event)](transition, event)
    return transition.out


def _sync(transition: Transition, event: Sync) -> None:
    group = transition.group
    error = _sync_error(transition, event)
    if error:
        transition.out.append(Synced(event.to, error))
    elif group.state is State.STABLE:
        member = group.members[event.member_id]
        transition.renew_session(member)
        member.owes_sync = False
        transition.answer_sync(event.to, member)
    else:
        assign(transition, event)


def _sync_error(transition: Transition, event: Sync) -> ErrorCode:
    group = transition.group
    if error := member_error(group, event.member_id, event.instance_id) or _generation_error(group, event.generation):
        return error
    if event.protocol_type not in (None, group.protocol_type) or event.protocol not in (None, group.protocol):
        return ErrorCode.inconsistent_group_protocol
    return ErrorCode.rebalance_in_progress if group.state is State.PREPARING else ErrorCode.none


def _generation_error(group: Group, generation: int) -> ErrorCode:
    return ErrorCode.none if generation == group.generation else ErrorCode.illegal_generation


def _heartbeat(transition: Transition, event: Heartbeat) -> None:
    group = transition.group
    error = member_error(group, event.member_id, event.instance_id) or _generation_error(group, event.generation)
    if not error:
        transition.renew_session(group.members[event.member_id])
        error = ErrorCode.rebalance_in_progress if group.state is State.PREPARING else ErrorCode.none
    transition.out.append(Reply(event.to, error))


def _commit(transition: Transition, event: Commit) -> None:
    transition.out.append(Reply(event.to, _commit_error(transition, event)))


def _commit_error(transition: Transition, event: Commit) -> ErrorCode:
    group = transition.group
    if group.state is State.DEAD:
        return ErrorCode.coordinator_not_available
    # An administrator, or a consumer without group management: allowed while the group is empty.
    if event.generation < 0 and group.state is State.EMPTY:
        return ErrorCode.none
    if event.generation < 0 and event.member_id == NO_MEMBER and event.instance_id is None:
        # Transactions of old clients do not contain the member.
        return ErrorCode.none if event.transactional else ErrorCode.unknown_member_id
    return _member_commit_error(transition, event)


def _member_commit_error(transition: Transition, event: Commit) -> ErrorCode:
    group = transition.group
    error = member_error(group, event.member_id, event.instance_id) or _generation_error(group, event.generation)
    if error or event.transactional:
        return error
    # The member knows its generation but not its assignment yet, so the offsets are of the previous generation.
    if group.state is State.COMPLETING:
        return ErrorCode.rebalance_in_progress
    transition.renew_session(group.members[event.member_id])
    return ErrorCode.none


def _leave(transition: Transition, event: Leave) -> None:
    group = transition.group
    member_id = event.member_id or group.static.get(event.instance_id or "", NO_MEMBER)
    if member_id in group.reserved:
        transition.out.append(Reply(event.to))
        return forget_id(transition, member_id)
    error = member_error(group, member_id, event.instance_id)
    transition.out.append(Reply(event.to, error))
    if not error:
        remove_members(transition, group.members[member_id])


def _delete(transition: Transition, event: Delete) -> None:
    group = transition.group
    if group.state is State.EMPTY:
        transition.enter(State.DEAD)
        transition.out.append(Reply(event.to))
    else:
        gone = group.state is State.DEAD
        transition.out.append(Reply(event.to, ErrorCode.group_id_not_found if gone else ErrorCode.non_empty_group))


def _delete_failed(transition: Transition, _: DeleteFailed) -> None:
    transition.enter(State.EMPTY)


def _tick(transition: Transition, _: Tick) -> None:
    expire(transition)


_HANDLERS: dict[type[Event], Callable[[Transition, Any], None]] = {
    Join: join,
    Sync: _sync,
    Heartbeat: _heartbeat,
    Commit: _commit,
    Leave: _leave,
    Delete: _delete,
    DeleteFailed: _delete_failed,
    Tick: _tick,
    Assigned: assigned,
    Returned: returned,
}
