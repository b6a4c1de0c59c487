"""The transitions of a classic group in a rebalance: joining, the leader's assignment, leaving and timeouts."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from penstock.log.errors import ErrorCode
from penstock.log.groups.classic.events import (
    NO_MEMBER,
    Assigned,
    Instruction,
    Join,
    Joined,
    Returned,
    Store,
    Sync,
    Synced,
)
from penstock.log.groups.classic.group import Group, Member, State, subscribed_topics

# A new member sends nothing while it waits for its first join; if it has disconnected, it retries with another id.
NEW_MEMBER_TIMEOUT = 5 * 60_000


@dataclass(slots=True)
class Transition:
    """One event being applied: the group, the time, and the instructions so far."""

    group: Group
    now: int
    out: list[Instruction] = field(default_factory=list)

    def enter(self, state: State) -> None:
        """Enter a state."""
        self.group.state, self.group.since = state, self.now

    def renew_session(self, member: Member) -> None:
        """Renew a member's session."""
        member.expires = self.now + member.session_timeout

    def joined(self, to: int, member: Member, *, skip_assignment: bool = False) -> Joined:
        """Return the reply to a join: the current generation, and for the leader all members."""
        group = self.group
        everybody = group.members.values() if member.id == group.leader else ()
        return Joined(
            to,
            member_id=member.id,
            generation=group.generation,
            protocol_type=group.protocol_type,
            protocol=group.protocol,
            leader=group.leader or "",
            skip_assignment=skip_assignment,
            members=tuple((each.id, each.instance_id, group.subscription(each)) for each in everybody),
        )

    def refuse_join(self, member: Member, error: ErrorCode) -> None:
        """Fail the pending join of a member, if there is one."""
        if member.joining is not None:
            self.out.append(Joined(member.joining, error, member_id=member.id))
            member.joining = None

    def refuse_sync(self, member: Member, error: ErrorCode) -> None:
        """Fail the pending sync of a member, if there is one."""
        if member.syncing is not None:
            self.out.append(Synced(member.syncing, error))
            member.syncing = None

    def answer_sync(self, to: int, member: Member) -> None:
        """Send a member its assignment."""
        group = self.group
        answer = Synced(to, protocol_type=group.protocol_type, protocol=group.protocol, assignment=member.assignment)
        self.out.append(answer)


def member_error(group: Group, member_id: str, instance_id: str | None) -> ErrorCode:
    """Return the error code of a request that is not from a current member, or `none`."""
    if group.state is State.DEAD:
        return ErrorCode.coordinator_not_available
    if instance_id is not None:
        known = group.static.get(instance_id)
        if known is not None and known != member_id:
            return ErrorCode.fenced_instance_id
        return ErrorCode.none if known else ErrorCode.unknown_member_id
    return ErrorCode.none if member_id in group.members else ErrorCode.unknown_member_id


def start_rebalance(transition: Transition) -> None:
    """Start a rebalance. A group that was empty first waits for more members (the initial rebalance delay)."""
    group, now = transition.group, transition.now
    for member in group.members.values():
        transition.refuse_sync(member, ErrorCode.rebalance_in_progress)
        member.owes_sync = False
    group.sync_deadline = None
    group.fills_until = now + group.rebalance_timeout if group.state is State.EMPTY else None
    group.has_grown = False
    group.join_deadline = now + (group.rebalance_timeout if group.fills_until is None else group.initial_delay)
    transition.enter(State.PREPARING)
    try_to_complete(transition)


def try_to_complete(transition: Transition) -> None:
    """Complete the join phase if all members have joined."""
    if transition.group.all_joined and transition.group.fills_until is None:
        _complete(transition)


def _complete(transition: Transition) -> None:
    group = transition.group
    # A static member stays in the group until its session expires.
    for member in [each for each in group.members.values() if each.joining is None and each.instance_id is None]:
        group.remove(member)
    if group.members and not _elect_leader(group):
        group.join_deadline = transition.now + group.rebalance_timeout
        return
    group.generation += 1
    group.join_deadline = group.fills_until = None
    if group.members:
        _invite_syncs(transition)
    else:
        group.protocol = None
        transition.enter(State.EMPTY)
        transition.out.append(Store(group.snapshot()))


def _elect_leader(group: Group) -> bool:
    joined = [id for id, member in group.members.items() if member.joining is not None]
    if joined and group.leader not in joined:
        group.leader = joined[0]
    return bool(joined)


def _invite_syncs(transition: Transition) -> None:
    group = transition.group
    group.protocol = group.elected_protocol()
    group.sync_deadline = transition.now + group.rebalance_timeout
    transition.enter(State.COMPLETING)
    for member in group.members.values():
        if member.joining is not None:
            transition.out.append(transition.joined(member.joining, member))
            transition.renew_session(member)
            member.joining, member.is_new, member.owes_sync = None, False, True


def assign(transition: Transition, event: Sync) -> None:
    """Let a member wait for its assignment; the leader's sync delivers it."""
    group = transition.group
    member = group.members[event.member_id]
    transition.refuse_sync(member, ErrorCode.rebalance_in_progress)
    member.syncing, member.owes_sync = event.to, False
    if member.id == group.leader:
        whole = {id: event.assignments.get(id, b"") for id in group.members}
        transition.out.append(Store(group.snapshot(whole), Assigned(group.generation, whole)))


def assigned(transition: Transition, event: Assigned) -> None:
    """Send the members their assignments, now that they are stored."""
    group = transition.group
    if group.state is not State.COMPLETING or event.generation != group.generation:
        return  # another rebalance has started, and has answered the waiting members
    if event.error:
        for member in group.members.values():
            transition.refuse_sync(member, event.error)
        return start_rebalance(transition)
    transition.enter(State.STABLE)
    for member in group.members.values():
        member.assignment = event.assignments.get(member.id, b"")
        if member.syncing is not None:
            transition.answer_sync(member.syncing, member)
            transition.renew_session(member)
            member.syncing = None


def remove_members(transition: Transition, *members: Member) -> None:
    """Remove members, fail their pending requests, and rebalance the others."""
    group = transition.group
    for member in members:
        transition.refuse_join(member, ErrorCode.unknown_member_id)
        transition.refuse_sync(member, ErrorCode.unknown_member_id)
        group.remove(member)
    if group.state is State.PREPARING:
        try_to_complete(transition)
    elif members:
        start_rebalance(transition)


def forget_id(transition: Transition, member_id: str) -> None:
    """Remove a reserved member id that was not used."""
    del transition.group.reserved[member_id]
    if transition.group.state is State.PREPARING:
        try_to_complete(transition)


def expire(transition: Transition) -> None:
    """Apply all deadlines that have passed."""
    group, now = transition.group, transition.now
    for member_id in [id for id, until in group.reserved.items() if until <= now]:
        forget_id(transition, member_id)
    remove_members(
        transition, *[each for each in group.members.values() if each.expires <= now and not each.is_waiting]
    )
    if group.sync_deadline is not None and group.sync_deadline <= now:
        group.sync_deadline = None
        remove_members(transition, *[each for each in group.members.values() if each.owes_sync])
    if group.join_deadline is not None and group.join_deadline <= now:
        _on_join_deadline(transition)


def _on_join_deadline(transition: Transition) -> None:
    group = transition.group
    if group.has_grown and group.fills_until is not None and transition.now < group.fills_until:
        group.join_deadline = min(transition.now + group.initial_delay, group.fills_until)
        group.has_grown = False
    else:
        _complete(transition)


def join(transition: Transition, event: Join) -> None:
    """Handle a join: admit the consumer, or refuse it."""
    group = transition.group
    if error := _join_error(group, event):
        transition.out.append(Joined(event.to, error, member_id=event.member_id))
    elif event.member_id != NO_MEMBER:
        _join_again(transition, event)
    elif event.instance_id in group.static:
        _return(transition, event)
    elif event.instance_id is None and event.reserves_id:
        group.reserved[event.new_id] = transition.now + event.session_timeout
        transition.out.append(Joined(event.to, ErrorCode.member_id_required, member_id=event.new_id))
    else:
        _admit(transition, event, event.new_id)


def _join_error(group: Group, event: Join) -> ErrorCode:
    if group.state is State.DEAD:
        return ErrorCode.coordinator_not_available
    if not group.supports(event.protocol_type, [name for name, _ in event.protocols]):
        return ErrorCode.inconsistent_group_protocol
    if event.member_id == NO_MEMBER or event.member_id in group.reserved:
        return ErrorCode.none
    return member_error(group, event.member_id, event.instance_id)


def _join_again(transition: Transition, event: Join) -> None:
    group = transition.group
    if group.reserved.pop(event.member_id, None) is not None:
        return _admit(transition, event, event.member_id)
    member = group.members[event.member_id]
    if _changes_nothing(group, member, event):
        transition.renew_session(member)
        transition.out.append(transition.joined(event.to, member))
    else:
        _wait(transition, member, event)
        _rebalance(transition)


def _changes_nothing(group: Group, member: Member, event: Join) -> bool:
    same = list(member.protocols.items()) == list(event.protocols)
    # The reply to its join was lost; or, in a stable group, a follower joins again. A leader that joins again wants
    # a new assignment: that is how clients react to new partitions.
    settled = group.state is State.STABLE and member.id != group.leader
    return same and (settled or group.state is State.COMPLETING)


def _admit(transition: Transition, event: Join, member_id: str) -> None:
    transition.group.add(event, member_id, expires=transition.now + NEW_MEMBER_TIMEOUT)
    transition.group.has_grown = True
    _rebalance(transition)


def _wait(transition: Transition, member: Member, event: Join) -> None:
    transition.refuse_join(member, ErrorCode.rebalance_in_progress)  # the client has given up on that request
    member.joining = event.to
    _update(member, event)


def _update(member: Member, event: Join) -> None:
    member.protocols = dict(event.protocols)
    member.session_timeout = event.session_timeout
    member.rebalance_timeout = event.rebalance_timeout


def _rebalance(transition: Transition) -> None:
    if transition.group.state is State.PREPARING:
        try_to_complete(transition)
    else:
        start_rebalance(transition)


def _return(transition: Transition, event: Join) -> None:
    group = transition.group
    member = group.members[group.static[event.instance_id or ""]]
    for refuse in (transition.refuse_join, transition.refuse_sync):
        refuse(member, ErrorCode.fenced_instance_id)
    leader, topics = group.leader, _topics(group, member)
    group.rename(member, event.new_id)
    _update(member, event)
    transition.renew_session(member)
    if group.state is State.STABLE and group.elected_protocol() == group.protocol and _topics(group, member) == topics:
        return _take_over(transition, member, event, leader)
    member.joining = event.to
    _rebalance(transition)


def _topics(group: Group, member: Member) -> frozenset[str] | None:
    # Not the whole metadata: sticky assignors add what they own, which a restart loses.
    return subscribed_topics(group.subscription(member))


def _take_over(transition: Transition, member: Member, event: Join, old_leader: str | None) -> None:
    reply = transition.joined(event.to, member, skip_assignment=member.id == transition.group.leader)
    if not event.skips_assignment:
        # Before v9 there is no skip_assignment. With the leader's old id in the reply it regards itself as a follower,
        # and sends no assignment, which a stable group would ignore.
        reply = replace(reply, leader=old_leader or "", skip_assignment=False, members=())
    transition.out.append(Store(transition.group.snapshot(), Returned(reply)))


def returned(transition: Transition, event: Returned) -> None:
    """Answer a static member once its new id is stored."""
    failed = Joined(event.reply.to, event.error)
    transition.out.append(failed if event.error else event.reply)
