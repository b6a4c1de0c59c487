"""Produce, versions 3 to 13: records are not copied. Since version 13 topics are identified by id."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from penstock.kafka.wire import count, text
from penstock.log.errors import ErrorCode
from penstock.log.protocol.apis import BY_NAME
from penstock.log.protocol.cursor import Cursor

_API = BY_NAME["produce"]
_RESULT = struct.Struct(">ihqq")


TOPIC_IDS = 13  # the first version that has them


class Batches(NamedTuple):
    """The batches of one partition; `topic` is empty until it is looked up, if the request has its id."""

    topic: str
    partition: int
    records: memoryview | None
    topic_id: bytes = b""

    @property
    def named(self) -> str | bytes:
        """The topic as in the request: id or name."""
        return self.topic_id or self.topic


class Result(NamedTuple):
    """The result for one partition."""

    partition: int
    code: ErrorCode
    base_offset: int = -1
    append_time: int = -1
    log_start: int = -1
    message: str | None = None
    records: Sequence[tuple[int, str | None]] = ()  # invalid ones, and why


@dataclass(frozen=True, slots=True)
class ProduceRequest:
    """A decoded produce request."""

    transactional_id: str | None
    acks: int
    timeout_ms: int
    batches: list[Batches]


def read_produce(version: int, data: memoryview, at: int) -> ProduceRequest:
    """Decode the request's body."""
    cursor = Cursor(data, _API.is_flexible(version), at)
    transactional_id, acks, timeout = cursor.text(), cursor.int16(), cursor.int32()
    batches = []
    for _ in range(cursor.count()):
        topic_id = bytes(cursor.raw(16)) if version >= TOPIC_IDS else b""
        topic = "" if topic_id else cursor.text() or ""
        for _ in range(cursor.count()):
            batches.append(Batches(topic, cursor.int32(), cursor.blob(), topic_id))
            cursor.skip_tags()
        cursor.skip_tags()
    return ProduceRequest(transactional_id, acks, timeout, batches)


def write_produce(version: int, results: Sequence[tuple[str | bytes, Sequence[Result]]], throttle_ms: int) -> bytes:
    """Encode the reply's body; topics are named as in the request."""
    flexible = _API.is_flexible(version)
    end = b"\0" if flexible else b""
    parts = [count(len(results), flexible)]
    for topic, partitions in results:
        name = topic if isinstance(topic, bytes) else text(topic, flexible)
        parts += [name, count(len(partitions), flexible)]
        parts += [_result(version, flexible, result) for result in partitions]
        parts.append(end)
    parts += [struct.pack(">i", throttle_ms), end]
    return b"".join(parts)


def _result(version: int, flexible: bool, result: Result) -> bytes:
    parts = [_RESULT.pack(result.partition, result.code, result.base_offset, result.append_time)]
    if version >= 5:
        parts.append(struct.pack(">q", result.log_start))
    if version >= 8:
        end = b"\0" if flexible else b""
        parts.append(count(len(result.records), flexible))
        parts += [struct.pack(">i", index) + text(why, flexible) + end for index, why in result.records]
        parts.append(text(result.message, flexible))
    if flexible:
        parts.append(b"\0")
    return b"".join(parts)
