"""Drives one consumer group by hand: keeps its topics and its clock, and plays clients that follow the protocol."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID, uuid5

from penstock.log.errors import ErrorCode, LogError
from penstock.log.groups.consumer.formats import Replay, changes
from penstock.log.groups.consumer.state import (
    NOTHING,
    Answer,
    ConsumerGroup,
    ConsumerSettings,
    Event,
    Heartbeat,
    Image,
    Partitions,
    Remove,
    Tick,
    TopicInfo,
)
from penstock.log.groups.consumer.state_machine import handle
from penstock.log.linear_regex import LinearRegex

SETTINGS = ConsumerSettings(session_timeout=45_000, heartbeat_interval=5_000)
REBALANCE = 60_000
_SPACE = UUID(int=7)


def topic_id(name: str, life: int = 0) -> UUID:
    """The id of a topic; one that is deleted and created again has another one."""
    return uuid5(_SPACE, f"{name} {life}")


def parts(name: str, *indexes: int) -> Partitions:
    return frozenset((topic_id(name), index) for index in indexes)


class Drill:
    """A group, its topics, and the records that it wrote."""

    def __init__(self, **topics: int) -> None:
        self.group = ConsumerGroup("readers")
        self.topics: dict[str, TopicInfo] = {name: TopicInfo(topic_id(name), count) for name, count in topics.items()}
        self.now = 1_000_000
        self.replay = Replay()
        self.lives = 0
        self._is_stored = False

    def image(self, *regexes: str) -> Image:
        wanted = {each.regex for each in self.group.members.values() if each.regex} | set(filter(None, regexes))
        resolved = {regex: frozenset(filter(LinearRegex(regex).matches, self.topics)) for regex in wanted}
        return Image(dict(self.topics), resolved, repr(self.topics))

    def feed(self, event: Event) -> Answer | None:
        before = self.group
        regex = event.regex if isinstance(event, Heartbeat) else None
        outcome = handle(before, event, self.now, self.image(regex or ""), SETTINGS)
        self.group = outcome.group
        self.group.check()
        assert self.group.epoch >= before.epoch
        assert self.group.target_epoch >= before.target_epoch
        for key, value in changes(before if self._is_stored else None, self.group).items():
            self.replay.follow(key, value)
        self._is_stored = True
        return outcome.answer

    def beat(self, member_id: str, epoch: int, **more: object) -> Answer:
        answer = self.feed(Heartbeat(member_id=member_id, epoch=epoch, **more))  # type: ignore[arg-type]
        assert answer is not None
        return answer

    def error(self, member_id: str, epoch: int, **more: object) -> ErrorCode:
        before = self.group
        try:
            self.beat(member_id, epoch, **more)
        except LogError as error:
            assert self.group is before
            return error.code
        return ErrorCode.none

    def join(self, member_id: str, *topics: str, **more: object) -> Client:
        client = Client(self, member_id, frozenset(topics), **more)  # type: ignore[arg-type]
        client.beat()
        return client

    def pass_time(self, ms: int) -> None:
        """Let time pass, ringing at every deadline on the way."""
        until = self.now + ms
        while (deadline := self.group.deadline()) is not None and deadline <= until:
            self.now = max(self.now, deadline)
            self.feed(Tick())
        self.now = until

    def settle(self, *clients: Client) -> None:
        """Let clients talk until nothing changes any more."""
        for _ in range(10):
            for client in clients:
                client.beat()
                client.revoke()

    def remove(self, **named: str) -> None:
        self.feed(Remove(**named))

    def stored(self) -> ConsumerGroup | None:
        """The group as a broker would find it after a restart."""
        return next(self.replay.groups(), None)


@dataclass
class Client:
    """A consumer as the protocol wants it: it consumes `owned`, and lets go before it confirms."""

    drill: Drill
    id: str
    topics: frozenset[str] | None
    instance_id: str | None = None
    regex: str | None = None
    assignor: str | None = None
    epoch: int = 0
    owned: Partitions = NOTHING
    wanted: Partitions = NOTHING
    error: ErrorCode = ErrorCode.none
    says_all: bool = True
    loses_answers: bool = field(default=False)

    def beat(self) -> None:
        """Send a heartbeat, and take in its answer unless it is lost."""
        said = (
            {"rebalance_timeout": REBALANCE, "topics": self.topics, "regex": self.regex, "assignor": self.assignor}
            if self.says_all or self.epoch == 0
            else {}
        )
        owned = NOTHING if self.epoch == 0 else self.owned
        try:
            answer = self.drill.beat(self.id, self.epoch, owned=owned, instance_id=self.instance_id, **said)
        except LogError as error:
            self.fenced(error.code)
            return
        self.says_all = self.loses_answers
        if not self.loses_answers:
            self.take(answer)

    def take(self, answer: Answer) -> None:
        assert answer.epoch >= self.epoch, "an epoch that goes back"
        self.error = ErrorCode.none
        self.epoch = answer.epoch
        if answer.assignment is not None:
            self.wanted = answer.assignment
            self.owned |= self.wanted  # what is new is free; what is gone has to be revoked first

    def revoke(self) -> None:
        """Commit, and stop consuming what was taken away; the next heartbeat says so."""
        self.owned &= self.wanted

    def fenced(self, code: ErrorCode) -> None:
        self.error = code
        self.epoch, self.owned, self.wanted, self.says_all = 0, NOTHING, NOTHING, True

    def subscribe(self, *topics: str) -> None:
        self.topics, self.says_all = frozenset(topics), True


def assigned(clients: Mapping[str, Client] | list[Client]) -> list[Partitions]:
    found = clients.values() if isinstance(clients, Mapping) else clients
    return [each.owned for each in found]
