from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from penstock.log.groups.events import Join, MemberSnapshot, Snapshot
from penstock.log.groups.subscriptions import CONSUMER, subscribed_topics


class State(StrEnum):
    """Where a group stands; the names are those that clients are shown."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"  # waiting for the members to join
    COMPLETING = "CompletingRebalance"  # waiting for the leader's assignment
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(slots=True)
class Member:
    """One consumer. `joining` and `syncing` are the requests of it that wait for an answer."""

    id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout: int
    rebalance_timeout: int
    protocols: dict[str, bytes]  # in its order of preference
    expires: int  # it is dropped then, unless it is heard of
    assignment: bytes = b""
    joining: int | None = None
    syncing: int | None = None
    is_new: bool = True
    owes_sync: bool = False

    @property
    def is_waiting(self) -> bool:
        """Whether it waits for us, so that its silence means nothing. A new one may have gone away meanwhile."""
        return not self.is_new and (self.joining is not None or self.syncing is not None)


@dataclass(slots=True)
class Group:
    """A group's members and state; `machine.handle` is what changes it.

    Always true, and checked by `check`: an empty or dead group has no members and any other state but PREPARING has;
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
    reserved: dict[str, int] = field(default_factory=dict)  # ids given out, and until when they can be used
    join_deadline: int | None = None
    sync_deadline: int | None = None
    fills_until: int | None = None  # a new group waits a little for more members, at the longest until then
    has_grown: bool = False

    @classmethod
    def restored(cls, id: str, stored: Snapshot, now: int, initial_delay: int) -> Group:
        """Return a group as it was stored; its members have one session to be heard of."""
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
        """Return what is to be stored, with these assignments if they are not the members' own yet."""
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
        """Return when the group next wants a `Tick`."""
        times = [time for time in (self.join_deadline, self.sync_deadline) if time is not None]
        times += self.reserved.values()
        times += [member.expires for member in self.members.values() if not member.is_waiting]
        return min(times, default=None)

    @property
    def rebalance_timeout(self) -> int:
        """The longest that a member asked for: until then a rebalance waits for it."""
        return max((member.rebalance_timeout for member in self.members.values()), default=0)

    @property
    def all_joined(self) -> bool:
        """Whether there is nobody left to wait for."""
        return not self.reserved and all(member.joining is not None for member in self.members.values())

    def common_protocols(self) -> set[str]:
        """Return the protocols that every member knows."""
        known = [member.protocols.keys() for member in self.members.values()]
        return set(known[0]).intersection(*known[1:]) if known else set()

    def supports(self, protocol_type: str, names: Iterable[str]) -> bool:
        """Say whether someone with these protocols can be a member."""
        if not self.members:
            return bool(protocol_type) and any(True for _ in names)
        return protocol_type == self.protocol_type and not self.common_protocols().isdisjoint(names)

    def elected_protocol(self) -> str:
        """Return the common protocol that most members prefer."""
        common = self.common_protocols()
        votes = [next(name for name in member.protocols if name in common) for member in self.members.values()]
        return Counter(votes).most_common(1)[0][0]

    def subscription(self, member: Member) -> bytes:
        """Return what a member said of itself for the chosen protocol."""
        return member.protocols.get(self.protocol or "", b"")

    def subscribed_topics(self) -> frozenset[str] | None:
        """Return the topics that the members consume, or None where that cannot be known."""
        if self.protocol_type != CONSUMER or self.protocol is None:
            return None
        found = [subscribed_topics(self.subscription(member)) for member in self.members.values()]
        known = [topics for topics in found if topics is not None]
        return frozenset().union(*known) if len(known) == len(found) else None

    def add(self, join: Join, member_id: str, expires: int) -> Member:
        """Take in a member that waits for this join."""
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
        """Let a member go, with whatever it led or was called."""
        del self.members[member.id]
        if member.instance_id is not None:
            del self.static[member.instance_id]
        if self.leader == member.id:
            self.leader = next(iter(self.members), None)

    def rename(self, member: Member, new_id: str) -> None:
        """Give a static member that came back its new id; its place and its assignment stay."""
        old_id, member.id = member.id, new_id
        self.members = {each.id: each for each in self.members.values()}
        self.static[member.instance_id or ""] = new_id
        if self.leader == old_id:
            self.leader = new_id

    def check(self) -> None:
        """Raise AssertionError if something that is always true is not."""
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
