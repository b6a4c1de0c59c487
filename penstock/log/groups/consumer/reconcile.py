"""How a member comes from the assignment that it has to its target: it revokes first, then it is given what is free.

    STABLE --new target--> UNREVOKED --revoked--> UNRELEASED --others released--> STABLE

A step that is not needed is left out. The rules are those of Apache Kafka.
"""

from __future__ import annotations

from dataclasses import replace

from penstock.log.groups.consumer.state import NOTHING, ConsumerGroup, Image, Member, MemberState, Partitions


def reconcile(group: ConsumerGroup, member: Member, image: Image, owned: Partitions | None, changed: bool) -> Member:
    """Return the member one step further, or as it is.

    `owned` is what the member says that it owns, `changed` whether its subscription is another than before.
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
        # It stays in its epoch, in which it may still commit what it has read of them.
        return replace(member, state=MemberState.UNREVOKED, assigned=kept, revoking=revoking)
    missing = target - kept
    waits_for = missing & group.held_by_others(member.id)
    return replace(
        member,
        state=MemberState.UNRELEASED if waits_for else MemberState.STABLE,
        assigned=kept | (missing - waits_for),
        revoking=NOTHING,
        epoch=group.target_epoch,
        # The answer with the new epoch may be lost; then the member comes with the one before.
        previous_epoch=member.previous_epoch if member.epoch == group.target_epoch else member.epoch,
    )
