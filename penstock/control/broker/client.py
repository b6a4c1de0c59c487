"""Admin requests to the log, with librdkafka (loaded with this module)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Literal, TypeVar

from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ClusterMetadata, OffsetSpec, TopicMetadata

from penstock.connectors.topics.client_errors import translated
from penstock.connectors.topics.connection import Connection
from penstock.errors import BrokerRefused, NoBroker, UnknownTopic, choices

T = TypeVar("T")
SECONDS = 5.0
_MOST_NAMES = 20


class KafkaClient:
    """The admin client, and what topics there are."""

    patience = {"request_timeout": SECONDS}

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.admin = AdminClient(self.config())

    def config(self, **more: Any) -> dict[str, Any]:
        """Return the configuration of a client; underscores in names become dots."""
        return {**self.connection.config(), **{name.replace("_", "."): value for name, value in more.items()}}

    def metadata(self) -> Mapping[str, TopicMetadata]:
        """Return all topics; fail within a few seconds if no broker answers."""
        return self.cluster().topics

    def cluster(self) -> ClusterMetadata:
        """Return all topics and brokers."""
        with self.translated("the log"):
            return self.admin.list_topics(timeout=SECONDS)

    def about(self, topic: str) -> TopicMetadata:
        """Return the metadata of a topic."""
        topics = self.metadata()
        if topic in topics:
            return topics[topic]
        message = f"there is no topic '{topic}' at {self.connection.servers}"
        names = [name for name in sorted(topics) if not name.startswith("__")]
        raise UnknownTopic(message, hint=choices("topics there", _near(names, topic), topic))

    def partitions(self, topic: str, wanted: int | None = None) -> list[int]:
        """Return the partitions of a topic, or only the wanted one."""
        known = sorted(self.about(topic).partitions)
        if wanted is None:
            return known
        if wanted not in known:
            message = f"topic '{topic}' has no partition {wanted}"
            raise UnknownTopic(message, hint=f"it has partitions 0 to {len(known) - 1}")
        return [wanted]

    def offsets(
        self, partitions: Collection[tuple[str, int]], at: Literal["beginning", "end"] | datetime
    ) -> dict[tuple[str, int], int]:
        """Return an offset of each partition: the first, the end, or that of a time; -1 if there is none."""
        if not partitions:
            return {}
        request = {TopicPartition(*each): _spec(at) for each in partitions}
        with self.translated("the log"):
            level = IsolationLevel.READ_UNCOMMITTED
            found = self.admin.list_offsets(request, isolation_level=level, **self.patience)
            return {(each.topic, each.partition): future.result().offset for each, future in found.items()}

    def settle(self, futures: Mapping[Any, Future[T]]) -> T:
        """Wait for the result of a request with one item."""
        (future,) = futures.values()
        return future.result()

    @contextmanager
    def translated(self, what: str) -> Iterator[None]:
        """Translate errors of librdkafka."""
        try:
            yield
        except KafkaException as error:
            found = translated(error, what, self.connection, BrokerRefused)
            if not found.transient:
                raise found from error
            raise NoBroker(found.message, hint=found.hint, transient=True) from error


def _near(names: list[str], wrong: str) -> list[str]:
    """Return the names to list: all, or those that are alike if there are many."""
    if len(names) <= _MOST_NAMES:
        return names
    return [name for name in names if name[:2] == wrong[:2]][:_MOST_NAMES]


def _spec(at: Literal["beginning", "end"] | datetime) -> Any:
    if isinstance(at, datetime):
        return OffsetSpec.for_timestamp(int(at.timestamp() * 1000))
    return OffsetSpec.earliest() if at == "beginning" else OffsetSpec.latest()  # type: ignore[no-untyped-call]
