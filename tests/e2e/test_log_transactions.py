"""Transactions through clients that nobody here wrote, on this log and on Apache Kafka."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient, NewTopic

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # kafka-python reads its schemas by a deprecated function
    from kafka import KafkaProducer

PATIENCE = 30.0


def new_topic(broker: str, name: str) -> str:
    topic = f"{name}-{uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": broker})
    admin.create_topics([NewTopic(topic, 2)])[topic].result(PATIENCE)
    return topic


def transactional(broker: str, transactional_id: str, **more: object) -> Producer:
    config = {"bootstrap.servers": broker, "transactional.id": transactional_id, "log_level": 0, **more}
    producer = Producer(config)
    producer.init_transactions(PATIENCE)
    return producer


@contextmanager
def reader(broker: str, group: str | None = None, isolation: str = "read_committed") -> Iterator[Consumer]:
    consumer = Consumer(
        {
            "bootstrap.servers": broker,
            "group.id": group or uuid4().hex,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
            "fetch.wait.max.ms": 10,
            "log_level": 0,
        }
    )
    try:
        yield consumer
    finally:
        consumer.close()


def values(broker: str, topic: str, isolation: str = "read_committed") -> list[str]:
    """All that a reader sees now, up to the end of both partitions."""
    found: list[str] = []
    ended: set[int] = set()
    with reader(broker, isolation=isolation) as consumer:
        consumer.assign([Place(topic, 0, 0), Place(topic, 1, 0)])
        while len(ended) < 2:
            message = consumer.poll(PATIENCE)
            assert message is not None, "the reader came to no end"
            error = message.error()
            if error is not None and error.code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition())
            else:
                assert error is None, error
                found.append((message.value() or b"").decode())
    return sorted(found)


def test_a_transaction_moves_records_over_topics_together_with_the_offsets_of_the_group(broker: str) -> None:
    source, target, audit = (new_topic(broker, name) for name in ("source", "target", "audit"))
    feeder = Producer({"bootstrap.servers": broker, "log_level": 0})
    for number in range(10):
        feeder.produce(source, str(number), partition=number % 2)
    assert feeder.flush(PATIENCE) == 0
    group = f"movers-{uuid4().hex[:8]}"
    producer = transactional(broker, group)
    with reader(broker, group) as consumer:
        consumer.subscribe([source])
        moved = 0
        while moved < 10:
            message = consumer.poll(PATIENCE)
            assert message is not None
            if message.error() is None:
                producer.begin_transaction()
                producer.produce(target, message.value())
                producer.produce(audit, message.value())
                position = consumer.position(consumer.assignment())
                producer.send_offsets_to_transaction(position, consumer.consumer_group_metadata(), PATIENCE)
                producer.commit_transaction(PATIENCE)
                moved += 1
        committed = consumer.committed([Place(source, 0), Place(source, 1)], PATIENCE)
    assert [place.offset for place in committed] == [5, 5]
    assert values(broker, target) == values(broker, audit) == [str(number) for number in range(10)]


def test_an_abort_is_seen_by_readers_of_everything_and_by_no_other(broker: str) -> None:
    topic = new_topic(broker, "aborted")
    producer = transactional(broker, topic)
    for commit in (True, False, True):
        producer.begin_transaction()
        for partition in (0, 1):
            producer.produce(topic, f"{commit}", partition=partition)
        producer.flush(PATIENCE)
        producer.commit_transaction(PATIENCE) if commit else producer.abort_transaction(PATIENCE)
    assert values(broker, topic) == ["True"] * 4
    assert values(broker, topic, "read_uncommitted") == ["False"] * 2 + ["True"] * 4


def test_aborted_offsets_are_not_committed(broker: str) -> None:
    topic = new_topic(broker, "offsets")
    producer = transactional(broker, topic)
    with reader(broker, group=topic) as consumer:
        for offset, commit in ((3, True), (9, False)):
            producer.begin_transaction()
            producer.produce(topic, "x", partition=0)
            producer.send_offsets_to_transaction(
                [Place(topic, 0, offset)], consumer.consumer_group_metadata(), PATIENCE
            )
            producer.commit_transaction(PATIENCE) if commit else producer.abort_transaction(PATIENCE)
        assert consumer.committed([Place(topic, 0)], PATIENCE)[0].offset == 3


def test_a_second_producer_with_the_same_id_fences_the_first(broker: str) -> None:
    topic = new_topic(broker, "fenced")
    first = transactional(broker, topic)
    first.begin_transaction()
    first.produce(topic, "of the first", partition=0)
    first.flush(PATIENCE)
    second = transactional(broker, topic)
    second.begin_transaction()
    second.produce(topic, "of the second", partition=0)
    second.commit_transaction(PATIENCE)
    with pytest.raises(KafkaException) as refused:
        first.commit_transaction(PATIENCE)
    assert refused.value.args[0].fatal()
    assert values(broker, topic) == ["of the second"]


def test_a_transaction_that_takes_too_long_is_aborted_and_holds_no_reader_up(event_log: str) -> None:
    topic = new_topic(event_log, "slow")
    slow = transactional(event_log, topic, **{"transaction.timeout.ms": 1000})
    slow.begin_transaction()
    slow.produce(topic, "too late", partition=0)
    slow.flush(PATIENCE)
    plain = Producer({"bootstrap.servers": event_log, "log_level": 0})
    plain.produce(topic, "behind it", partition=0)
    plain.flush(PATIENCE)
    with reader(event_log) as consumer:
        consumer.assign([Place(topic, 0, 0)])
        assert next_value(consumer) == "behind it"
    with pytest.raises(KafkaException):
        slow.commit_transaction(PATIENCE)


def next_value(consumer: Consumer) -> str:
    while True:
        message = consumer.poll(PATIENCE)
        assert message is not None, "no record came"
        if message.error() is None:
            return (message.value() or b"").decode()


def test_aiokafka_commits_and_aborts(broker: str) -> None:
    topic = new_topic(broker, "aio")

    async def transact() -> list[str]:
        producer = AIOKafkaProducer(bootstrap_servers=broker, transactional_id=topic)
        await producer.start()
        try:
            async with producer.transaction():
                await producer.send_and_wait(topic, b"committed", partition=0)
                await producer.send_offsets_to_transaction({TopicPartition(topic, 1): 5}, topic)
            await producer.begin_transaction()
            await producer.send_and_wait(topic, b"aborted", partition=0)
            await producer.abort_transaction()
        finally:
            await producer.stop()
        return await read()

    async def read() -> list[str]:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=broker, group_id=topic, isolation_level="read_committed", enable_auto_commit=False
        )
        await consumer.start()
        try:
            place = TopicPartition(topic, 0)
            consumer.assign([place, TopicPartition(topic, 1)])
            assert await consumer.committed(TopicPartition(topic, 1)) == 5
            await consumer.seek_to_beginning(place)
            record = await asyncio.wait_for(consumer.getone(place), PATIENCE)
            return [record.value.decode()]
        finally:
            await consumer.stop()

    assert asyncio.run(transact()) == ["committed"]
    assert values(broker, topic) == ["committed"]


def test_kafka_python_commits_and_aborts(broker: str) -> None:
    topic = new_topic(broker, "python")
    producer = KafkaProducer(bootstrap_servers=broker, transactional_id=topic)
    try:
        producer.init_transactions()
        for value, end in (("committed", producer.commit_transaction), ("aborted", producer.abort_transaction)):
            producer.begin_transaction()
            producer.send(topic, value.encode(), partition=0).get(PATIENCE)
            end()
    finally:
        producer.close()
    assert values(broker, topic) == ["committed"]
    assert values(broker, topic, "read_uncommitted") == ["aborted", "committed"]
