"""Random lives of a group: consumers come, go, crash, change their minds, and the disk is slow or refuses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.log.errors import ErrorCode
from penstock.log.groups.classic.events import Commit, Heartbeat, Joined, Leave, Reply, Sync, Synced
from penstock.log.groups.classic.group import State
from tests.log.groups.group_driver import SESSION, Drill, join, subscription

TOPICS = [("trades",), ("quotes",), ("trades", "quotes")]
STARTS_ANEW = {ErrorCode.unknown_member_id, ErrorCode.illegal_generation, ErrorCode.inconsistent_group_protocol}


@dataclass
class Consumer:
    """A client as Kafka's protocol wants it: it waits for at most one join or sync at a time."""

    drill: Drill
    instance_id: str | None
    topics: tuple[str, ...]
    member_id: str = ""
    generation: int = -1
    assignment: bytes | None = None
    waits_for: int | None = None
    is_fenced: bool = False

    @property
    def is_stable(self) -> bool:
        return self.assignment is not None and self.waits_for is None

    def step(self) -> None:
        """React to the answer if there is one; join if there is nothing else to do."""
        if self.waits_for is not None:
            answer = self.drill.answers.get(self.waits_for)
            if answer is None:
                return
            self.waits_for = None
            self.react(answer)
        if self.waits_for is None and self.assignment is None and not self.is_fenced:
            self.rejoin()

    def rejoin(self) -> None:
        self.assignment = None
        protocols = (("range", subscription(*self.topics)), ("sticky", subscription(*self.topics)))
        self.waits_for = self.drill.send(join(self.member_id, instance_id=self.instance_id, protocols=protocols))

    def react(self, answer: Reply) -> None:
        if answer.error is ErrorCode.fenced_instance_id:
            self.is_fenced = True
        elif answer.error in STARTS_ANEW:
            self.member_id = "" if answer.error is ErrorCode.unknown_member_id else self.member_id
        elif isinstance(answer, Joined):
            self.member_id = answer.member_id or self.member_id
            if not answer.error:
                self.generation = answer.generation
                self.sync(answer)
        elif isinstance(answer, Synced) and not answer.error:
            self.assignment = answer.assignment

    def sync(self, joined: Joined) -> None:
        parts = {id: f"{joined.generation}".encode() for id, _, _ in joined.members}
        sync = Sync(generation=joined.generation, member_id=self.member_id, assignments=parts)
        self.waits_for = self.drill.send(sync)

    def say(self, kind: Any) -> None:
        """Heartbeat or commit, and join again if the answer says so."""
        if self.is_stable:
            event = kind(generation=self.generation, member_id=self.member_id, instance_id=self.instance_id)
            error = self.drill.error(event)
            if error:
                self.assignment = None
                self.react(Reply(0, error))


class Lives(RuleBasedStateMachine):
    """Everything that can happen to a group."""

    @initialize(initial_delay=st.sampled_from([0, 100]))
    def begin(self, initial_delay: int) -> None:
        self.drill = Drill(initial_delay=initial_delay)
        self.alive: list[Consumer] = []

    @rule(instance_id=st.sampled_from([None, None, "a", "b"]), topics=st.sampled_from(TOPICS))
    def start_consumer(self, instance_id: str | None, topics: tuple[str, ...]) -> None:
        self.alive.append(Consumer(self.drill, instance_id, topics))

    @precondition(lambda self: self.alive)
    @rule(data=st.data())
    def let_one_go_on(self, data: st.DataObject) -> None:
        data.draw(st.sampled_from(self.alive)).step()

    @precondition(lambda self: self.alive)
    @rule(data=st.data(), kind=st.sampled_from([Heartbeat, Commit]))
    def one_says_something(self, data: st.DataObject, kind: Any) -> None:
        data.draw(st.sampled_from(self.alive)).say(kind)

    @precondition(lambda self: self.alive)
    @rule(data=st.data())
    def crash(self, data: st.DataObject) -> None:
        self.alive.remove(data.draw(st.sampled_from(self.alive)))

    @precondition(lambda self: self.alive)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        consumer = data.draw(st.sampled_from(self.alive))
        self.alive.remove(consumer)
        self.drill.send(Leave(member_id=consumer.member_id, instance_id=consumer.instance_id))

    @precondition(lambda self: self.alive)
    @rule(data=st.data(), topics=st.sampled_from(TOPICS))
    def subscribe_anew(self, data: st.DataObject, topics: tuple[str, ...]) -> None:
        consumer = data.draw(st.sampled_from(self.alive))
        consumer.topics = topics
        if consumer.is_stable:
            consumer.rejoin()

    @rule(holds=st.booleans(), fails=st.sampled_from([ErrorCode.none, ErrorCode.coordinator_not_available]))
    def disk(self, holds: bool, fails: ErrorCode) -> None:
        self.drill.holds_stores, self.drill.fails_stores = holds, fails
        if not holds:
            self.drill.release()

    @rule(ms=st.integers(1, 3 * SESSION))
    def time_passes(self, ms: int) -> None:
        self.drill.pass_time(ms)

    @invariant()
    def those_whom_the_group_takes_for_stable_are_of_one_generation_and_assignment(self) -> None:
        group = self.drill.group
        members = [each for each in self.alive if each.is_stable and each.member_id in group.members]
        current = [each for each in members if each.generation == group.generation]
        assert group.state is not State.STABLE or len({each.member_id for each in current}) == len(current)
        assert all(each.generation <= group.generation for each in members)
        # A part that was given in another generation is never taken along, but by a static member that came back.
        fresh = [each for each in current if each.instance_id is None]
        assert all(each.assignment == f"{group.generation}".encode() for each in fresh)

    def teardown(self) -> None:
        """Whoever keeps talking ends in one stable generation, and nobody waits for ever."""
        if not hasattr(self, "drill"):
            return
        self.disk(False, ErrorCode.none)
        for _ in range(60):
            for consumer in self.alive:
                for _ in range(4):
                    consumer.step()
                consumer.say(Heartbeat)
            self.drill.pass_time(SESSION // 4)
        talking = [each for each in self.alive if not each.is_fenced]
        group = self.drill.group
        assert not self.drill.waiting()
        assert group.state is (State.STABLE if talking else State.EMPTY)
        assert {each.generation for each in talking} <= {group.generation}
        assert sorted(each.member_id for each in talking) == sorted(group.members)


Lives.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestLives = Lives.TestCase
