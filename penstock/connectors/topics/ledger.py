"""The ledger of a topic sink: the newest epoch of each partition, stored by the broker next to the records.

It is an offset of a consumer group, because a transaction can commit that together with records: the group has the
partition's name, and its committed offset is the number of the next epoch.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from itertools import islice
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from penstock.connectors.topics.client_errors import SECONDS, translated
from penstock.connectors.topics.cluster import Cluster
from penstock.connectors.topics.connection import Connection
from penstock.errors import PenstockError, SinkFailed

_PAUSE = 0.02
_ANSWER_SECONDS = 2.0
# Each ledger is read by a client of its own.
_MOST = 16
# Errors that pass while a broker starts or a transaction ends.
_SOON = {
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.CONCURRENT_TRANSACTIONS,
    KafkaError.UNSTABLE_OFFSET_COMMIT,
    KafkaError._TIMED_OUT,
    KafkaError._TRANSPORT,
    KafkaError._WAIT_COORD,
}
# Committing an offset needs permission to read the topic.
_DENIED = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
_LEDGER = ("read --group penstock. --prefixed", "write --transactional-id penstock. --prefixed")


@dataclass(frozen=True)
class Entry:
    """The ledger's entry of one partition: its newest epoch, and how many partitions the sink has.

    `bounds` identifies the input of the epoch.
    """

    epoch: int
    partitions: int
    bounds: str = ""


@dataclass(frozen=True)
class SinkPartition:
    """One partition of one sink: the topic it writes to, and the name of its producer and of its ledger's group."""

    connection: Connection
    topic: str
    name: str

    @classmethod
    def of(cls, connection: Connection, topic: str, lineage: str, sink: str, partition: int) -> SinkPartition:
        """Return a partition of a sink."""
        return cls(connection, topic, f"penstock.{lineage}.{sink}.{partition}")

    def read(self, consumer: Consumer) -> Entry | None:
        """Return the ledger's entry."""
        (found,) = self.with_retries(lambda: _sound(_asked(consumer, self.topic)))
        if found.offset < 0:
            return None
        noted = json.loads(found.metadata)
        return Entry(found.offset - 1, noted["partitions"], noted.get("bounds", ""))

    def agreed_partitions(self, partitions: int) -> int:
        """Return how many partitions the sink has by its ledger; if it has no entry yet, write one before any epoch."""
        # Not the stable entry: that would wait for a transaction that a crash left open.
        with self.consumer("read_uncommitted") as consumer:
            found = self.read(consumer)
            if found is not None:
                return found.partitions
            offsets = [self.offset(Entry(-1, partitions))]
            self.with_retries(lambda: _sound(consumer.commit(offsets=offsets, asynchronous=False)))
        return partitions

    def consumer(self, isolation: str = "read_committed") -> AbstractContextManager[Consumer]:
        """Return a consumer of the group; at read_committed it waits for open transactions before it reads the entry.

        Not librdkafka's admin client, which crashes where a broker is not the group's coordinator yet.
        """
        return closing(Consumer(self.connection.config(group_id=self.name, isolation_level=isolation)))

    def offset(self, entry: Entry) -> TopicPartition:
        """Return an entry as the offset that is committed for it."""
        noted = {"partitions": entry.partitions, "bounds": entry.bounds}
        return TopicPartition(self.topic, 0, entry.epoch + 1, json.dumps(noted))

    def with_retries(self, call: Callable[[], Any]) -> Any:
        """Call a client, and retry on errors that pass."""
        deadline = time.monotonic() + SECONDS
        while True:
            try:
                return call()
            except KafkaException as error:
                said: KafkaError = error.args[0]
                if not (said.retriable() or said.code() in _SOON) or time.monotonic() > deadline:
                    raise self.translated(error) from error
                time.sleep(_PAUSE)

    def translated(self, error: KafkaException) -> PenstockError:
        """Return a client's error as a PenstockError."""
        if error.args[0].code() not in _DENIED:
            return translated(error, self.topic, self.connection, SinkFailed)
        who = self.connection.user or "ANONYMOUS"
        needed = (f"read --operation write --topic {self.topic}", *_LEDGER)
        grants = "".join(f"\n    penstock acl add User:{who} --operation {what}" for what in needed)
        message = f"{self.topic}: user '{who}' has no permission to write it exactly once at {self.connection.servers}"
        hint = f'an administrator can grant it:{grants}\n  or choose guarantee="at_least_once"'
        return SinkFailed(message, hint=hint)


def newest_epochs(targets: Sequence[SinkPartition]) -> dict[int, str]:
    """Return the newest epochs of a sink's partitions, with their bounds."""
    with ThreadPoolExecutor(min(len(targets), _MOST)) as pool:
        found = [entry for entry in pool.map(_entry, targets) if entry is not None]
    return {entry.epoch: entry.bounds for entry in found if entry.epoch >= 0}


def has_epochs(cluster: Cluster, topic: str, sink: str) -> bool:
    """Return whether a sink of that name has written to the topic, in any lineage and query; reads a few ledgers."""
    name = re.compile(rf"penstock\.[^.]+\.{re.escape(sink)}(@.+)?\.\d+")
    ledgers = (SinkPartition(cluster.connection, topic, group) for group in cluster.groups() if name.fullmatch(group))
    return any(_newest(target) >= 0 for target in islice(ledgers, _MOST))


def _newest(target: SinkPartition) -> int:
    found = _entry(target)
    return -1 if found is None else found.epoch


def _entry(target: SinkPartition) -> Entry | None:
    # Not the stable entry: that would wait for a transaction that a crash left open.
    with target.consumer("read_uncommitted") as consumer:
        return target.read(consumer)


def _asked(consumer: Consumer, topic: str) -> list[TopicPartition]:
    try:
        return consumer.committed([TopicPartition(topic, 0)], _ANSWER_SECONDS)
    except KafkaException:
        # This error only says that there is no answer; the reason comes as an event of the consumer.
        event = consumer.poll(0)
        if event is not None and (error := event.error()) is not None and error.code() in _DENIED:
            raise KafkaException(error) from None
        raise


def _sound(found: list[TopicPartition]) -> list[TopicPartition]:
    for one in found:
        if one.error is not None:
            raise KafkaException(one.error)
    return found
