"""Events and instructions of the state machine of a classic group.

A request is an event with `to`, the number of the waiting request; each number gets exactly one `Reply`, at once or
later. Times are milliseconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.log.errors import ErrorCode

NO_MEMBER = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """A consumer joins the next generation."""

    to: int = 0
    member_id: str = NO_MEMBER
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    session_timeout: int
    rebalance_timeout: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    new_id: str  # the member id that it gets if it has none
    reserves_id: bool = True  # since v4: a new member gets its id first, and joins with it
    skips_assignment: bool = False  # since v9: a leader that rejoins can keep the assignment


@dataclass(frozen=True, slots=True, kw_only=True)
class Sync:
    """A member requests its assignment; the leader delivers the assignments of all."""

    to: int = 0
    generation: int
    member_id: str
    instance_id: str | None = None
    protocol_type: str | None = None
    protocol: str | None = None
    assignments: dict[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """A member is alive."""

    to: int = 0
    generation: int
    member_id: str
    instance_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """A client commits offsets."""

    to: int = 0
    generation: int = -1
    member_id: str = NO_MEMBER
    instance_id: str | None = None
    transactional: bool = False
    by_epoch: bool = True  # since v9 the generation can be a member epoch


@dataclass(frozen=True, slots=True, kw_only=True)
class Leave:
    """A member leaves, or an administrator removes it."""

    to: int = 0
    member_id: str = NO_MEMBER
    instance_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete:
    """The group is deleted."""

    to: int = 0


@dataclass(frozen=True, slots=True)
class DeleteFailed:
    """The deletion could not be written, so the group remains."""


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


@dataclass(frozen=True, slots=True)
class Assigned:
    """The leader's assignment was stored, or failed with `error`."""

    generation: int
    assignments: dict[str, bytes]
    error: ErrorCode = ErrorCode.none


@dataclass(frozen=True, slots=True)
class Returned:
    """The new id of a static member that rejoined was stored, or failed with `error`."""

    reply: Joined
    error: ErrorCode = ErrorCode.none


@dataclass(frozen=True, slots=True)
class MemberSnapshot:
    """A member as it is stored."""

    id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout: int
    session_timeout: int
    subscription: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A group as it is stored, so that its members need not join again after a restart."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    since: int
    members: tuple[MemberSnapshot, ...]


@dataclass(frozen=True, slots=True)
class Reply:
    """The reply to the request `to`."""

    to: int
    error: ErrorCode = ErrorCode.none


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined(Reply):
    """The reply to a `Join`; only the leader gets the members: (id, instance id, subscription)."""

    member_id: str = NO_MEMBER
    generation: int = -1
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: tuple[tuple[str, str | None, bytes], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Synced(Reply):
    """The reply to a `Sync`."""

    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True)
class Store:
    """Store the group; then apply the event `then`, with an error if that failed."""

    snapshot: Snapshot
    then: Assigned | Returned | None = None


Event = Join | Sync | Heartbeat | Commit | Leave | Delete | DeleteFailed | Tick | Assigned | Returned
Instruction = Reply | Store
