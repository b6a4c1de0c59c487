"""What a group is told, and what it asks for in return.

A request is an event with `to`, the number under which its sender waits; each such number is answered by exactly one
`Reply`, at once or later. Times are milliseconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.log.errors import ErrorCode

NO_MEMBER = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """A consumer wants to be in the next generation."""

    to: int = 0
    member_id: str = NO_MEMBER
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    session_timeout: int
    rebalance_timeout: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    new_id: str  # the member id it gets if it has none
    reserves_id: bool = True  # since v4: a new member is told its id first, and joins with it
    skips_assignment: bool = False  # since v9: a returning leader can be told that the assignment stands


@dataclass(frozen=True, slots=True, kw_only=True)
class Sync:
    """A member asks for its part of the assignment; the leader brings the whole of it."""

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
    """Someone asks whether they may commit offsets."""

    to: int = 0
    generation: int = -1
    member_id: str = NO_MEMBER
    instance_id: str | None = None
    transactional: bool = False
    by_epoch: bool = True  # since v9 the generation can be a member epoch


@dataclass(frozen=True, slots=True, kw_only=True)
class Leave:
    """A member goes, or an administrator removes it."""

    to: int = 0
    member_id: str = NO_MEMBER
    instance_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete:
    """The group itself is to go."""

    to: int = 0


@dataclass(frozen=True, slots=True)
class Kept:
    """The deletion could not be written, so the group lives on."""


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


@dataclass(frozen=True, slots=True)
class Assigned:
    """The leader's assignment was stored, or `error` says why it was not."""

    generation: int
    assignments: dict[str, bytes]
    error: ErrorCode = ErrorCode.none


@dataclass(frozen=True, slots=True)
class Returned:
    """The new id of a static member that came back was stored, or `error` says why it was not."""

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
    """The answer to the request `to`."""

    to: int
    error: ErrorCode = ErrorCode.none


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined(Reply):
    """The answer to a `Join`; only the leader gets the members: (id, instance id, subscription)."""

    member_id: str = NO_MEMBER
    generation: int = -1
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: tuple[tuple[str, str | None, bytes], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Synced(Reply):
    """The answer to a `Sync`."""

    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True)
class Store:
    """Write the group down; then tell it `then`, with an error if that failed."""

    snapshot: Snapshot
    then: Assigned | Returned | None = None


Event = Join | Sync | Heartbeat | Commit | Leave | Delete | Kept | Tick | Assigned | Returned
Instruction = Reply | Store
