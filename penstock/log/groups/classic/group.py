"""The state of a classic group and its members, changed only by `state_machine.handle`."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from penstock.log.groups.classic.events import Join, MemberSnapshot, Snapshot

CONSUMER = "consumer"


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """Return the topics in a consumer's metadata, or None if the bytes are no consumer metadata.

    Groups need not be consumers: the metadata of others is opaque.
    """
    try:
        _, count = struct.unpack_from(">hi", metadata)
        return frozenset(_strings(metadata, 6, count))
    except (struct.error, UnicodeDecodeError, ValueError):
        return None


def _strings(data: bytes, at: int, count: int) -> list[str]:
    found = []
    for _ in range(count):
        (size,) = struct.unpack_from(">h", data, at)
        text = data[at + 2 : at + 2 + size]
        if size < 0 or len(text) < size:
            msg = "truncated topic name"
            raise ValueError(msg)
        found.append(text.decode())
        at += 2 + size
    return found


class State(StrEnum):
    """The state of a group, with Kafka's names."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"  # waiting for the members to join
    COMPLETING = "CompletingRebalance"  # waiting for the leader's assignment
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(slots=True)
class Member:
    """One consumer. `joining` and `syncing` are its requests that wait for a reply."""

    id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout: int
    rebalance_timeout: int
    protocols: dict[str, bytes]  # in order of preference
    expires: int  # it is removed then, unless it sends a request
    assignment: bytes = b""
    joining: int | None = None
    syncing: int | None = None
    is_new: bool = True
    owes_sync: bool = False

    @property
    def is_waiting(self) -> bool:
        """Whether it waits for the broker, so that its session does not expire. A new one may have disconnected."""
        return not self.is_new and (self.joining is not None or self.syncing is not None)


@dataclass(slots=True)
class Group:
    """A group's members and state; `state_machine.handle` is what changes it.

    Invariants, checked by `check`: an empty or dead group has no members and any other state but PREPARING has;
    the leader is a member; static ids point at members; joins wait only while PREPARING, syncs only while COMPLETING;
    a protocol is chosen exactly when there is a generation of members, and all of them know it.
    """

    id: str
    initial_delay: int = 100
    state: State = State.EMPTY
    since: int = 0
    generation: int = 0
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str | None = None
    members: dict[str, Member] = field(default_factory=dict)
    static: dict[str, str] = field(default_factory=dict)  # instance id -> member id
    reserved: dict[str, int] = field(default_factory=dict)  # member ids that were assigned, and when they expire
    join_deadline: int | None = None
    sync_deadline: int | None = None
    fills_until: int | None = None  # the latest time until which a new group waits for more members
    has_grown: bool = False

    @classmethod
    def restored(cls, id: str, stored: Snapshot, now: int, initial_delay: int) -> Group:
        """Restore a stored group; its members have one session timeout to send a request."""
        members = {each.id: _restored_member(each, stored.protocol, now) for each in stored.members}
        return cls(
            id,
            initial_delay,
            State.STABLE if members else State.EMPTY,
            stored.since,
            stored.generation,
            stored.protocol_type or None,
            stored.protocol,
            stored.leader if stored.leader in members else next(iter(members), None),
            members,
            {member.instance_id: id for id, member in members.items() if member.instance_id is not None},
        )

    def snapshot(self, assignments: dict[str, bytes] | None = None) -> Snapshot:
        """Return the snapshot to store, with these assignments if the members do not have them yet."""
        return Snapshot(
            self.protocol_type or "",
            self.generation,
            self.protocol,
            self.leader,
            self.since,
            tuple(self._stored_member(member, assignments) for member in self.members.values()),
        )

    def _stored_member(self, member: Member, assignments: dict[str, bytes] | None) -> MemberSnapshot:
        return MemberSnapshot(
            member.id,
            member.instance_id,
            member.client_id,
            member.client_host,
            member.rebalance_timeout,
            member.session_timeout,
            self.subscription(member),
            member.assignment if assignments is None else assignments.get(member.id, b""),
        )

    def deadline(self) -> int | None:
        """Return the time of the next `Tick`."""
        times = [time for time in (self.join_deadline, self.sync_deadline) if time is not None]
        times += self.reserved.values()
        times += [member.expires for member in self.members.values() if not member.is_waiting]
        return min(times, default=None)

    @property
    def rebalance_timeout(self) -> int:
        """The longest rebalance timeout of the members."""
        return max((member.rebalance_timeout for member in self.members.values()), default=0)

    @property
    def all_joined(self) -> bool:
        """Whether all members have joined."""
        return not self.reserved and all(member.joining is not None for member in self.members.values())

    def common_protocols(self) -> set[str]:
        """Return the protocols that every member supports."""
        known = [member.protocols.keys() for member in self.members.values()]
        return set(known[0]).intersection(*known[1:]) if known else set()

    def supports(self, protocol_type: str, names: Iterable[str]) -> bool:
        """Return whether a client with these protocols can join."""
        if not self.members:
            return bool(protocol_type) and any(True for _ in names)
        return protocol_type == self.protocol_type and not self.common_protocols().isdisjoint(names)

    def elected_protocol(self) -> str:
        """Return the common protocol that most members prefer."""
        common = self.common_protocols()
        votes = [next(name for name in member.protocols if name in common) for member in self.members.values()]
        return Counter(votes).most_common(1)[0][0]

    def subscription(self, member: Member) -> bytes:
        """Return the metadata of a member for the chosen protocol."""
        return member.protocols.get(self.protocol or "", b"")

    def subscribed_topics(self) -> frozenset[str] | None:
        """Return the topics that the members subscribe to, or None if unknown."""
        if self.protocol_type != CONSUMER or self.protocol is None:
            return None
        found = [subscribed_topics(self.subscription(member)) for member in self.members.values()]
        known = [topics for topics in found if topics is not None]
        return frozenset().union(*known) if len(known) == len(found) else None

    def add(self, join: Join, member_id: str, expires: int) -> Member:
        """Add a member that waits for this join."""
        member = Member(
            member_id,
            join.instance_id,
            join.client_id,
            join.client_host,
            join.session_timeout,
            join.rebalance_timeout,
            dict(join.protocols),
            expires,
            joining=join.to,
        )
        if not self.members:
            self.protocol_type = join.protocol_type
        self.members[member_id] = member
        if join.instance_id is not None:
            self.static[join.instance_id] = member_id
        self.leader = self.leader or member_id
        return member

    def remove(self, member: Member) -> None:
        """Remove a member, also as leader and static member."""
        del self.members[member.id]
        if member.instance_id is not None:
            del self.static[member.instance_id]
        if self.leader == member.id:
            self.leader = next(iter(self.members), None)

    def rename(self, member: Member, new_id: str) -> None:
        """Set the new id of a static member that rejoined; its assignment stays."""
        old_id, member.id = member.id, new_id
        self.members = {each.id: each for each in self.members.values()}
        self.static[member.instance_id or ""] = new_id
        if self.leader == old_id:
            self.leader = new_id

    def check(self) -> None:
        """Raise AssertionError if an invariant is violated."""
        members, state = self.members, self.state
        assert state is State.PREPARING or bool(members) == (state not in (State.EMPTY, State.DEAD)), state
        assert self.leader in members if members else self.leader is None, self.leader
        assert all(members[id].instance_id == instance for instance, id in self.static.items())
        assert len(self.static) == sum(member.instance_id is not None for member in members.values())
        assert state is State.PREPARING or not any(member.joining is not None for member in members.values())
        assert state is State.COMPLETING or not any(member.syncing is not None for member in members.values())
        assert (self.join_deadline is not None) == (state is State.PREPARING)
        assert self.sync_deadline is None or state in (State.COMPLETING, State.STABLE)
        if state in (State.COMPLETING, State.STABLE):
            assert self.protocol in self.common_protocols()


def _restored_member(stored: MemberSnapshot, protocol: str | None, now: int) -> Member:
    return Member(
        stored.id,
        stored.instance_id,
        stored.client_id,
        stored.client_host,
        stored.session_timeout,
        stored.rebalance_timeout,
        {protocol or "": stored.subscription},
        expires=now + stored.session_timeout,
        assignment=stored.assignment,
        is_new=False,
    )
