"""Sizes of partitions on the disks of brokers (DescribeLogDirs), which librdkafka has no request for."""

from __future__ import annotations

import struct
from collections.abc import Iterable

from penstock.connectors.topics.broker_client import Address, borrowed, raise_for_code
from penstock.connectors.topics.connection import Connection
from penstock.connectors.topics.leaders import is_supported
from penstock.kafka.wire import WireReader

_DESCRIBE_LOG_DIRS, _VERSION = 35, 1
_ALL_TOPICS = struct.pack(">i", -1)
Sizes = dict[tuple[str, int], int]


def partition_sizes(connection: Connection, brokers: Iterable[Address]) -> Sizes | None:
    """Return the bytes of each partition, of its largest replica; None if a broker has no such request.

    Raises librdkafka's error if a broker does not answer or refuses.
    """
    if not is_supported(connection):
        return None
    found: Sizes = {}
    for address in brokers:
        with borrowed(connection, address) as broker:
            if _VERSION not in broker.versions.get(_DESCRIBE_LOG_DIRS, ()):
                return None
            answer = broker.ask(_DESCRIBE_LOG_DIRS, _VERSION, _ALL_TOPICS)
        for partition, size in _read(answer):
            found[partition] = max(size, found.get(partition, 0))
    return found


def _read(answer: WireReader) -> list[tuple[tuple[str, int], int]]:
    answer.int32()
    return [entry for folder in answer.each(_folder) for entry in folder]


def _folder(answer: WireReader) -> list[tuple[tuple[str, int], int]]:
    raise_for_code(answer.int16())
    answer.text()
    return [entry for topic in answer.each(_topic) for entry in topic]


def _topic(answer: WireReader) -> list[tuple[tuple[str, int], int]]:
    name = answer.text() or ""
    return [((name, number), size) for number, size in answer.each(_partition)]


def _partition(answer: WireReader) -> tuple[int, int]:
    number, size = answer.int32(), answer.int64()
    answer.int64(), answer.int8()
    return number, size
