"""Random lives of a consumer group: consumers come, go, crash, lose answers, change their minds, and topics change."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.log.errors import ErrorCode
from penstock.log.groups.consumer.state import LEFT, LEFT_FOR_A_WHILE, GroupState, TopicInfo
from tests.log.groups.consumer.group_driver import REBALANCE, SETTINGS, Client, Drill, topic_id

NAMES = ["trades", "quotes", "orders"]
TOPICS = st.frozensets(st.sampled_from(NAMES), max_size=3)
REGEXES = st.sampled_from([None, None, None, "t.*", ".*s"])
SESSION = SETTINGS.session_timeout


class Lives(RuleBasedStateMachine):
    """Everything that can happen to a consumer group."""

    @initialize(partitions=st.integers(1, 7))
    def begin(self, partitions: int) -> None:
        self.drill = Drill(trades=partitions, quotes=2)
        self.alive: list[Client] = []
        self.ids = 0
        self.epochs: dict[str, int] = {}

    @rule(
        topics=TOPICS,
        regex=REGEXES,
        instance_id=st.sampled_from([None, None, "a", "b"]),
        assignor=st.sampled_from([None, None, "range", "uniform"]),
    )
    def start_consumer(
        self, topics: frozenset[str], regex: str | None, instance_id: str | None, assignor: str | None
    ) -> None:
        self.ids += 1
        client = Client(self.drill, f"member-{self.ids}", topics, instance_id, regex, assignor)
        self.alive.append(client)
        client.beat()

    @precondition(lambda self: self.alive)
    @rule(data=st.data())
    def one_sends_a_heartbeat(self, data: st.DataObject) -> None:
        data.draw(st.sampled_from(self.alive)).beat()

    @precondition(lambda self: self.alive)
    @rule(data=st.data())
    def one_revokes(self, data: st.DataObject) -> None:
        data.draw(st.sampled_from(self.alive)).revoke()

    @precondition(lambda self: self.alive)
    @rule(data=st.data())
    def an_answer_is_lost(self, data: st.DataObject) -> None:
        client = data.draw(st.sampled_from(self.alive))
        client.loses_answers = True
        client.beat()
        client.loses_answers = False

    @precondition(lambda self: self.alive)
    @rule(data=st.data())
    def one_crashes(self, data: st.DataObject) -> None:
        self.alive.remove(data.draw(st.sampled_from(self.alive)))

    @precondition(lambda self: self.alive)
    @rule(data=st.data(), for_a_while=st.booleans())
    def one_leaves(self, data: st.DataObject, for_a_while: bool) -> None:
        client = data.draw(st.sampled_from(self.alive))
        self.alive.remove(client)
        epoch = LEFT_FOR_A_WHILE if for_a_while and client.instance_id else LEFT
        self.drill.error(client.id, epoch, instance_id=client.instance_id)

    @precondition(lambda self: self.alive)
    @rule(data=st.data(), topics=TOPICS)
    def one_subscribes_to_others(self, data: st.DataObject, topics: frozenset[str]) -> None:
        data.draw(st.sampled_from(self.alive)).subscribe(*topics)

    @rule(name=st.sampled_from(NAMES), more=st.integers(1, 3))
    def a_topic_grows(self, name: str, more: int) -> None:
        known = self.drill.topics.get(name, TopicInfo(topic_id(name, self.drill.lives), 0))
        self.drill.topics[name] = TopicInfo(known.id, known.partitions + more)

    @precondition(lambda self: self.drill.topics)
    @rule(data=st.data())
    def a_topic_is_deleted(self, data: st.DataObject) -> None:
        del self.drill.topics[data.draw(st.sampled_from(sorted(self.drill.topics)))]
        self.drill.lives += 1

    @rule(ms=st.integers(1, 2 * SESSION))
    def time_passes(self, ms: int) -> None:
        self.drill.pass_time(ms)

    @rule()
    def the_broker_restarts(self) -> None:
        stored = self.drill.stored()
        if stored is not None:
            now, members = self.drill.now, self.drill.group.members
            assert {id: (each.metadata, each.progress) for id, each in stored.members.items()} == {
                id: (each.metadata, each.progress) for id, each in members.items()
            }
            assert stored.target == dict(self.drill.group.target)
            assert (stored.epoch, stored.target_epoch) == (self.drill.group.epoch, self.drill.group.target_epoch)
            timed = {
                id: replace(each, expires=now + SESSION, revoke_by=now + REBALANCE if each.revoking else None)
                for id, each in stored.members.items()
            }
            self.drill.group = replace(stored, members=timed)

    @invariant()
    def no_partition_is_consumed_by_two_members_of_the_group(self) -> None:
        if not hasattr(self, "drill"):
            return
        members = self.drill.group.members
        # Someone whom the group has removed learns it with its next heartbeat; its commits are refused meanwhile.
        current = [each for each in self.alive if each.id in members and each.epoch > 0]
        consumed = [partition for each in current for partition in each.owned]
        assert len(consumed) == len(set(consumed))
        assert all(each.owned <= members[each.id].owned for each in current)

    @invariant()
    def epochs_only_rise(self) -> None:
        if not hasattr(self, "drill"):
            return
        for id, member in self.drill.group.members.items():
            if member.epoch >= 0:
                assert member.epoch >= self.epochs.get(id, 0)
                self.epochs[id] = member.epoch

    def teardown(self) -> None:
        """Whoever keeps talking ends in a stable group in which every partition is consumed by one of them."""
        if not hasattr(self, "drill"):
            return
        for _ in range(30):
            for client in self.alive:
                client.beat()
                client.revoke()
            self.drill.pass_time(SETTINGS.heartbeat_interval)
        group, image = self.drill.group, self.drill.image()
        # A second consumer with an instance id that is in use is never let in.
        talking = [each for each in self.alive if each.error is not ErrorCode.unreleased_instance_id]
        assert sorted(each.id for each in talking) == sorted(group.members)
        assert group.state is (GroupState.STABLE if talking else GroupState.EMPTY)
        wanted = {
            (self.drill.topics[name].id, index)
            for name in group.subscribed_topics(image)
            if name in self.drill.topics
            for index in range(self.drill.topics[name].partitions)
        }
        owned = [partition for each in talking for partition in each.owned]
        assert sorted(owned) == sorted(wanted)
        for client in talking:
            assert {topic for topic, _ in client.owned} <= group.members[client.id].subscribed_ids(image)
            assert client.epoch == group.epoch


Lives.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestLives = Lives.TestCase
