"""What a source and a sink ask a cluster about one topic."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from confluent_kafka import OFFSET_INVALID, IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from penstock.connectors.admission import admitted
from penstock.connectors.connection import Connection
from penstock.connectors.kafka import SECONDS, answered
from penstock.errors import PenstockError, SourceFailed, choices

_EARLIEST, _LATEST = OffsetSpec.earliest(), OffsetSpec.latest()  # type: ignore[no-untyped-call]
_SHOWN = 20
_TRIES = 3
_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"


@dataclass(frozen=True)
class Described:
    """A topic as it is now; one that is deleted and made anew has another id."""

    id: str
    partitions: tuple[int, ...]


class Cluster:
    """A client that is opened when it is first asked, in whatever process that is; its errors are of one kind."""

    def __init__(self, connection: Connection, kind: type[PenstockError] = SourceFailed) -> None:
        self.connection, self.kind = connection, kind
        self._client: AdminClient | None = None

    @property
    def client(self) -> AdminClient:
        """The client itself."""
        if self._client is None:
            self._client = admitted(self.connection, self.kind)
        return self._client

    def topics(self) -> list[str]:
        """Return the names of all topics but the cluster's own."""
        found = answered(lambda: self.client.list_topics(timeout=SECONDS), "topics", self.connection, self.kind)
        return sorted(name for name in found.topics if not name.startswith("__"))

    def groups(self) -> list[str]:
        """Return the names of the consumer groups that this user may see, of the brokers that tell theirs now."""
        found = self._result(self.client.list_consumer_groups(request_timeout=SECONDS), "groups")
        return sorted(group.group_id for group in found.valid)

    def describe(self, topic: str) -> Described | None:
        """Return what the topic is now, or None if there is none."""
        asked = self.client.describe_topics(TopicCollection([topic]), request_timeout=SECONDS)[topic]
        try:
            found = self._result(asked, topic)
        except PenstockError as error:
            if _code(error) == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return None
            raise
        identity = str(found.topic_id)
        return Described("" if identity == _NO_ID else identity, tuple(sorted(p.id for p in found.partitions)))

    def create(self, topic: str) -> None:
        """Make a topic with the cluster's own defaults; one that is there already is left as it is."""
        asked = self.client.create_topics([NewTopic(topic, -1, -1)], request_timeout=SECONDS)[topic]
        try:
            self._result(asked, topic, "create")
        except PenstockError as error:
            if _code(error) != KafkaError.TOPIC_ALREADY_EXISTS:
                raise

    def starts(self, topic: str, partitions: Iterable[int]) -> dict[int, int]:
        """Return the first offset that each partition still has."""
        return self._offsets(topic, dict.fromkeys(partitions, _EARLIEST))

    def ends(self, topic: str, partitions: Iterable[int]) -> dict[int, int]:
        """Return where each partition ends, transactions that are still open left out."""
        return self._offsets(topic, dict.fromkeys(partitions, _LATEST))

    def at(self, topic: str, partitions: Iterable[int], time_ms: int) -> dict[int, int]:
        """Return the first offset of each partition from a time on; its end if nothing is that young."""
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
            found = {place.partition: int(self._result(future, topic).offset) for place, future in asked.items()}
            # When a broker dies with the request, librdkafka gives this as an offset, and no error.
            if OFFSET_INVALID not in found.values():
                return found
        message = f"{topic}: {self.connection.servers} was lost while it was asked for offsets"
        raise self.kind(message, hint="run the job again", transient=True)

    def _result(self, future: Future[Any], what: str, need: str | None = None) -> Any:
        return answered(lambda: future.result(SECONDS), what, self.connection, self.kind, need)

    def __getstate__(self) -> dict[str, Any]:
        # A client is threads and sockets: each process has its own.
        return {"connection": self.connection, "kind": self.kind, "_client": None}


def missing(topic: str, cluster: Cluster, kind: type[PenstockError] = SourceFailed) -> PenstockError:
    """Return the error for a topic that is not there, with those that are."""
    message = f"there is no topic '{topic}' at {cluster.connection.servers}"
    names = cluster.topics()
    shown = names if len(names) <= _SHOWN else get_close_matches(topic, names, _SHOWN)
    hint = f"{choices('topics there', shown, topic)}\n  make it with: penstock topic create {topic}"
    return kind(message, hint=hint)


def _code(error: PenstockError) -> int | None:
    cause = error.__cause__
    return cause.args[0].code() if isinstance(cause, KafkaException) else None
