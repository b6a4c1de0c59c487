"""Three client libraries that nobody here wrote, each with one way to send and one to read."""

from __future__ import annotations

import asyncio
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, NamedTuple

import aiokafka
import confluent_kafka

with warnings.catch_warnings():
    # It reads its own files in a way that Python 3.11 calls old.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka
    import kafka.admin

SECONDS = 30
# A reader that has all it wants ends only when its last fetch, which waits for more, has returned.
FETCH_WAIT_MS = 20
Headers = list[tuple[str, bytes | None]]


class Item(NamedTuple):
    """A record as every library knows it."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp: int


@dataclass(frozen=True)
class Library:
    """A library: `send(bootstrap, topic, items, codec, acks)`, `read(bootstrap, topic, count, group)`."""

    name: str
    codecs: Sequence[str]
    send: Callable[[str, str, Sequence[Item], str, int], None]
    read: Callable[[str, str, int, str | None], list[Item]]


def _send_confluent(bootstrap: str, topic: str, items: Sequence[Item], codec: str, acks: int) -> None:
    failures: list[Any] = []
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "acks": acks})
    for item in items:
        producer.produce(
            topic,
            item.value,
            item.key,
            partition=0,
            headers=item.headers,
            timestamp=item.timestamp,
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )
    assert producer.flush(SECONDS) == 0
    assert failures == []


def _read_confluent(bootstrap: str, topic: str, count: int, group: str | None) -> list[Item]:
    config: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "auto.offset.reset": "earliest",
        "group.id": group or "none",
    }
    config |= {"fetch.wait.max.ms": FETCH_WAIT_MS}
    found: list[Item] = []
    with closing(confluent_kafka.Consumer(config)) as consumer:
        if group is None:
            consumer.assign([confluent_kafka.TopicPartition(topic, 0, confluent_kafka.OFFSET_BEGINNING)])
        else:
            consumer.subscribe([topic])
        deadline = time.monotonic() + SECONDS
        while len(found) < count and time.monotonic() < deadline:
            for message in consumer.consume(count - len(found), 1.0):
                assert message.error() is None, message.error()
                found.append(Item(message.key(), message.value(), message.headers() or [], message.timestamp()[1]))
        if group is not None:
            consumer.commit(asynchronous=False)
    return found


def _send_aiokafka(bootstrap: str, topic: str, items: Sequence[Item], codec: str, acks: int) -> None:
    async def send() -> None:
        packed = None if codec == "none" else codec
        async with aiokafka.AIOKafkaProducer(
            bootstrap_servers=bootstrap, compression_type=packed, acks=acks
        ) as producer:
            for item in items:
                await producer.send(
                    topic, item.value, item.key, partition=0, timestamp_ms=item.timestamp, headers=item.headers
                )
            await producer.flush()

    asyncio.run(send())


def _read_aiokafka(bootstrap: str, topic: str, count: int, group: str | None) -> list[Item]:
    async def read() -> list[Item]:
        found: list[Item] = []
        consumer = aiokafka.AIOKafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            fetch_max_wait_ms=FETCH_WAIT_MS,
        )
        async with asyncio.timeout(SECONDS), consumer:
            while len(found) < count:
                one = await consumer.getone()
                found.append(Item(one.key, one.value, list(one.headers), one.timestamp))
            if group is not None:
                await consumer.commit()
        return found

    return asyncio.run(read())


def _send_kafka_python(bootstrap: str, topic: str, items: Sequence[Item], codec: str, acks: int) -> None:
    idempotent = {} if acks == -1 else {"enable_idempotence": False}
    packed = None if codec == "none" else codec
    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap, compression_type=packed, acks=acks, **idempotent)
    with closing(producer):
        sent = [
            producer.send(topic, item.value, item.key, item.headers, partition=0, timestamp_ms=item.timestamp)
            for item in items
        ]
        for one in sent:
            one.get(SECONDS)


def _read_kafka_python(bootstrap: str, topic: str, count: int, group: str | None) -> list[Item]:
    found: list[Item] = []
    consumer = kafka.KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        fetch_max_wait_ms=FETCH_WAIT_MS,
    )
    with closing(consumer):
        deadline = time.monotonic() + SECONDS
        while len(found) < count and time.monotonic() < deadline:
            for records in consumer.poll(1000).values():
                found += [Item(one.key, one.value, list(one.headers), one.timestamp) for one in records]
        if group is not None:
            consumer.commit()
    return found


ALL = ("none", "gzip", "snappy", "lz4", "zstd")
CONFLUENT = Library("confluent-kafka", ALL, _send_confluent, _read_confluent)
AIOKAFKA = Library("aiokafka", ALL, _send_aiokafka, _read_aiokafka)
# The other codecs are extras of it that are not installed here.
KAFKA_PYTHON = Library("kafka-python", ("none", "gzip"), _send_kafka_python, _read_kafka_python)
LIBRARIES = (CONFLUENT, AIOKAFKA, KAFKA_PYTHON)
