"""Consumer groups through clients that nobody here wrote; what librdkafka sees is the same on Apache Kafka."""

from __future__ import annotations

import asyncio
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from uuid import uuid4

import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.log.groups.formats import GroupKey, OffsetKey, decode_group, decode_key, encode_group
from tests.log.server import LogProcess

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # kafka-python reads its schemas by a deprecated function
    from kafka import KafkaConsumer

PARTITIONS = 4
PATIENCE = 30.0


class Reader:
    """A librdkafka consumer and how often it was given partitions or lost some."""

    def __init__(self, address: str, group: str, topic: str, **more: object) -> None:
        config = {
            "bootstrap.servers": address,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "heartbeat.interval.ms": 200,
            "session.timeout.ms": 10_000,
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 50,
            "log_level": 0,
        }
        self.consumer = Consumer(config | {name.replace("_", "."): value for name, value in more.items()})
        self.assigned = self.revoked = 0
        self.values: list[bytes] = []
        self.errors: list[KafkaError] = []
        self.consumer.subscribe([topic], on_assign=self._assigned, on_revoke=self._revoked)

    def _assigned(self, _: Consumer, places: list[Place]) -> None:
        self.assigned += bool(places)

    def _revoked(self, _: Consumer, __: list[Place]) -> None:
        self.revoked += 1

    @property
    def partitions(self) -> set[int]:
        return {place.partition for place in self.consumer.assignment()}

    def poll(self) -> None:
        message = self.consumer.poll(0.02)
        if message is not None and message.error():
            self.errors.append(message.error())
        elif message is not None:
            self.values.append(message.value())


def poll_until(met: Callable[[], bool], *readers: Reader) -> None:
    deadline = time.monotonic() + PATIENCE
    while not met():
        assert time.monotonic() < deadline, [(each.partitions, each.errors) for each in readers]
        for reader in readers:
            reader.poll()


def shared(*readers: Reader) -> Callable[[], bool]:
    """Whether each has a part, and all of them together everything once."""

    def met() -> bool:
        parts = [reader.partitions for reader in readers]
        return all(parts) and sorted(each for part in parts for each in part) == list(range(PARTITIONS))

    return met


@contextmanager
def closing(*readers: Reader) -> Iterator[None]:
    with ExitStack() as stack:
        for reader in readers:
            stack.callback(reader.consumer.close)
        yield


def new_topic(address: str) -> str:
    topic = f"topic-{uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(topic, PARTITIONS)])[topic].result(PATIENCE)
    return topic


def new_group() -> str:
    return f"group-{uuid4().hex[:8]}"


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_partitions_move_when_a_second_consumer_comes_and_goes(broker: str, strategy: str) -> None:
    topic, group, how = new_topic(broker), new_group(), {"partition_assignment_strategy": strategy}
    first = Reader(broker, group, topic, **how)
    with closing(first):
        poll_until(shared(first), first)
        second = Reader(broker, group, topic, **how)
        with closing(second):
            poll_until(shared(first, second), first, second)
        poll_until(shared(first), first)


def test_a_static_member_that_restarts_gets_its_partitions_back_and_nobody_else_notices(broker: str) -> None:
    topic, group = new_topic(broker), new_group()
    stays = Reader(broker, group, topic, group_instance_id="a")
    with closing(stays):
        restarts = Reader(broker, group, topic, group_instance_id="b")
        with closing(restarts):
            poll_until(shared(stays, restarts), stays, restarts)
            before, changes = restarts.partitions, (stays.assigned, stays.revoked)
        back = Reader(broker, group, topic, group_instance_id="b")
        with closing(back):
            poll_until(shared(stays, back), stays, back)
            assert back.partitions == before
            assert (stays.assigned, stays.revoked) == changes


def test_the_older_of_two_consumers_with_one_instance_id_is_fenced(broker: str) -> None:
    topic, group = new_topic(broker), new_group()
    older = Reader(broker, group, topic, group_instance_id="a")
    poll_until(shared(older), older)
    newer = Reader(broker, group, topic, group_instance_id="a")
    with closing(newer):
        poll_until(lambda: bool(older.errors), older, newer)
        assert older.errors[0].code() == KafkaError._FATAL
        assert "fenced" in older.errors[0].str()
        older.consumer.close()
        poll_until(shared(newer), newer)


def test_tools_see_the_group_its_members_and_its_offsets(broker: str) -> None:
    topic, group, admin = new_topic(broker), new_group(), AdminClient({"bootstrap.servers": broker})
    reader = Reader(broker, group, topic, client_id="accountant")
    with closing(reader):
        poll_until(shared(reader), reader)
        reader.consumer.commit(offsets=[Place(topic, 1, 7, "by hand")], asynchronous=False)
        described = admin.describe_consumer_groups([group])[group].result(PATIENCE)
        assert (described.state.name, described.partition_assignor) == ("STABLE", "range")
        (member,) = described.members
        assert (member.client_id, len(member.assignment.topic_partitions)) == ("accountant", PARTITIONS)
        assert _refusal(admin.delete_consumer_groups([group])[group]) == KafkaError.NON_EMPTY_GROUP
    listed = admin.list_consumer_groups().result(PATIENCE).valid
    assert [each.state.name for each in listed if each.group_id == group] == ["EMPTY"]
    (offsets,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    (place,) = offsets.result(PATIENCE).topic_partitions
    assert (place.partition, place.offset, place.metadata) == (1, 7, "by hand")
    admin.delete_consumer_groups([group])[group].result(PATIENCE)
    assert _refusal(admin.delete_consumer_groups([group])[group]) == KafkaError.GROUP_ID_NOT_FOUND


def test_groups_and_offsets_are_kept_in_kafkas_own_bytes(broker: str) -> None:
    topic, group = new_topic(broker), new_group()
    reader = Reader(broker, group, topic, group_instance_id="a")
    with closing(reader):
        poll_until(shared(reader), reader)
        reader.consumer.commit(offsets=[Place(topic, 1, 7, "by hand")], asynchronous=False)
    kept = {key: value for key, value in journal(broker).items() if key.group == group}
    assert kept.keys() == {GroupKey(group), OffsetKey(group, topic, 1)}
    members = decode_group(kept[GroupKey(group)]).members
    assert [(member.instance_id, member.client_host) for member in members] == [("a", "/127.0.0.1")]
    assert encode_group(decode_group(kept[GroupKey(group)])) == kept[GroupKey(group)]


def journal(address: str) -> dict[GroupKey | OffsetKey, bytes]:
    """Read `__consumer_offsets` as a tool would: the last value of each key."""
    found, name = {}, "__consumer_offsets"
    reader = Consumer({"bootstrap.servers": address, "group.id": "none", "enable.partition.eof": True})
    try:
        ends = set(reader.list_topics(name, PATIENCE).topics[name].partitions)
        reader.assign([Place(name, partition, 0) for partition in ends])
        while ends:
            message = reader.poll(PATIENCE)
            if message.error():
                ends.discard(message.partition())
            elif (key := decode_key(message.key())) is not None:
                found[key] = message.value()
    finally:
        reader.close()
    return {key: value for key, value in found.items() if value is not None}


def _refusal(future: object) -> int:
    with pytest.raises(KafkaException) as caught:
        future.result(PATIENCE)  # type: ignore[attr-defined]
    return int(caught.value.args[0].code())


def test_aiokafka_consumers_share_the_partitions_and_take_over(event_log: str) -> None:
    topic, group = new_topic(event_log), new_group()

    def consumer() -> AIOKafkaConsumer:
        return AIOKafkaConsumer(topic, bootstrap_servers=event_log, group_id=group, heartbeat_interval_ms=200)

    async def until(first: AIOKafkaConsumer, second: AIOKafkaConsumer | None, sizes: tuple[int, ...]) -> None:
        each = [one for one in (first, second) if one]
        while tuple(len(one.assignment()) for one in each) != sizes:
            await asyncio.gather(*(one.getmany(timeout_ms=50) for one in each))

    async def scenario() -> None:
        async with consumer() as first:
            await until(first, None, (4,))
            async with consumer() as second:
                await until(first, second, (2, 2))
            await until(first, None, (4,))

    asyncio.run(asyncio.wait_for(scenario(), PATIENCE))


def test_kafka_python_consumers_share_the_partitions_and_take_over(event_log: str) -> None:
    topic, group = new_topic(event_log), new_group()

    def consumer() -> KafkaConsumer:
        return KafkaConsumer(topic, bootstrap_servers=event_log, group_id=group, heartbeat_interval_ms=200)

    def until(sizes: list[int], *consumers: KafkaConsumer) -> None:
        deadline = time.monotonic() + PATIENCE
        while [len(each.assignment()) for each in consumers] != sizes:
            assert time.monotonic() < deadline
            for each in consumers:
                each.poll(timeout_ms=50)

    first = consumer()
    try:
        until([4], first)
        second = consumer()
        try:
            until([2, 2], first, second)
        finally:
            second.close()
        until([4], first)
    finally:
        first.close()


@pytest.mark.parametrize("end", [pytest.param(LogProcess.stop, marks=pytest.mark.slow), LogProcess.kill])
def test_a_group_goes_on_where_it_was_when_the_broker_restarts(
    tmp_path: Path, end: Callable[[LogProcess], object]
) -> None:
    with LogProcess(tmp_path) as log:
        topic, group = new_topic(log.bootstrap), new_group()
        reader = Reader(log.bootstrap, group, topic)
        with closing(reader):
            write(log.bootstrap, topic, b"before")
            poll_until(lambda: reader.values == [b"before"], reader)
            reader.consumer.commit(asynchronous=False)
            end(log)
            log.start()
            write(log.bootstrap, topic, b"after")
            poll_until(lambda: reader.values == [b"before", b"after"], reader)
            assert (reader.assigned, reader.revoked) == (1, 0), "the member was known, and nobody had to join again"
            reader.consumer.commit(asynchronous=False)
        end(log)
        log.start()
        assert committed(log.bootstrap, group, topic) == 2
    assert log.faults == []


def write(address: str, topic: str, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": address, "log_level": 0})
    producer.produce(topic, value, partition=0)
    assert producer.flush(PATIENCE) == 0


def committed(address: str, group: str, topic: str) -> int:
    reader = Consumer({"bootstrap.servers": address, "group.id": group})
    try:
        (place,) = reader.committed([Place(topic, 0)], timeout=PATIENCE)
        return int(place.offset)
    finally:
        reader.close()
