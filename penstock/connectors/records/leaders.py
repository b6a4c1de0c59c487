"""Who leads a topic's partitions, and where these begin and end: two requests, whatever the number of partitions."""

from __future__ import annotations

import struct
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

from confluent_kafka import KafkaError, KafkaException

from penstock.connectors.connection import Connection
from penstock.connectors.records.broker import FETCH, LIST_OFFSETS, METADATA, Address, Broker, identity, lent, refuse
from penstock.connectors.records.frames import Reader, text

FETCH_VERSION = 10  # the oldest in which brokers send zstd, and the newest in which they send to no other replica
_LIST_VERSION = 2
_WITH_ID, _WITHOUT_ID = 10, 5
_NO_ID = bytes(16)
_EARLIEST, _LATEST = -2, -1
_READ_COMMITTED = 1
_UNREACHABLE = {KafkaError._TRANSPORT, KafkaError._TIMED_OUT}

_topics: dict[tuple[str, str], Topic] = {}


class NotSpoken(Exception):
    """The cluster does not speak the versions of requests that are known here."""


class Topic(NamedTuple):
    """A topic as the cluster describes it; partitions without a leader have no address."""

    name: str
    id: str
    leaders: Mapping[int, Address | None]


def speaks(connection: Connection) -> bool:
    """Say whether this client can do all that a connection asks for; options of librdkafka only librdkafka knows."""
    return not any("." in name for name in connection.options)


def topic(connection: Connection, name: str) -> Topic | None:
    """Return what a topic is now, or None if there is none."""
    with _any(connection) as broker:
        _refuse_unspoken(broker)
        version = _WITH_ID if _WITH_ID in broker.versions[METADATA] else _WITHOUT_ID
        compact = version == _WITH_ID
        answer = broker.ask(METADATA, version, _metadata_request(name, compact), compact)
    found = _read_metadata(answer)
    if found:
        _topics[identity(connection), name] = found
    return found


def known(connection: Connection, name: str) -> Topic:
    """Return a topic as it was when somebody last asked; raise what librdkafka would if there is none."""
    found = _topics.get((identity(connection), name)) or topic(connection, name)
    if found is None:
        raise KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
    return found


def forget(connection: Connection, name: str) -> None:
    """Ask again for a topic that may have changed."""
    _topics.pop((identity(connection), name), None)


def edges(connection: Connection, described: Topic, *, starts: bool = True) -> tuple[dict[int, int], dict[int, int]]:
    """Return where partitions begin, if that is asked for, and where they end without open transactions."""
    kinds = (_EARLIEST, _LATEST) if starts else (_LATEST,)
    by_leader: dict[Address, list[int]] = {}
    for part, address in described.leaders.items():
        by_leader.setdefault(_there(address), []).append(part)
    found: dict[int, dict[int, int]] = {_EARLIEST: {}, _LATEST: {}}
    with ExitStack() as stack:
        brokers = [(stack.enter_context(lent(connection, at)), parts) for at, parts in by_leader.items()]
        for broker, parts in brokers:
            for kind in kinds:
                broker.send(LIST_OFFSETS, _LIST_VERSION, _list_request(described.name, parts, kind))
        for broker, _ in brokers:
            for kind in kinds:
                found[kind] |= _read_offsets(broker.receive())
    return found[_EARLIEST], found[_LATEST]


def leader(described: Topic, partition: int) -> Address:
    """Return who leads a partition; raise what librdkafka would if nobody does."""
    if partition not in described.leaders:
        refuse(KafkaError.UNKNOWN_TOPIC_OR_PART)
    return _there(described.leaders[partition])


@contextmanager
def _any(connection: Connection) -> Iterator[Broker]:
    """Lend a connection to the first server of the address that takes one."""
    *others, final = connection.servers.split(",")
    with ExitStack() as stack:
        for server in others:
            try:
                broker = stack.enter_context(lent(connection, _address(server)))
            except KafkaException as error:
                if error.args[0].code() not in _UNREACHABLE:
                    raise
            else:
                yield broker
                return
        yield stack.enter_context(lent(connection, _address(final)))


def _address(server: str) -> Address:
    host, _, port = server.rpartition(":")
    return host.strip("[]"), int(port)


def _there(address: Address | None) -> Address:
    if address is None:
        raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE))
    return address


def _refuse_unspoken(broker: Broker) -> None:
    needed = {METADATA: _WITHOUT_ID, LIST_OFFSETS: _LIST_VERSION, FETCH: FETCH_VERSION}
    if any(version not in broker.versions.get(api, ()) for api, version in needed.items()):
        message = f"it knows no version {FETCH_VERSION} of Fetch, or of what is asked before it"
        raise NotSpoken(message)


def _metadata_request(name: str, compact: bool) -> bytes:
    if not compact:
        return struct.pack(">i", 1) + text(name) + b"\0"
    # One topic, by name; make none; no permissions of the cluster, none of the topic; no tags.
    return b"\2" + _NO_ID + text(name, compact) + b"\0" + b"\0\0\0" + b"\0"


def _read_metadata(answer: Reader) -> Topic | None:
    answer.int32()
    addresses = dict(answer.each(_read_broker))
    answer.text()
    answer.int32()
    (described,) = answer.each(lambda one: _read_topic(one, addresses))
    return described


def _read_broker(answer: Reader) -> tuple[int, Address]:
    node, host, port = answer.int32(), answer.text() or "", answer.int32()
    answer.text()
    answer.tags()
    return node, (host, port)


def _read_topic(answer: Reader, addresses: Mapping[int, Address]) -> Topic | None:
    code, name = answer.int16(), answer.text() or ""
    identity = bytes(answer.take(16)) if answer.compact else _NO_ID
    answer.take(1)
    leaders = dict(answer.each(lambda one: _read_partition(one, addresses)))
    if code == KafkaError.UNKNOWN_TOPIC_OR_PART:
        return None
    refuse(code)
    return Topic(name, _shown(identity), leaders)


def _read_partition(answer: Reader, addresses: Mapping[int, Address]) -> tuple[int, Address | None]:
    answer.int16()
    index, node = answer.int32(), answer.int32()
    if answer.compact:
        answer.int32()
    for _ in ("replicas", "those in sync", "those offline"):
        answer.each(Reader.int32)
    answer.tags()
    return index, addresses.get(node)


def _shown(identity: bytes) -> str:
    """Return an id as librdkafka shows it, for both may look at one topic in turn."""
    return b64encode(identity).decode().rstrip("=") if identity != _NO_ID else ""


def _list_request(name: str, parts: Sequence[int], kind: int) -> bytes:
    head = struct.pack(">ibi", -1, _READ_COMMITTED, 1) + text(name) + struct.pack(">i", len(parts))
    return head + b"".join(struct.pack(">iq", part, kind) for part in parts)


def _read_offsets(answer: Reader) -> dict[int, int]:
    answer.int32()
    (found,) = answer.each(lambda one: (one.text(), one.each(_read_offset))[1])
    return dict(found)


def _read_offset(answer: Reader) -> tuple[int, int]:
    part, code, _, offset = answer.int32(), answer.int16(), answer.int64(), answer.int64()
    refuse(code)
    return part, offset
