"""Promise: clients with `group.protocol=consumer` (KIP-848) share, hand over and commit as on Apache Kafka 4."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient, NewTopic

from tests.log.server import LogProcess

PARTITIONS = 4
PATIENCE = 30.0


class Reader:
    """A consumer, what it read, and which partitions it was given and had to give up."""

    def __init__(self, address: str, group: str, *topics: str, **more: object) -> None:
        config: dict[str, Any] = {
            "bootstrap.servers": address,
            "group.id": group,
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 50,
            "metadata.recovery.strategy": "none",
            "log_level": 0,
        }
        self.consumer = Consumer(config | {name.replace("_", "."): value for name, value in more.items()})
        self.given: list[set[int]] = []
        self.lost: list[set[int]] = []
        self.values: list[bytes] = []
        self.errors: list[KafkaError] = []
        self.consumer.subscribe(list(topics), on_assign=self._assigned, on_revoke=self._revoked)

    def _assigned(self, _: Consumer, places: list[Place]) -> None:
        if places:
            self.given.append({place.partition for place in places})

    def _revoked(self, _: Consumer, places: list[Place]) -> None:
        self.lost.append({place.partition for place in places})

    @property
    def places(self) -> set[tuple[str, int]]:
        return {(place.topic, place.partition) for place in self.consumer.assignment()}

    def poll(self) -> None:
        message = self.consumer.poll(0.02)
        if message is not None and message.error():
            self.errors.append(message.error())
        elif message is not None:
            self.values.append(message.value())


def poll_until(met: Callable[[], bool], *readers: Reader) -> None:
    deadline = time.monotonic() + PATIENCE
    while not met():
        assert time.monotonic() < deadline, [(each.places, each.errors) for each in readers]
        for reader in readers:
            reader.poll()


def shared(*readers: Reader) -> Callable[[], bool]:
    """Whether all of them together have everything once, and each a part."""

    def met() -> bool:
        found = [place for reader in readers for place in reader.places]
        return all(each.places for each in readers) and len(found) == len(set(found)) == PARTITIONS

    return met


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LogProcess]:
    quick = ("--group-consumer-heartbeat-interval", "300ms", "--group-consumer-session-timeout", "3s")
    with LogProcess(tmp_path_factory.mktemp("consumer-protocol"), *quick) as server:
        yield server
        assert server.faults == []


@pytest.fixture
def topic(log: LogProcess, request: pytest.FixtureRequest) -> str:
    name = request.node.name
    create(log, name)
    return str(name)


def create(log: LogProcess, name: str, partitions: int = PARTITIONS) -> None:
    admin = AdminClient({"bootstrap.servers": log.bootstrap})
    admin.create_topics([NewTopic(name, partitions)])[name].result(PATIENCE)


def produce(log: LogProcess, topic: str, count: int, start: int = 0) -> list[bytes]:
    producer = Producer({"bootstrap.servers": log.bootstrap, "partitioner": "murmur2"})
    values = [str(number).encode() for number in range(start, start + count)]
    for value in values:
        producer.produce(topic, value, key=value)
    assert producer.flush(PATIENCE) == 0
    return values


@contextmanager
def readers(log: LogProcess, topic: str, count: int, **more: object) -> Iterator[list[Reader]]:
    with ExitStack() as stack:
        made = []
        for _ in range(count):
            reader = Reader(log.bootstrap, topic, topic, **more)
            stack.callback(reader.consumer.close)
            made.append(reader)
        yield made


def test_consumers_share_and_the_second_takes_only_its_part_from_the_first(log: LogProcess, topic: str) -> None:
    sent = produce(log, topic, 200)
    with readers(log, topic, 1) as (first,):
        poll_until(lambda: len(first.values) == len(sent), first)
        first.consumer.commit(asynchronous=False)
        with readers(log, topic, 1) as (second,):
            poll_until(shared(first, second), first, second)
            assert sum(map(len, first.lost)) == PARTITIONS // 2, "it kept the others all the time"
            more = produce(log, topic, 200, start=200)
            poll_until(lambda: len(first.values) + len(second.values) == 400, first, second)
            assert sorted(first.values + second.values) == sorted(sent + more), "none twice, for offsets were committed"
        poll_until(lambda: len(first.places) == PARTITIONS, first)


KILLED = """
import sys
from confluent_kafka import Consumer
address, topic = sys.argv[1:]
consumer = Consumer({"bootstrap.servers": address, "group.id": topic, "group.protocol": "consumer"})
consumer.subscribe([topic], on_assign=lambda _, places: places and print(len(places), flush=True))
while True:
    consumer.poll(0.1)
"""


def test_the_others_take_over_from_a_consumer_that_was_killed(log: LogProcess, topic: str) -> None:
    with readers(log, topic, 1) as (first,):
        poll_until(lambda: len(first.places) == PARTITIONS, first)
        command = [sys.executable, "-c", KILLED, log.bootstrap, topic]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
            poll_until(lambda: len(first.places) == PARTITIONS // 2, first)
            assert other.stdout is not None
            assert other.stdout.readline() == "2\n"
            other.kill()
        poll_until(lambda: len(first.places) == PARTITIONS, first)


def test_a_static_member_that_restarts_gets_its_partitions_back_and_others_keep_theirs(
    log: LogProcess, topic: str
) -> None:
    with readers(log, topic, 1) as (first,):
        static = Reader(log.bootstrap, topic, topic, group_instance_id="one")
        poll_until(shared(first, static), first, static)
        mine, kept = static.places, len(first.given)
        static.consumer.close()
        static = Reader(log.bootstrap, topic, topic, group_instance_id="one")
        poll_until(lambda: static.places == mine, first, static)
        assert len(first.given) == kept
        second = Reader(log.bootstrap, topic, topic, group_instance_id="one")
        poll_until(lambda: bool(second.errors), first, static, second)
        assert second.errors[0].code() in (KafkaError.UNRELEASED_INSTANCE_ID, KafkaError._FATAL)
        for each in (second, static):
            each.consumer.close()


def test_a_subscription_by_pattern_takes_in_new_topics(log: LogProcess) -> None:
    create(log, "pattern-one", 1)
    reader = Reader(log.bootstrap, "by-pattern", "^pattern-.*")
    poll_until(lambda: reader.places == {("pattern-one", 0)}, reader)
    create(log, "pattern-two", 2)
    create(log, "other-one", 1)
    poll_until(lambda: len(reader.places) == 3, reader)
    assert {name for name, _ in reader.places} == {"pattern-one", "pattern-two"}
    reader.consumer.close()


def test_the_range_assignor_gives_the_same_partitions_of_two_topics(log: LogProcess) -> None:
    for name in ("range-a", "range-b"):
        create(log, name, 2)
    made = [Reader(log.bootstrap, "ranges", "range-a", "range-b", group_remote_assignor="range") for _ in range(2)]
    poll_until(lambda: [len(each.places) for each in made] == [2, 2], *made)
    assert all(len({index for _, index in each.places}) == 1 for each in made)
    for each in made:
        each.consumer.close()


def test_new_partitions_are_read_without_a_restart(log: LogProcess, topic: str) -> None:
    from confluent_kafka.admin import NewPartitions

    with readers(log, topic, 1) as (reader,):
        poll_until(lambda: len(reader.places) == PARTITIONS, reader)
        admin = AdminClient({"bootstrap.servers": log.bootstrap})
        admin.create_partitions([NewPartitions(topic, PARTITIONS + 2)])[topic].result(PATIENCE)
        poll_until(lambda: len(reader.places) == PARTITIONS + 2, reader)


def test_a_commit_of_an_assignment_that_is_gone_is_refused(log: LogProcess, topic: str) -> None:
    produce(log, topic, 10)
    reader = Reader(log.bootstrap, topic, topic)
    poll_until(lambda: len(reader.values) == 10, reader)
    admin = AdminClient({"bootstrap.servers": log.bootstrap})
    outside = Consumer({"bootstrap.servers": log.bootstrap, "group.id": topic, "log_level": 0})
    with pytest.raises(KafkaException) as caught:
        outside.commit(offsets=[Place(topic, 0, 1)], asynchronous=False)
    assert caught.value.args[0].code() == KafkaError.UNKNOWN_MEMBER_ID
    outside.close()
    described = admin.describe_consumer_groups([topic])[topic].result(PATIENCE)
    assert (described.type.name, described.state.name, described.partition_assignor) == (
        "CONSUMER",
        "STABLE",
        "uniform",
    )
    (member,) = described.members
    assert len(member.assignment.topic_partitions) == len(member.target_assignment.topic_partitions) == PARTITIONS
    with pytest.raises(KafkaException) as caught:
        admin.delete_consumer_groups([topic])[topic].result(PATIENCE)
    assert caught.value.args[0].code() == KafkaError.NON_EMPTY_GROUP
    reader.consumer.close()
    admin.delete_consumer_groups([topic])[topic].result(PATIENCE)


def test_an_application_moves_to_the_new_protocol_and_back_with_its_offsets(log: LogProcess, topic: str) -> None:
    sent = produce(log, topic, 50)
    seen: list[bytes] = []
    for protocol in ("classic", "consumer", "classic"):
        with readers(log, topic, 1, group_protocol=protocol) as (reader,):
            poll_until(lambda: len(reader.places) == PARTITIONS, reader)
            if protocol == "consumer":
                sent += produce(log, topic, 50, start=50)
                poll_until(lambda: len(reader.values) == 50, reader)
                reader.consumer.commit(asynchronous=False)
            elif not seen:
                poll_until(lambda: len(reader.values) == 50, reader)
                reader.consumer.commit(asynchronous=False)
            seen += reader.values
    assert sorted(seen) == sorted(sent)


def test_members_go_on_after_the_broker_was_killed(tmp_path: Path) -> None:
    quick = ("--group-consumer-heartbeat-interval", "300ms")
    with LogProcess(tmp_path, *quick) as log:
        create(log, "killed")
        with readers(log, "killed", 2) as (first, second):
            poll_until(shared(first, second), first, second)
            sent = produce(log, "killed", 100)
            poll_until(lambda: len(first.values) + len(second.values) == 100, first, second)
            for each in (first, second):
                each.consumer.commit(asynchronous=False)
            before = first.places, second.places, len(first.given), len(second.given)
            log.kill()
            log.start()
            sent += produce(log, "killed", 100, start=100)
            poll_until(lambda: len(first.values) + len(second.values) >= 200, first, second)
            assert (first.places, second.places, len(first.given), len(second.given)) == before
            assert sorted(first.values + second.values) == sorted(sent)
        assert log.faults == []
