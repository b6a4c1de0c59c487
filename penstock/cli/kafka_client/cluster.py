"""Admin requests to a broker, with librdkafka (loaded with this module), and the translation of its errors."""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, Literal, TypeVar

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ClusterMetadata, OffsetSpec, TopicMetadata

from penstock.connectors.topics.connection import Connection
from penstock.errors import BrokerRefused, NoBroker, PenstockError, UnknownSetting, UnknownTopic, choices

T = TypeVar("T")
Partition = tuple[str, int]

PATIENCE = 4
# librdkafka puts the connection and its state around the text of an error.
_FRAME = re.compile(r"^\S+/(bootstrap|\d+): | \(after .*$")
_AWAY = (KafkaError._RESOLVE, KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._BAD_MSG)
_LOGIN = (KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED, KafkaError._SSL)
DENIED = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
)
_NOT_KAFKA = "the server at this address is not a Kafka broker; a TLS listener needs --tls"
_TRUST = "if its certificate is signed by your own authority, pass it: --ca FILE"
_IN_USE = (KafkaError.NON_EMPTY_GROUP, KafkaError.UNKNOWN_MEMBER_ID, KafkaError.REBALANCE_IN_PROGRESS)


class Cluster:
    """The admin client of the commands."""

    # Passed to every request.
    patience = {"request_timeout": 15}

    def __init__(self, access: Connection) -> None:
        self.access = access
        self.errors: list[KafkaError] = []
        self.admin = AdminClient(self.config())

    def config(self, **more: Any) -> dict[str, Any]:
        """Return the configuration of another client; underscores in names become dots."""
        options = {name.replace("_", "."): value for name, value in more.items()}
        return {**self.access.config(), "error_cb": self.errors.append, **options}

    def topics(self) -> Mapping[str, TopicMetadata]:
        """Return all topics; fail within a few seconds if no broker answers."""
        return self._metadata().topics

    def partitions(self, topic: str, wanted: int | None = None, *, make: bool = False) -> list[int]:
        """Return the partitions of a topic, or only the wanted one; `make` adds a hint to create the topic."""
        topics = self.topics()
        if topic not in topics:
            seen = f" that user '{self.access.user}' may see" if self.access.user else ""
            message = f"there is no topic '{topic}' at {self.access.servers}{seen}"
            hint = choices("topics there", self.visible(topics), topic)
            raise UnknownTopic(message, hint=f"{hint}\n  create it: penstock topic create {topic}" if make else hint)
        known = sorted(topics[topic].partitions)
        if wanted is None:
            return known
        if wanted not in known:
            message = f"topic '{topic}' has no partition {wanted}"
            raise UnknownTopic(message, hint=choices("partitions", map(str, known)))
        return [wanted]

    def offsets(
        self, partitions: Collection[Partition], at: Literal["beginning", "end"] | int, *, uncommitted: bool = True
    ) -> dict[Partition, int]:
        """Return an offset of each partition: the first, the end, or that of a time in ms; -1 if there is none."""
        if not partitions:
            return {}
        level = IsolationLevel.READ_UNCOMMITTED if uncommitted else IsolationLevel.READ_COMMITTED
        request = {TopicPartition(*partition): _spec(at) for partition in partitions}
        futures = self.admin.list_offsets(request, isolation_level=level, **self.patience)
        return {(each.topic, each.partition): found.result().offset for each, found in futures.items()}

    def settle(self, futures: Mapping[Any, Future[T]]) -> T:
        """Wait for the result of a request with one item."""
        (future,) = futures.values()
        return future.result()

    def _metadata(self) -> ClusterMetadata:
        self.errors.clear()
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                return self.admin.list_topics(timeout=1)
            except KafkaException as error:
                self.admin.poll(0)
                cause, seen = _cause(self.errors), error.args[0]
                if cause or seen.code() not in _AWAY or time.monotonic() > deadline:
                    raise translate_error(cause or seen, self.access) from error

    @staticmethod
    def visible(topics: Iterable[str]) -> list[str]:
        """Return the topics that are not internal."""
        return sorted(name for name in topics if not name.startswith("__"))


@contextmanager
def translated_errors(access: Connection) -> Iterator[None]:
    """Translate errors of librdkafka."""
    try:
        yield
    except KafkaException as error:
        raise translate_error(error.args[0], access) from error


def translate_error(error: KafkaError, access: Connection) -> PenstockError:
    """Translate an error of librdkafka."""
    code, address = error.code(), access.servers
    text = _FRAME.sub("", error.str()).rstrip(".")
    if code == KafkaError._ALL_BROKERS_DOWN and access.listens():
        return BrokerRefused(f"{address} closes the connection", hint=_login_hint(access))
    if code in (*_AWAY, KafkaError._ALL_BROKERS_DOWN):
        why = _NOT_KAFKA if code == KafkaError._BAD_MSG else text
        hint = f"{why}\n  start one with `penstock log serve`, or pass its address: --broker HOST:PORT"
        return NoBroker(f"no broker answers at {address}", hint=hint, transient=True)
    if code in _LOGIN:
        hint = _TRUST if "certificate verify failed" in text else _login_hint(access)
        return BrokerRefused(f"{address} refused the connection: {text}", hint=hint)
    if code in DENIED:
        who = f"user '{access.user}'" if access.user else "a client without --user"
        return BrokerRefused(
            f"permission denied for {who}: {text}", hint=f"the ACLs of {address} decide; see `penstock acl list`"
        )
    if code in _IN_USE:
        return BrokerRefused(f"the group has active members: {text}", hint="stop its consumers first")
    return BrokerRefused(f"{address} refused: {text}") if code > 0 else UnknownSetting(text)


def _spec(at: Literal["beginning", "end"] | int) -> Any:
    if isinstance(at, int):
        return OffsetSpec.for_timestamp(at)
    return OffsetSpec.earliest() if at == "beginning" else OffsetSpec.latest()  # type: ignore[no-untyped-call]


def _login_hint(access: Connection) -> str:
    if access.user:
        return f"check --user, PENSTOCK_PASSWORD, --mechanism {access.mechanism} and --tls"
    return "check --tls and --ca, and add --user if the broker requires authentication"


def _cause(troubles: Iterable[KafkaError]) -> KafkaError | None:
    """Return the most specific permanent error; "all brokers down" is the least specific."""
    order = [*_LOGIN, *_AWAY, KafkaError._ALL_BROKERS_DOWN]
    found = [each for each in troubles if each.code() in order]
    lasting = any(each.code() in (*_LOGIN, KafkaError._ALL_BROKERS_DOWN) for each in found)
    return min(found, key=lambda each: order.index(each.code())) if lasting else None
