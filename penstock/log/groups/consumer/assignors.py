"""The server-side assignors, as pure functions.

Each takes the subscriptions of the members, the number of partitions of each topic, and the previous assignment; every
partition of a subscribed topic is assigned to exactly one member that subscribes to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from uuid import UUID

from penstock.log.groups.consumer.state import NOTHING, ConsumerGroup, Image, Member, Partition, Partitions

Subscriptions = Mapping[str, frozenset[UUID]]  # in the order in which ranges are assigned
Counts = Mapping[UUID, int]
Target = dict[str, Partitions]
Assignor = Callable[[Subscriptions, Counts, Mapping[str, Partitions]], Target]


def compute_target(group: ConsumerGroup, image: Image, default: str) -> Target:
    """Return the target assignment of a group for these topics."""
    members = sorted(group.members.values(), key=lambda each: (each.instance_id is None, each.instance_id or each.id))
    subscriptions = {each.id: each.subscribed_ids(image) for each in members}
    counts = {topic.id: topic.partitions for topic in image.topics.values()}
    return ASSIGNORS[preferred_assignor(members, default)](subscriptions, counts, group.target)


def preferred_assignor(members: Iterable[Member], default: str) -> str:
    """Return the assignor that most members request."""
    votes = [each.assignor for each in members if each.assignor is not None]
    return max(sorted(set(votes)), key=votes.count, default=default)


def assign_ranges(subscriptions: Subscriptions, counts: Counts, _: Mapping[str, Partitions]) -> Target:
    """Assign each member a range of every topic, so that topics of equal size are co-partitioned."""
    found: dict[str, set[Partition]] = {id: set() for id in subscriptions}
    for topic in sorted(_all_topics(subscriptions)):
        readers = [id for id, topics in subscriptions.items() if topic in topics]
        each, more = divmod(counts[topic], len(readers))
        start = 0
        for position, reader in enumerate(readers):
            end = start + each + (position < more)
            found[reader].update((topic, index) for index in range(start, end))
            start = end
    return {id: frozenset(partitions) for id, partitions in found.items()}


def assign_uniformly(subscriptions: Subscriptions, counts: Counts, before: Mapping[str, Partitions]) -> Target:
    """Balance the number of partitions per member, and move as few as possible."""
    if len(set(subscriptions.values())) <= 1:
        found = _share_equally(subscriptions, counts, before)
    else:
        found = _share_by_subscription(subscriptions, counts, before)
    return {id: frozenset(partitions) for id, partitions in found.items()}


def _share_equally(
    subscriptions: Subscriptions, counts: Counts, before: Mapping[str, Partitions]
) -> dict[str, set[Partition]]:
    free = _partitions_of(_all_topics(subscriptions), counts)
    quota, more = divmod(len(free), len(subscriptions)) if subscriptions else (0, 0)
    found: dict[str, set[Partition]] = {}
    for id in subscriptions:
        kept = sorted(before.get(id, NOTHING) & free)
        extra = more > 0 and len(kept) > quota
        more -= extra
        found[id] = set(kept[: quota + extra])
        free -= found[id]
    left = sorted(free, reverse=True)
    for partitions in found.values():
        while len(partitions) < quota:
            partitions.add(left.pop())
    for partitions in found.values():
        if left and len(partitions) == quota:
            partitions.add(left.pop())
    return found


def _share_by_subscription(
    subscriptions: Subscriptions, counts: Counts, before: Mapping[str, Partitions]
) -> dict[str, set[Partition]]:
    readers = {
        topic: [id for id, topics in subscriptions.items() if topic in topics] for topic in _all_topics(subscriptions)
    }
    free = _partitions_of(readers, counts)
    found: dict[str, set[Partition]] = {}
    for id, topics in subscriptions.items():
        found[id] = {each for each in before.get(id, NOTHING) if each in free and each[0] in topics}
        free -= found[id]
    for partition in sorted(free, key=lambda each: (len(readers[each[0]]), each)):
        reader = min(readers[partition[0]], key=lambda id: len(found[id]))
        found[reader].add(partition)
    while any(_even_out(topic, readers[topic], found) for topic in sorted(readers)):
        pass  # each move makes two members more equal, so this terminates
    return found


def _even_out(topic: UUID, readers: list[str], found: dict[str, set[Partition]]) -> bool:
    """Move partitions of a topic from members with many to members with few; return whether any was moved."""
    moved = False
    while True:
        least = min(readers, key=lambda id: len(found[id]))
        holders = [id for id in readers if any(each[0] == topic for each in found[id])]
        most = max(holders, key=lambda id: len(found[id]), default=least)
        if len(found[most]) - len(found[least]) <= 1:
            return moved
        partition = max(each for each in found[most] if each[0] == topic)
        found[most].remove(partition)
        found[least].add(partition)
        moved = True


def _all_topics(subscriptions: Subscriptions) -> frozenset[UUID]:
    empty: frozenset[UUID] = frozenset()
    return empty.union(*subscriptions.values())


def _partitions_of(topics: Iterable[UUID], counts: Counts) -> set[Partition]:
    return {(topic, index) for topic in topics for index in range(counts[topic])}


ASSIGNORS: dict[str, Assignor] = {"uniform": assign_uniformly, "range": assign_ranges}
