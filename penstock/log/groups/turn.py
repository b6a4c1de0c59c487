from __future__ import annotations

from dataclasses import dataclass, field

from penstock.log.errors import ErrorCode
from penstock.log.groups.events import Instruction, Joined, Synced
from penstock.log.groups.group import Group, Member, State


@dataclass(slots=True)
class Turn:
    """One event being handled: the group, the time, and the instructions so far."""

    group: Group
    now: int
    out: list[Instruction] = field(default_factory=list)

    def enter(self, state: State) -> None:
        """Go to a state, and remember when."""
        self.group.state, self.group.since = state, self.now

    def heard_of(self, member: Member) -> None:
        """Begin a member's session anew."""
        member.expires = self.now + member.session_timeout

    def joined(self, to: int, member: Member, *, skip_assignment: bool = False) -> Joined:
        """Return the answer that tells a member of the current generation, and its leader of everybody."""
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
        """Answer the join that a member waits for, if it does."""
        if member.joining is not None:
            self.out.append(Joined(member.joining, error, member_id=member.id))
            member.joining = None

    def refuse_sync(self, member: Member, error: ErrorCode) -> None:
        """Answer the sync that a member waits for, if it does."""
        if member.syncing is not None:
            self.out.append(Synced(member.syncing, error))
            member.syncing = None

    def answer_sync(self, to: int, member: Member) -> None:
        """Tell a member what it is to read."""
        group = self.group
        answer = Synced(to, protocol_type=group.protocol_type, protocol=group.protocol, assignment=member.assignment)
        self.out.append(answer)
