"""The state, events and replies of a consumer group. All are immutable; times are milliseconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import NamedTuple
from uuid import UUID

Partition = tuple[UUID, int]
Partitions = frozenset[Partition]
NOTHING: Partitions = frozenset()
JOINING, LEFT, LEFT_FOR_A_WHILE = 0, -1, -2  # special member epochs


class MemberState(IntEnum):
    """The state of a member in the reconciliation; numbered as Kafka stores them."""

    STABLE = 0
    UNREVOKED = 1  # it has to revoke partitions, and has not confirmed that
    UNRELEASED = 2  # some of its target partitions are still owned by other members


class GroupState(StrEnum):
    """The state of a group, with Kafka's names."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class TopicInfo(NamedTuple):
    """The id and number of partitions of a topic."""

    id: UUID
    partitions: int


@dataclass(frozen=True, slots=True)
class Image:
    """A snapshot of the topics, and those that each regular expression of the group's members matches.

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
    assignors: tuple[str, ...] = ("uniform", "range")  # the first one is the default


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One consumer. It consumes `assigned`, and owns `revoking` until it confirms the revocation."""

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
        """What the member sent about itself: stored when it changes."""
        described = (self.instance_id, self.rack_id, self.client_id, self.client_host)
        return (*described, self.rebalance_timeout, self.topics, self.regex, self.assignor)

    @property
    def progress(self) -> tuple[object, ...]:
        """The state of the reconciliation: stored when it changes."""
        return self.epoch, self.previous_epoch, self.state, self.assigned, self.revoking

    @property
    def owned(self) -> Partitions:
        """Partitions that no other member may consume."""
        return self.assigned | self.revoking

    def subscribed(self, image: Image) -> frozenset[str]:
        """Return the names of the topics that it subscribes to, existing or not."""
        return self.topics | image.resolved.get(self.regex or "", frozenset())

    def subscribed_ids(self, image: Image) -> frozenset[UUID]:
        """Return the ids of the existing topics that it subscribes to."""
        names = self.subscribed(image)
        return frozenset(image.topics[name].id for name in names if name in image.topics)


@dataclass(frozen=True, slots=True)
class ConsumerGroup:
    """A group: `epoch` counts its changes, `target` is the assignment that was computed for `target_epoch`.

    Invariants, checked by `check`: no partition is owned by two members; no member and no target is ahead of the
    group; targets belong to members and do not overlap; only members in UNREVOKED have partitions to revoke.
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
        """The state of the group."""
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

    def owned_by_others(self, member_id: str) -> Partitions:
        """Return the partitions that other members own."""
        return NOTHING.union(*(each.owned for each in self.members.values() if each.id != member_id))

    def subscribed_topics(self, image: Image) -> frozenset[str]:
        """Return the names of all topics that members subscribe to."""
        empty: frozenset[str] = frozenset()
        return empty.union(*(each.subscribed(image) for each in self.members.values()))

    def deadline(self) -> int | None:
        """Return the time of the next `Tick`."""
        times = [each.expires for each in self.members.values()]
        times += [each.revoke_by for each in self.members.values() if each.revoke_by is not None]
        return min(times, default=None)

    def check(self) -> None:
        """Raise AssertionError if an invariant is violated."""
        held = [each for member in self.members.values() for each in member.owned]
        assert len(held) == len(set(held)), "a partition is owned by two members"
        targets = [each for partitions in self.target.values() for each in partitions]
        assert len(targets) == len(set(targets)), "a partition is in the targets of two members"
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """A member joins (epoch 0), is alive, leaves (-1), or leaves temporarily as a static member (-2).

    None, and -1 as the rebalance timeout, mean "unchanged".
    """

    member_id: str
    epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout: int = -1
    topics: frozenset[str] | None = None
    regex: str | None = None
    assignor: str | None = None
    owned: Partitions | None = None
    client_id: str = ""
    client_host: str = ""

    @property
    def is_full(self) -> bool:
        """Whether it has all fields, as clients send after an error: then the reply has all fields too."""
        said = self.topics is not None or self.regex is not None
        return self.rebalance_timeout != -1 and said and self.owned is not None


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


@dataclass(frozen=True, slots=True)
class Remove:
    """An administrator removes a member, by its id or its instance id."""

    member_id: str = ""
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """The reply to a heartbeat; `assignment` is None if it has not changed."""

    member_id: str
    epoch: int
    heartbeat_interval: int = 0
    assignment: Partitions | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """The group after an event, and the reply."""

    group: ConsumerGroup
    answer: Answer | None = None


Event = Heartbeat | Tick | Remove
