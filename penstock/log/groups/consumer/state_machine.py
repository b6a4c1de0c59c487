"""The state machine of a consumer group, as a pure function: event, topics and time in, the next group and a reply out.

Any change of members, subscriptions or topics increments the group epoch; the next heartbeat then computes a target
assignment for that epoch, and each heartbeat brings its member a step closer to its target (`reconcile`): it revokes
first, then it is assigned what is free. A step that is not needed is skipped.

    STABLE --new target--> UNREVOKED --revoked--> UNRELEASED --others released--> STABLE

A refused event raises LogError and changes nothing. Error codes and rules are those of Apache Kafka.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace

from penstock.log.errors import ErrorCode, LogError
from penstock.log.groups.consumer.assignors import compute_target
from penstock.log.groups.consumer.state import (
    JOINING,
    LEFT_FOR_A_WHILE,
    NOTHING,
    Answer,
    ConsumerGroup,
    ConsumerSettings,
    Event,
    Heartbeat,
    Image,
    Member,
    MemberState,
    Outcome,
    Partitions,
    Remove,
    Tick,
)

_REJOIN = "the member must revoke its partitions and join again"


def handle(group: ConsumerGroup, event: Event, now: int, image: Image, settings: ConsumerSettings) -> Outcome:
    """Return the group after an event."""
    if isinstance(event, Tick):
        return Outcome(_expire(group, now))
    if isinstance(event, Remove):
        return Outcome(_remove(group, _named(group, event).id))
    if event.epoch < JOINING:
        return _leave(group, event)
    return _heartbeat(group, event, now, image, settings)


def check_epoch(group: ConsumerGroup, member_id: str, epoch: int) -> None:
    """Refuse a client that is not a member, or whose member epoch is not current."""
    member = group.members.get(member_id)
    if member is None:
        raise LogError(ErrorCode.unknown_member_id, f"group {group.id!r} has no member {member_id!r}")
    if member.epoch != epoch:
        raise LogError(ErrorCode.stale_member_epoch, f"the member's epoch is {member.epoch}, not {epoch}")


def _heartbeat(group: ConsumerGroup, beat: Heartbeat, now: int, image: Image, settings: ConsumerSettings) -> Outcome:
    if beat.member_id not in group.members and len(group.members) >= settings.max_size:
        raise LogError(ErrorCode.group_max_size_reached, f"group {group.id!r} has {settings.max_size} members")
    group, before = _find_or_add(group, beat)
    member = _updated(before, beat, now + settings.session_timeout)
    changed = (member.topics, member.regex) != (before.topics, before.regex)
    group = replace(group, members={**group.members, member.id: member})
    group = _with_target(_with_epoch(group, image, changed), image, settings)
    member = _timed(member, reconcile(group, member, image, beat.owned, changed), now)
    group = replace(group, members={**group.members, member.id: member})
    send_assignment = beat.epoch == JOINING or beat.is_full or member.assigned != before.assigned
    assignment = member.assigned if send_assignment else None
    return Outcome(group, Answer(member.id, member.epoch, settings.heartbeat_interval, assignment))


def _find_or_add(group: ConsumerGroup, beat: Heartbeat) -> tuple[ConsumerGroup, Member]:
    if beat.instance_id is None:
        member = group.members.get(beat.member_id)
        if member is None and beat.epoch != JOINING:
            raise LogError(ErrorCode.unknown_member_id, f"group {group.id!r} has no member {beat.member_id!r}")
    else:
        member = _static(group, beat)
    if member is None:
        return group, Member(id=beat.member_id)
    if member.id != beat.member_id:
        return _replaced(group, member, beat.member_id)
    _check_heartbeat_epoch(member, beat.epoch, beat.owned)
    return group, member


def _static(group: ConsumerGroup, beat: Heartbeat) -> Member | None:
    member = group.static_member(beat.instance_id)
    if beat.epoch != JOINING:
        return _fenced_unless(member, beat.member_id, beat.instance_id)
    if member is not None and member.id != beat.member_id and member.epoch != LEFT_FOR_A_WHILE:
        message = f"instance id {beat.instance_id!r} is in use by member {member.id!r}"
        raise LogError(ErrorCode.unreleased_instance_id, message)
    return member


def _fenced_unless(member: Member | None, member_id: str, instance_id: str | None) -> Member:
    if member is None:
        raise LogError(ErrorCode.unknown_member_id, f"there is no member with instance id {instance_id!r}")
    if member.id != member_id:
        raise LogError(ErrorCode.fenced_instance_id, f"instance id {instance_id!r} is now member {member.id!r}")
    return member


def _replaced(group: ConsumerGroup, left: Member, member_id: str) -> tuple[ConsumerGroup, Member]:
    """Replace a static member that left by its new instance, which takes over the partitions."""
    member = replace(left, id=member_id, epoch=JOINING, previous_epoch=-1)
    members = {each.id: each for each in group.members.values() if each is not left} | {member_id: member}
    target = {member_id if id == left.id else id: partitions for id, partitions in group.target.items()}
    return replace(group, members=members, target=target), member


def _check_heartbeat_epoch(member: Member, epoch: int, owned: Partitions | None) -> None:
    if epoch in (JOINING, member.epoch):
        return
    lost_answer = epoch == member.previous_epoch and owned is not None and owned <= member.assigned
    if not lost_answer:
        message = f"the member's epoch is {member.epoch}, not {epoch}; {_REJOIN}"
        raise LogError(ErrorCode.fenced_member_epoch, message)


def _updated(member: Member, beat: Heartbeat, expires: int) -> Member:
    return replace(
        member,
        instance_id=member.instance_id if beat.instance_id is None else beat.instance_id,
        rack_id=member.rack_id if beat.rack_id is None else beat.rack_id,
        client_id=beat.client_id,
        client_host=beat.client_host,
        rebalance_timeout=member.rebalance_timeout if beat.rebalance_timeout == -1 else beat.rebalance_timeout,
        topics=member.topics if beat.topics is None else beat.topics,
        regex=member.regex if beat.regex is None else beat.regex or None,
        assignor=member.assignor if beat.assignor is None else beat.assignor,
        epoch=JOINING if member.epoch == LEFT_FOR_A_WHILE else member.epoch,
        expires=expires,
    )


def _with_epoch(group: ConsumerGroup, image: Image, changed: bool) -> ConsumerGroup:
    if not changed and group.epoch and group.revision is not None and group.revision == image.revision:
        return group
    hashed = _hash_topics(group, image)
    bumped = changed or not group.epoch or hashed != group.topics_hash
    return replace(group, epoch=group.epoch + bumped, topics_hash=hashed, revision=image.revision)


def _hash_topics(group: ConsumerGroup, image: Image) -> int:
    """Return a hash that changes when a subscribed topic is created, deleted, or gets more partitions."""
    names = sorted(name for name in group.subscribed_topics(image) if name in image.topics)
    lines = "".join(f"{name} {image.topics[name].id} {image.topics[name].partitions}\n" for name in names)
    return int.from_bytes(hashlib.blake2b(lines.encode(), digest_size=8).digest(), signed=True)


def _with_target(group: ConsumerGroup, image: Image, settings: ConsumerSettings) -> ConsumerGroup:
    if group.epoch == group.target_epoch:
        return group
    return replace(group, target=compute_target(group, image, settings.assignors[0]), target_epoch=group.epoch)


def _timed(before: Member, after: Member, now: int) -> Member:
    """Set the deadline of a member that has to revoke partitions: its rebalance timeout."""
    if after.state is not MemberState.UNREVOKED:
        return replace(after, revoke_by=None)
    if after.progress == before.progress:
        return after
    return replace(after, revoke_by=now + after.rebalance_timeout)


def _leave(group: ConsumerGroup, beat: Heartbeat) -> Outcome:
    if beat.instance_id is not None:
        member = _fenced_unless(group.static_member(beat.instance_id), beat.member_id, beat.instance_id)
    else:
        member = _named(group, Remove(beat.member_id))
    answer = Answer(member.id, beat.epoch)
    if beat.epoch != LEFT_FOR_A_WHILE:
        return Outcome(_remove(group, member.id), answer)
    away = replace(member, epoch=LEFT_FOR_A_WHILE, previous_epoch=-1, state=MemberState.STABLE)
    away = replace(away, revoking=NOTHING, revoke_by=None)
    return Outcome(replace(group, members={**group.members, member.id: away}), answer)


def _named(group: ConsumerGroup, event: Remove) -> Member:
    if event.instance_id is not None:
        member = group.static_member(event.instance_id)
        if member is not None and event.member_id:
            return _fenced_unless(member, event.member_id, event.instance_id)
    else:
        member = group.members.get(event.member_id)
    if member is None:
        name = event.member_id if event.instance_id is None else event.instance_id
        raise LogError(ErrorCode.unknown_member_id, f"group {group.id!r} has no member {name!r}")
    return member


def _remove(group: ConsumerGroup, *member_ids: str) -> ConsumerGroup:
    if not member_ids:
        return group
    members = {id: each for id, each in group.members.items() if id not in member_ids}
    target = {id: partitions for id, partitions in group.target.items() if id not in member_ids}
    return replace(group, members=members, target=target, epoch=group.epoch + 1, revision=None)


def _expire(group: ConsumerGroup, now: int) -> ConsumerGroup:
    late = [
        each.id
        for each in group.members.values()
        if each.expires <= now or (each.revoke_by is not None and each.revoke_by <= now)
    ]
    return _remove(group, *late)


def reconcile(group: ConsumerGroup, member: Member, image: Image, owned: Partitions | None, changed: bool) -> Member:
    """Return the member after one step of reconciliation, or unchanged.

    `owned` is what the member reports to own, `changed` whether its subscription has changed.
    """
    if member.state is MemberState.STABLE and member.epoch == group.target_epoch:
        return _without_unsubscribed(member, image, owned) if changed else member
    if member.state is MemberState.UNREVOKED and _owns(owned, member.revoking):
        return _without_unsubscribed(member, image, owned) if changed else member
    return _next(group, member, image, owned)


def _owns(owned: Partitions | None, partitions: Partitions) -> bool:
    return owned is None or not owned.isdisjoint(partitions)


def _subscribed(partitions: Partitions, member: Member, image: Image) -> Partitions:
    topics = member.subscribed_ids(image)
    return frozenset(each for each in partitions if each[0] in topics)


def _without_unsubscribed(member: Member, image: Image, owned: Partitions | None) -> Member:
    kept = _subscribed(member.assigned, member, image)
    revoking = member.revoking | (member.assigned - kept)
    if kept == member.assigned:
        return member
    if _owns(owned, revoking):
        return replace(member, state=MemberState.UNREVOKED, assigned=kept, revoking=revoking)
    return replace(member, assigned=kept)


def _next(group: ConsumerGroup, member: Member, image: Image, owned: Partitions | None) -> Member:
    target = _subscribed(group.target.get(member.id, NOTHING), member, image)
    kept = member.assigned & target
    revoking = member.assigned - target
    if revoking and _owns(owned, revoking):
        # It stays in its epoch, in which it may still commit their offsets.
        return replace(member, state=MemberState.UNREVOKED, assigned=kept, revoking=revoking)
    missing = target - kept
    waits_for = missing & group.owned_by_others(member.id)
    return replace(
        member,
        state=MemberState.UNRELEASED if waits_for else MemberState.STABLE,
        assigned=kept | (missing - waits_for),
        revoking=NOTHING,
        epoch=group.target_epoch,
        # The reply with the new epoch may be lost; then the member sends the previous one.
        previous_epoch=member.previous_epoch if member.epoch == group.target_epoch else member.epoch,
    )
