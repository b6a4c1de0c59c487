"""Drives one group by hand: numbers the requests, keeps their answers, and stores at once unless told otherwise."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import Any

from penstock.log.errors import ErrorCode
from penstock.log.groups.classic.events import Event, Heartbeat, Join, Joined, Reply, Sync, Synced, Tick
from penstock.log.groups.classic.events import Store as StoreGroup
from penstock.log.groups.classic.group import Group
from penstock.log.groups.classic.state_machine import handle

SESSION, REBALANCE = 10_000, 60_000


def subscription(*topics: str, version: int = 0) -> bytes:
    """Consumer metadata as clients send it, without what sticky assignors add."""
    names = b"".join(len(topic).to_bytes(2) + topic.encode() for topic in topics)
    return version.to_bytes(2) + len(topics).to_bytes(4) + names + b"\xff\xff\xff\xff"


class Drill:
    """A group, its clock, and the answers that it gave; no number may be answered twice."""

    def __init__(self, group: Group | None = None, *, initial_delay: int = 0) -> None:
        self.group = group or Group("readers", initial_delay)
        self.now = 1_000_000
        self.stored: list[StoreGroup] = []
        self.held: list[StoreGroup] = []
        self.holds_stores = False
        self.fails_stores = ErrorCode.none
        self.answers: dict[int, Reply] = {}
        self.asked: set[int] = set()
        self._numbers = count(1)

    def send(self, event: Any) -> int:
        number = next(self._numbers)
        self.asked.add(number)
        self.feed(replace(event, to=number))
        return number

    def feed(self, event: Event) -> None:
        for instruction in handle(self.group, event, self.now):
            if isinstance(instruction, StoreGroup):
                self.stored.append(instruction)
                self.held.append(instruction)
            else:
                assert instruction.to in self.asked, "an answer that nobody waits for"
                assert instruction.to not in self.answers, "a second answer"
                self.answers[instruction.to] = instruction
        self.group.check()
        if not self.holds_stores:
            self.release()

    def release(self) -> None:
        held, self.held = self.held, []
        for store in held:
            if store.then is not None:
                self.feed(replace(store.then, error=self.fails_stores))

    def pass_time(self, ms: int) -> None:
        """Let time pass, ringing at every deadline on the way."""
        until = self.now + ms
        while (deadline := self.group.deadline()) is not None and deadline <= until:
            self.now = max(self.now, deadline)
            self.feed(Tick())
        self.now = until

    def waiting(self) -> set[int]:
        return self.asked - self.answers.keys()

    def error(self, event: Any) -> ErrorCode:
        return self.answers[self.send(event)].error

    def join(self, member_id: str = "", **more: Any) -> int:
        """Ask to join; a new member asks twice, the second time with the id that it was given."""
        number = self.send(join(member_id, **more))
        answer = self.answers.get(number)
        if answer is not None and answer.error is ErrorCode.member_id_required:
            assert isinstance(answer, Joined)
            return self.send(join(answer.member_id, **more))
        return number

    def joined(self, number: int) -> Joined:
        answer = self.answers[number]
        assert isinstance(answer, Joined)
        assert answer.error is ErrorCode.none, answer
        return answer

    def sync(self, joined: Joined, **more: Any) -> int:
        everybody = {id: f"part of {id}".encode() for id, _, _ in joined.members}
        sync = Sync(generation=joined.generation, member_id=joined.member_id, assignments=everybody)
        return self.send(replace(sync, **more))

    def synced(self, number: int) -> Synced:
        answer = self.answers[number]
        assert isinstance(answer, Synced)
        assert answer.error is ErrorCode.none, answer
        return answer

    def settle(self, *numbers: int) -> list[Joined]:
        """Finish a rebalance for members whose joins were answered."""
        members = [self.joined(number) for number in numbers]
        for member in members:
            self.sync(member)
        return members

    def first_members(self, count: int, **more: Any) -> list[Joined]:
        """Return the members of a stable first generation."""
        numbers = [self.join(**more) for _ in range(count)]
        self.pass_time(self.group.initial_delay)
        return self.settle(*numbers)


_IDS = count(1)


def join(member_id: str = "", **more: Any) -> Join:
    defaults: dict[str, Any] = {
        "session_timeout": SESSION,
        "rebalance_timeout": REBALANCE,
        "protocol_type": "consumer",
        "protocols": (("range", subscription("trades")),),
        "new_id": f"member-{next(_IDS)}",
    }
    return Join(**(defaults | {"member_id": member_id} | more))


def heartbeat(member: Joined) -> Heartbeat:
    return Heartbeat(generation=member.generation, member_id=member.member_id)
