"""Requests about a topic to its cluster: metadata, offsets, creation.

Metadata is fetched at least once per epoch, with two requests of Penstock's own client. If these fail, librdkafka is
used: it follows a partition to its new leader, and reports errors.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from confluent_kafka import OFFSET_INVALID, IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from penstock.connectors.topics import leaders
from penstock.connectors.topics.client_errors import LOGIN, SECONDS, translate_errors, translated
from penstock.connectors.topics.connection import Connection
from penstock.connectors.topics.offsets import TopicMetadata
from penstock.errors import PenstockError, SourceFailed, choices

_EARLIEST, _LATEST = OffsetSpec.earliest(), OffsetSpec.latest()  # type: ignore[no-untyped-call]
_SHOWN = 20
_TRIES = 3
_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"
# A broker that restarts closes connections too: wait this long.
_PATIENCE = 4.0
_KEPT = 32


@dataclass(frozen=True)
class TopicDescription:
    """A topic's id and partitions; a topic that is deleted and recreated has another id."""

    id: str
    partitions: tuple[int, ...]


class Cluster:
    """An admin client that connects on first use, in any process; it raises errors of one class."""

    def __init__(self, connection: Connection, kind: type[PenstockError] = SourceFailed) -> None:
        self.connection, self.kind = connection, kind
        self._client: AdminClient | None = None

    @property
    def client(self) -> AdminClient:
        """The admin client of librdkafka."""
        if self._client is None:
            self._client = connect(self.connection, self.kind)
        return self._client

    def topics(self) -> list[str]:
        """Return the names of all topics except internal ones."""
        found = translate_errors(lambda: self.client.list_topics(timeout=SECONDS), "topics", self.connection, self.kind)
        return sorted(name for name in found.topics if not name.startswith("__"))

    def groups(self) -> list[str]:
        """Return the names of the consumer groups that this user may see, from the brokers that answer."""
        found = self._result(self.client.list_consumer_groups(request_timeout=SECONDS), "groups")
        return sorted(group.group_id for group in found.valid)

    def describe(self, topic: str) -> TopicDescription | None:
        """Return the topic's description, or None if it does not exist."""
        asked = self.client.describe_topics(TopicCollection([topic]), request_timeout=SECONDS)[topic]
        try:
            found = self._result(asked, topic)
        except PenstockError as error:
            if _code(error) == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return None
            raise
        identity = str(found.topic_id)
        return TopicDescription("" if identity == _NO_ID else identity, tuple(sorted(p.id for p in found.partitions)))

    def create(self, topic: str, *, compacted: bool = False) -> None:
        """Create a topic with the cluster's defaults, unless it exists; with `compacted` the last of each key stays."""
        config = {"cleanup.policy": "compact"} if compacted else {}
        asked = self.client.create_topics([NewTopic(topic, -1, -1, config=config)], request_timeout=SECONDS)[topic]
        try:
            self._result(asked, topic, "create")
        except PenstockError as error:
            if _code(error) != KafkaError.TOPIC_ALREADY_EXISTS:
                raise

    def starts(self, topic: str, partitions: Iterable[int]) -> dict[int, int]:
        """Return the first offset of each partition."""
        return self._offsets(topic, dict.fromkeys(partitions, _EARLIEST))

    def ends(self, topic: str, partitions: Iterable[int]) -> dict[int, int]:
        """Return the end offset of each partition, without open transactions."""
        return self._offsets(topic, dict.fromkeys(partitions, _LATEST))

    def at(self, topic: str, partitions: Iterable[int], time_ms: int) -> dict[int, int]:
        """Return the first offset of each partition at or after a timestamp; its end if there is none."""
        found = self._offsets(topic, dict.fromkeys(partitions, OffsetSpec.for_timestamp(time_ms)))
        ends = self.ends(topic, [part for part, offset in found.items() if offset < 0])
        return found | ends

    def _offsets(self, topic: str, specs: Mapping[int, Any]) -> dict[int, int]:
        if not specs:
            return {}
        for _ in range(_TRIES):
            asked = self.client.list_offsets(
                {TopicPartition(topic, part): spec for part, spec in specs.items()},
                isolation_level=IsolationLevel.READ_COMMITTED,
                request_timeout=SECONDS,
            )
            found = {key.partition: int(self._result(future, topic).offset) for key, future in asked.items()}
            # If a broker dies during the request, librdkafka returns this offset and no error.
            if OFFSET_INVALID not in found.values():
                return found
        message = f"{topic}: {self.connection.servers} was lost during a request for offsets"
        raise self.kind(message, hint="run the job again", transient=True)

    def _result(self, future: Future[Any], what: str, need: str | None = None) -> Any:
        return translate_errors(lambda: future.result(SECONDS), what, self.connection, self.kind, need)

    def __getstate__(self) -> dict[str, Any]:
        # A client has threads and sockets: each process needs its own.
        return {"connection": self.connection, "kind": self.kind, "_client": None}


def missing_topic(topic: str, cluster: Cluster, kind: type[PenstockError] = SourceFailed) -> PenstockError:
    """Return the error for a missing topic, with the names of existing ones."""
    message = f"there is no topic '{topic}' at {cluster.connection.servers}"
    names = cluster.topics()
    shown = names if len(names) <= _SHOWN else get_close_matches(topic, names, _SHOWN)
    hint = f"{choices('topics there', shown, topic)}\n  make it with: penstock topic create {topic}"
    return kind(message, hint=hint)


def _code(error: PenstockError) -> int | None:
    cause = error.__cause__
    return cause.args[0].code() if isinstance(cause, KafkaException) else None


def connect(connection: Connection, kind: type[PenstockError]) -> AdminClient:
    """Return a connected client. Login errors are raised at once, where librdkafka would only time out."""
    errors: deque[KafkaError] = deque(maxlen=_KEPT)
    config = connection.config() | {"error_cb": errors.append}
    client: AdminClient = translate_errors(lambda: AdminClient(config), "connection", connection, kind)
    began = time.monotonic()
    while True:
        try:
            client.list_topics(timeout=1)
            return client
        except KafkaException as error:
            client.poll(0.1)
            waited = time.monotonic() - began
            cause = _refusal(errors) or (_closed(errors, connection) if waited > _PATIENCE else None)
            if cause or waited > SECONDS:
                raise translated(cause or error, "connection", connection, kind) from error


def _refusal(errors: Iterable[KafkaError]) -> KafkaError | None:
    return next((each for each in errors if each.code() in LOGIN), None)


def _closed(errors: Iterable[KafkaError], connection: Connection) -> KafkaError | None:
    """Return the error of a client whose connections are accepted and closed: its protocol is not the broker's."""
    down = (each for each in errors if each.code() == KafkaError._ALL_BROKERS_DOWN)
    return next(down, None) if connection.listens() else None


def fetch_topic_metadata(cluster: Cluster, name: str) -> TopicMetadata | None:
    """Return a topic's current metadata, or None if it does not exist."""
    connection = cluster.connection
    if leaders.is_supported(connection):
        try:
            topic = leaders.fetch_topic(connection, name)
            return TopicMetadata(topic.id, *leaders.fetch_offsets(connection, topic)) if topic else None
        except (KafkaException, leaders.UnsupportedVersion):
            leaders.invalidate(connection, name)
    described = cluster.describe(name)
    if described is None:
        return None
    return TopicMetadata(
        described.id, cluster.starts(name, described.partitions), cluster.ends(name, described.partitions)
    )


def fetch_end_offsets(cluster: Cluster, name: str, metadata: TopicMetadata) -> dict[int, int]:
    """Return the current end offsets of the partitions in `metadata`."""
    connection = cluster.connection
    if leaders.is_supported(connection):
        try:
            return leaders.fetch_offsets(connection, leaders.cached_topic(connection, name), starts=False)[1]
        except (KafkaException, leaders.UnsupportedVersion):
            leaders.invalidate(connection, name)
    return cluster.ends(name, metadata.ends)
