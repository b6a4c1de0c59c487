"""What the tests of topics share: a topic of their own on a running broker, filled and changed by plain clients."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

from confluent_kafka import Consumer, IsolationLevel, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic, OffsetSpec

from tests.waiting import wait_for

SECONDS = 30


@dataclass(frozen=True)
class Topic:
    """A topic on a broker."""

    bootstrap: str
    name: str

    @property
    def admin(self) -> AdminClient:
        return _admin(self.bootstrap)

    @property
    def partitions(self) -> list[int]:
        return list(self.admin.list_topics(self.name, timeout=SECONDS).topics[self.name].partitions)

    def create(self, partitions: int = 2, **config: str) -> Topic:
        # Tests write records of other times; a broker that looks for old ones every few minutes would take them.
        given = {"retention.ms": "-1"} | {key.replace("_", "."): value for key, value in config.items()}
        new = NewTopic(self.name, partitions, 1, config=given)
        _all(self.admin.create_topics([new]))
        until(lambda: self.name in self.admin.list_topics(timeout=SECONDS).topics)
        return self

    def delete(self) -> Topic:
        _all(self.admin.delete_topics([self.name]))
        until(lambda: self.name not in self.admin.list_topics(timeout=SECONDS).topics)
        return self

    def grow(self, partitions: int) -> None:
        _all(self.admin.create_partitions([NewPartitions(self.name, partitions)]))
        until(lambda: len(self.partitions) == partitions)

    def forget(self, partition: int, before: int) -> None:
        """Remove records as retention would."""
        _all(self.admin.delete_records([TopicPartition(self.name, partition, before)]))

    def end(self, partition: int = 0, isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED) -> int:
        place = TopicPartition(self.name, partition)
        asked = self.admin.list_offsets({place: OffsetSpec.latest()}, isolation_level=isolation)
        return next(iter(asked.values())).result(SECONDS).offset

    def settle(self, partition: int = 0) -> None:
        """Wait for the ends of transactions: Kafka writes them a moment after it said that it did."""
        until(lambda: self.end(partition, IsolationLevel.READ_COMMITTED) == self.end(partition))

    def produce(self, values: Iterable[Any], partition: int = 0, transaction: str = "", **more: Any) -> None:
        # Tests go by where batches end: what is sent together waits for the flush, however slow the machine is.
        config: dict[str, Any] = {"bootstrap.servers": self.bootstrap, "linger.ms": 10_000}
        producer = Producer(config | ({"transactional.id": f"{self.name}-{transaction}"} if transaction else {}))
        if transaction:
            producer.init_transactions(SECONDS)
            producer.begin_transaction()
        for value in values:
            producer.produce(self.name, value, partition=partition, **more)
        assert producer.flush(SECONDS) == 0
        if transaction:
            producer.abort_transaction(SECONDS) if transaction == "aborted" else producer.commit_transaction(SECONDS)
            self.settle(partition)

    def consume(self) -> list[Any]:
        """Return all records, partition by partition."""
        parts = self.partitions
        config = {"bootstrap.servers": self.bootstrap, "group.id": "test", "enable.partition.eof": True}
        # At the end of the topic a fetch would wait for more.
        config |= {"fetch.wait.max.ms": 10}
        consumer = Consumer(config | {"auto.offset.reset": "earliest", "enable.auto.commit": False})
        consumer.assign([TopicPartition(self.name, part, 0) for part in parts])
        found, open_parts = [], set(parts)
        while open_parts:
            message = consumer.poll(SECONDS)
            assert message is not None, f"{self.name}: no answer"
            if message.error():
                open_parts.discard(message.partition())
            else:
                found.append(message)
        consumer.close()
        return found

    def committed(self, group: str) -> dict[int, int]:
        """Return what a group has committed of this topic."""
        parts = self.partitions
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": group})
        found = consumer.committed([TopicPartition(self.name, part) for part in parts], SECONDS)
        consumer.close()
        return {place.partition: place.offset for place in found}


def fresh(bootstrap: str, prefix: str = "t") -> Topic:
    """Return a topic whose name nobody has used; it is not made yet."""
    return Topic(bootstrap, f"{prefix}-{uuid.uuid4().hex[:8]}")


def until(holds: Callable[[], bool]) -> None:
    """Wait until something holds."""
    wait_for(holds, seconds=SECONDS, poll=0.02)


@cache
def _admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


def _all(futures: dict[Any, Any]) -> None:
    for future in futures.values():
        future.result(SECONDS)
