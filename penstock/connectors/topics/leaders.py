"""Leaders and offsets of a topic's partitions, by two requests whatever the number of partitions."""

from __future__ import annotations

import struct
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

from confluent_kafka import KafkaError, KafkaException

from penstock.connectors.topics.broker_client import (
    FETCH,
    LIST_OFFSETS,
    METADATA,
    Address,
    Broker,
    borrowed,
    identity,
    raise_for_code,
)
from penstock.connectors.topics.connection import Connection
from penstock.kafka.wire import WireReader, text

FETCH_VERSION = 10  # the oldest in which brokers send zstd, and the newest in which they send to no other replica
_LIST_VERSION = 2
_WITH_ID, _WITHOUT_ID = 10, 5
_NO_ID = bytes(16)
_EARLIEST, _LATEST = -2, -1
_READ_COMMITTED = 1
_UNREACHABLE = {KafkaError._TRANSPORT, KafkaError._TIMED_OUT}

_topics: dict[tuple[str, str], Topic] = {}


class UnsupportedVersion(Exception):
    """The cluster does not support the request versions of this client."""


class Topic(NamedTuple):
    """Metadata of a topic; partitions without a leader have no address."""

    name: str
    id: str
    leaders: Mapping[int, Address | None]


def is_supported(connection: Connection) -> bool:
    """Return whether this client supports a connection's options; those with a dot are librdkafka's own."""
    return not any("." in name for name in connection.options)


def fetch_topic(connection: Connection, name: str) -> Topic | None:
    """Return a topic's current metadata, or None if it does not exist."""
    with _any(connection) as broker:
        _check_versions(broker)
        version = _WITH_ID if _WITH_ID in broker.versions[METADATA] else _WITHOUT_ID
        compact = version == _WITH_ID
        answer = broker.ask(METADATA, version, _metadata_request(name, compact), compact)
    found = _read_metadata(answer)
    if found:
        _topics[identity(connection), name] = found
    return found


def cached_topic(connection: Connection, name: str) -> Topic:
    """Return a topic's cached metadata; raises librdkafka's error if the topic does not exist."""
    found = _topics.get((identity(connection), name)) or fetch_topic(connection, name)
    if found is None:
        raise KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
    return found


def invalidate(connection: Connection, name: str) -> None:
    """Drop a topic's cached metadata."""
    _topics.pop((identity(connection), name), None)


def fetch_offsets(
    connection: Connection, described: Topic, *, starts: bool = True
) -> tuple[dict[int, int], dict[int, int]]:
    """Return the first offsets of partitions, if requested, and their end offsets without open transactions."""
    kinds = (_EARLIEST, _LATEST) if starts else (_LATEST,)
    by_leader: dict[Address, list[int]] = {}
    for part, address in described.leaders.items():
        by_leader.setdefault(_existing(address), []).append(part)
    found: dict[int, dict[int, int]] = {_EARLIEST: {}, _LATEST: {}}
    with ExitStack() as stack:
        brokers = [(stack.enter_context(borrowed(connection, at)), parts) for at, parts in by_leader.items()]
        for broker, parts in brokers:
            for kind in kinds:
                broker.send(LIST_OFFSETS, _LIST_VERSION, _list_request(described.name, parts, kind))
        for broker, _ in brokers:
            for kind in kinds:
                found[kind] |= _read_offsets(broker.receive())
    return found[_EARLIEST], found[_LATEST]


def leader(described: Topic, partition: int) -> Address:
    """Return the address of a partition's leader; raises librdkafka's error if there is none."""
    if partition not in described.leaders:
        raise_for_code(KafkaError.UNKNOWN_TOPIC_OR_PART)
    return _existing(described.leaders[partition])


@contextmanager
def _any(connection: Connection) -> Iterator[Broker]:
    """Borrow a connection to the first server of the address that accepts one."""
    *others, final = connection.servers.split(",")
    with ExitStack() as stack:
        for server in others:
            try:
                broker = stack.enter_context(borrowed(connection, _address(server)))
            except KafkaException as error:
                if error.args[0].code() not in _UNREACHABLE:
                    raise
            else:
                yield broker
                return
        yield stack.enter_context(borrowed(connection, _address(final)))


def _address(server: str) -> Address:
    host, _, port = server.rpartition(":")
    return host.strip("[]"), int(port)


def _existing(address: Address | None) -> Address:
    if address is None:
        raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE))
    return address


def _check_versions(broker: Broker) -> None:
    needed = {METADATA: _WITHOUT_ID, LIST_OFFSETS: _LIST_VERSION, FETCH: FETCH_VERSION}
    if any(version not in broker.versions.get(api, ()) for api, version in needed.items()):
        message = f"the broker does not support Fetch version {FETCH_VERSION}, or the requests before it"
        raise UnsupportedVersion(message)


def _metadata_request(name: str, compact: bool) -> bytes:
    if not compact:
        return struct.pack(">i", 1) + text(name) + b"\0"
    # One topic, by name; no auto-creation; no authorized operations of cluster or topic; no tagged fields.
    return b"\2" + _NO_ID + text(name, compact) + b"\0" + b"\0\0\0" + b"\0"


def _read_metadata(answer: WireReader) -> Topic | None:
    answer.int32()
    addresses = dict(answer.each(_read_broker))
    answer.text()
    answer.int32()
    (described,) = answer.each(lambda one: _read_topic(one, addresses))
    return described


def _read_broker(answer: WireReader) -> tuple[int, Address]:
    node, host, port = answer.int32(), answer.text() or "", answer.int32()
    answer.text()
    answer.skip_tags()
    return node, (host, port)


def _read_topic(answer: WireReader, addresses: Mapping[int, Address]) -> Topic | None:
    code, name = answer.int16(), answer.text() or ""
    identity = bytes(answer.raw(16)) if answer.flexible else _NO_ID
    answer.raw(1)
    leaders = dict(answer.each(lambda one: _read_partition(one, addresses)))
    if code == KafkaError.UNKNOWN_TOPIC_OR_PART:
        return None
    raise_for_code(code)
    return Topic(name, _shown(identity), leaders)


def _read_partition(answer: WireReader, addresses: Mapping[int, Address]) -> tuple[int, Address | None]:
    answer.int16()
    index, node = answer.int32(), answer.int32()
    if answer.flexible:
        answer.int32()
    for _ in ("replicas", "those in sync", "those offline"):
        answer.each(WireReader.int32)
    answer.skip_tags()
    return index, addresses.get(node)


def _shown(identity: bytes) -> str:
    """Return an id in librdkafka's form: both clients may fetch metadata of one topic."""
    return b64encode(identity).decode().rstrip("=") if identity != _NO_ID else ""


def _list_request(name: str, parts: Sequence[int], kind: int) -> bytes:
    head = struct.pack(">ibi", -1, _READ_COMMITTED, 1) + text(name) + struct.pack(">i", len(parts))
    return head + b"".join(struct.pack(">iq", part, kind) for part in parts)


def _read_offsets(answer: WireReader) -> dict[int, int]:
    answer.int32()
    (found,) = answer.each(lambda one: (one.text(), one.each(_read_offset))[1])
    return dict(found)


def _read_offset(answer: WireReader) -> tuple[int, int]:
    part, code, _, offset = answer.int32(), answer.int16(), answer.int64(), answer.int64()
    raise_for_code(code)
    return part, offset
