"""The ledger of a topic: which epoch each partition of a sink has reached, kept by the broker beside the records.

It is an offset of a consumer group, because that is what a transaction can write together with records: the group
bears the partition's name, and its offset of the topic is the number of the next epoch.
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

from penstock.connectors.cluster import Cluster
from penstock.connectors.connection import Connection
from penstock.connectors.kafka import SECONDS, failed
from penstock.errors import PenstockError, SinkFailed

_PAUSE = 0.02
_ANSWER_SECONDS = 2.0
# Each ledger is asked by a client of its own.
_MOST = 16
# While a broker starts or a transaction ends, answers say "ask again".
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
# An offset is committed by who may read the topic.
_DENIED = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
_LEDGER = ("read --group penstock. --prefixed", "write --transactional-id penstock. --prefixed")


@dataclass(frozen=True)
class Entry:
    """What the ledger says of one partition: its newest epoch, and into how many the sink's rows are cut.

    `bounds` identifies the input of the epoch.
    """

    epoch: int
    partitions: int
    bounds: str = ""


@dataclass(frozen=True)
class Place:
    """One partition of one sink: what it writes to, and the name of its producer and of its ledger's group."""

    connection: Connection
    topic: str
    name: str

    @classmethod
    def of(cls, connection: Connection, topic: str, lineage: str, sink: str, partition: int) -> Place:
        """Return the place of a sink's partition."""
        return cls(connection, topic, f"penstock.{lineage}.{sink}.{partition}")

    def read(self, consumer: Consumer) -> Entry | None:
        """Return the entry."""
        (found,) = self.patiently(lambda: _sound(_asked(consumer, self.topic)))
        if found.offset < 0:
            return None
        noted = json.loads(found.metadata)
        return Entry(found.offset - 1, noted["partitions"], noted.get("bounds", ""))

    def cut(self, partitions: int) -> int:
        """Return into how many partitions rows are cut; where the ledger does not say, it is told before any epoch."""
        # Not the stable entry: a transaction that a crash left open would be waited for.
        with self.consumer("read_uncommitted") as consumer:
            found = self.read(consumer)
            if found is not None:
                return found.partitions
            offsets = [self.offset(Entry(-1, partitions))]
            self.patiently(lambda: _sound(consumer.commit(offsets=offsets, asynchronous=False)))
        return partitions

    def consumer(self, isolation: str = "read_committed") -> AbstractContextManager[Consumer]:
        """Return a client of the group; the entry that it reads is one that no open transaction is about to change.

        Not librdkafka's admin client, which crashes where a broker is not the group's coordinator yet.
        """
        return closing(Consumer(self.connection.config(group_id=self.name, isolation_level=isolation)))

    def offset(self, entry: Entry) -> TopicPartition:
        """Return an entry as the offset that is committed for it."""
        noted = {"partitions": entry.partitions, "bounds": entry.bounds}
        return TopicPartition(self.topic, 0, entry.epoch + 1, json.dumps(noted))

    def patiently(self, call: Callable[[], Any]) -> Any:
        """Call a client until it has an answer or a lasting error."""
        deadline = time.monotonic() + SECONDS
        while True:
            try:
                return call()
            except KafkaException as error:
                said: KafkaError = error.args[0]
                if not (said.retriable() or said.code() in _SOON) or time.monotonic() > deadline:
                    raise self.failed(error) from error
                time.sleep(_PAUSE)

    def failed(self, error: KafkaException) -> PenstockError:
        """Return a client's error as the user should meet it."""
        if error.args[0].code() not in _DENIED:
            return failed(error, self.topic, self.connection, SinkFailed)
        who = self.connection.user or "ANONYMOUS"
        needed = (f"read --operation write --topic {self.topic}", *_LEDGER)
        grants = "".join(f"\n    penstock acl add User:{who} --operation {what}" for what in needed)
        message = f"{self.topic}: user '{who}' may not write it exactly once at {self.connection.servers}"
        hint = f'who may do everything runs:{grants}\n  or choose guarantee="at_least_once"'
        return SinkFailed(message, hint=hint)


def newest_epochs(places: Sequence[Place]) -> dict[int, str]:
    """Return the newest epochs of a sink's partitions, with their bounds."""
    with ThreadPoolExecutor(min(len(places), _MOST)) as pool:
        found = [entry for entry in pool.map(_entry, places) if entry is not None]
    return {entry.epoch: entry.bounds for entry in found if entry.epoch >= 0}


def has_epochs(cluster: Cluster, topic: str, sink: str) -> bool:
    """Say whether a sink of that name has written an epoch to the topic, in any lineage and query; some are asked."""
    name = re.compile(rf"penstock\.[^.]+\.{re.escape(sink)}(@[^.]+)?\.\d+")
    ledgers = (Place(cluster.connection, topic, group) for group in cluster.groups() if name.fullmatch(group))
    return any(_newest(place) >= 0 for place in islice(ledgers, _MOST))


def _newest(place: Place) -> int:
    found = _entry(place)
    return -1 if found is None else found.epoch


def _entry(place: Place) -> Entry | None:
    # Not the stable entry: a transaction that a crash left open would be waited for.
    with place.consumer("read_uncommitted") as consumer:
        return place.read(consumer)


def _asked(consumer: Consumer, topic: str) -> list[TopicPartition]:
    try:
        return consumer.committed([TopicPartition(topic, 0)], _ANSWER_SECONDS)
    except KafkaException:
        # It says no more than that there is no answer; why, is told to those who wait for records.
        told = consumer.poll(0)
        if told is not None and (error := told.error()) is not None and error.code() in _DENIED:
            raise KafkaException(error) from None
        raise


def _sound(found: list[TopicPartition]) -> list[TopicPartition]:
    for one in found:
        if one.error is not None:
            raise KafkaException(one.error)
    return found
