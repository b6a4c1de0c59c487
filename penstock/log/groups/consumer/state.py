"""A consumer group and its members, as values that never change: each event makes the next group from the last one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import NamedTuple
from uuid import UUID

Partition = tuple[UUID, int]
Partitions = frozenset[Partition]
NOTHING: Partitions = frozenset()
JOINING, LEFT, LEFT_FOR_A_WHILE = 0, -1, -2  # member epochs with a meaning of their own


class MemberState(IntEnum):
    """Where a member stands on its way to its target assignment; the numbers are those that Kafka stores."""

    STABLE = 0
    UNREVOKED = 1  # it was asked to give partitions up, and has not confirmed that
    UNRELEASED = 2  # some of its partitions are still with other members


class GroupState(StrEnum):
    """Where a group stands; the names are those that clients are shown."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class TopicInfo(NamedTuple):
    """What an assignment needs to know of a topic."""

    id: UUID
    partitions: int


@dataclass(frozen=True, slots=True)
class Image:
    """The topics at a moment, and those that each regular expression of the group's members matches.

    The same `revision` means the same topics.
    """

    topics: Mapping[str, TopicInfo]
    resolved: Mapping[str, frozenset[str]] = field(default_factory=dict)
    revision: object = None


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """Settings of one group in milliseconds; the defaults are Kafka's."""

    session_timeout: int = 45_000
    heartbeat_interval: int = 5_000
    max_size: int = 2**31 - 1
    assignors: tuple[str, ...] = ("uniform", "range")  # the first one is used where no member asks for another


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One consumer. It may consume `assigned`, and holds `revoking` until it confirms that it has let go of them."""

    id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout: int = -1
    topics: frozenset[str] = frozenset()
    regex: str | None = None
    assignor: str | None = None
    epoch: int = JOINING
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: Partitions = NOTHING
    revoking: Partitions = NOTHING
    expires: int = 0  # it is removed then, unless it sends a heartbeat
    revoke_by: int | None = None  # it is removed then, unless it confirms the revocation

    @property
    def metadata(self) -> tuple[object, ...]:
        """What the member says of itself: stored when it changes."""
        described = (self.instance_id, self.rack_id, self.client_id, self.client_host)
        return (*described, self.rebalance_timeout, self.topics, self.regex, self.assignor)

    @property
    def progress(self) -> tuple[object, ...]:
        """How far the member is: stored when it changes."""
        return self.epoch, self.previous_epoch, self.state, self.assigned, self.revoking

    @property
    def held(self) -> Partitions:
        """Partitions that nobody else may consume."""
        return self.assigned | self.revoking

    def subscribed(self, image: Image) -> frozenset[str]:
        """Return the names of the topics that it asks for, existing or not."""
        return self.topics | image.resolved.get(self.regex or "", frozenset())

    def subscribed_ids(self, image: Image) -> frozenset[UUID]:
        """Return the topics that it asks for and that exist."""
        names = self.subscribed(image)
        return frozenset(image.topics[name].id for name in names if name in image.topics)


@dataclass(frozen=True, slots=True)
class ConsumerGroup:
    """A group: `epoch` counts its changes, `target` is the assignment that was computed for `target_epoch`.

    Always true, and checked by `check`: no partition is held by two members; no member and no target is ahead of the
    group; targets belong to members and do not overlap; only members that are asked to revoke hold such partitions.
    """

    id: str
    epoch: int = 0
    target_epoch: int = 0
    members: Mapping[str, Member] = field(default_factory=dict)
    target: Mapping[str, Partitions] = field(default_factory=dict)
    topics_hash: int = 0  # of the subscribed topics that the target was computed for
    revision: object = None  # of the image that `topics_hash` was last compared with

    @property
    def state(self) -> GroupState:
        """Where the group stands."""
        if not self.members:
            return GroupState.EMPTY
        if self.epoch > self.target_epoch:
            return GroupState.ASSIGNING
        return GroupState.STABLE if all(map(self._is_reconciled, self.members.values())) else GroupState.RECONCILING

    def _is_reconciled(self, member: Member) -> bool:
        return member.state is MemberState.STABLE and member.epoch == self.target_epoch

    def static_member(self, instance_id: str | None) -> Member | None:
        """Return the member with an instance id."""
        if instance_id is None:
            return None
        return next((each for each in self.members.values() if each.instance_id == instance_id), None)

    def held_by_others(self, member_id: str) -> Partitions:
        """Return the partitions that a member has to wait for."""
        return NOTHING.union(*(each.held for each in self.members.values() if each.id != member_id))

    def subscribed_topics(self, image: Image) -> frozenset[str]:
        """Return the names of all topics that members ask for."""
        empty: frozenset[str] = frozenset()
        return empty.union(*(each.subscribed(image) for each in self.members.values()))

    def deadline(self) -> int | None:
        """Return when the group next wants a `Tick`."""
        times = [each.expires for each in self.members.values()]
        times += [each.revoke_by for each in self.members.values() if each.revoke_by is not None]
        return min(times, default=None)

    def check(self) -> None:
        """Raise AssertionError if something that is always true is not."""
        held = [each for member in self.members.values() for each in member.held]
        assert len(held) == len(set(held)), "a partition is held by two members"
        targets = [each for partitions in self.target.values() for each in partitions]
        assert len(targets) == len(set(targets)), "a partition is meant for two members"
        assert self.target.keys() <= self.members.keys()
        assert self.target_epoch <= self.epoch
        for id, member in self.members.items():
            assert id == member.id
            assert member.epoch <= self.target_epoch
            assert bool(member.revoking) == (member.state is MemberState.UNREVOKED)
            assert (member.revoke_by is not None) == (member.state is MemberState.UNREVOKED)
            assert not member.assigned & member.revoking
        instances = [each.instance_id for each in self.members.values() if each.instance_id is not None]
        assert len(instances) == len(set(instances)), "two members with one instance id"
