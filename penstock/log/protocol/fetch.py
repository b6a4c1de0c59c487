"""Fetch, versions 4 to 18: replies are file slices between a few bytes of framing.

Since version 13 topics are identified by id. Later versions only add optional tagged fields.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from penstock.kafka.wire import count, text, varint
from penstock.log.errors import ErrorCode
from penstock.log.protocol.apis import BY_NAME
from penstock.log.protocol.cursor import Cursor
from penstock.log.storage.segments.segment import Slice

_API = BY_NAME["fetch"]
Piece = bytes | Slice
TOPIC_IDS = 13  # the first version that has them
_NO_REPLICA_ID = 15


class Wanted(NamedTuple):
    """One partition of a request."""

    topic: str
    partition: int
    offset: int
    max_bytes: int
    leader_epoch: int
    topic_id: bytes = b""  # since version 13; then `topic` is empty until it is looked up

    @property
    def named(self) -> str | bytes:
        """The topic as in the request: id or name."""
        return self.topic_id or self.topic


class Served(NamedTuple):
    """One partition of a reply."""

    partition: int
    code: ErrorCode
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start: int = -1
    aborted: Sequence[tuple[int, int]] | None = None
    records: Slice | None = None


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """A decoded fetch request."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    committed: bool
    session_id: int
    session_epoch: int
    wanted: list[Wanted]


def read_fetch(version: int, data: memoryview, at: int) -> FetchRequest:
    """Decode the request's body."""
    cursor = Cursor(data, _API.is_flexible(version), at)
    if version < _NO_REPLICA_ID:
        cursor.int32()
    max_wait, min_bytes, max_bytes = cursor.int32(), cursor.int32(), cursor.int32()
    committed = cursor.int8() == 1
    session_id, session_epoch = (cursor.int32(), cursor.int32()) if version >= 7 else (0, -1)
    wanted: list[Wanted] = []
    for _ in range(cursor.count()):
        topic_id = bytes(cursor.raw(16)) if version >= TOPIC_IDS else b""
        topic = "" if topic_id else cursor.text() or ""
        wanted += [_wanted(version, cursor, topic, topic_id) for _ in range(cursor.count())]
        cursor.skip_tags()
    return FetchRequest(max_wait, min_bytes, max_bytes, committed, session_id, session_epoch, wanted)


def _wanted(version: int, cursor: Cursor, topic: str, topic_id: bytes) -> Wanted:
    partition = cursor.int32()
    leader_epoch = cursor.int32() if version >= 9 else -1
    offset = cursor.int64()
    if version >= 12:
        cursor.int32()
    if version >= 5:
        cursor.int64()
    max_bytes = cursor.int32()
    cursor.skip_tags()
    return Wanted(topic, partition, offset, max_bytes, leader_epoch, topic_id)


def write_fetch(
    version: int,
    topics: Sequence[tuple[str | bytes, Sequence[Served]]],
    throttle_ms: int,
    code: ErrorCode = ErrorCode.none,
) -> list[Piece]:
    """Encode the reply's body as pieces: bytes, and slices that are sent from their files."""
    flexible = _API.is_flexible(version)
    pieces: list[Piece] = []
    head = bytearray(struct.pack(">i", throttle_ms))
    if version >= 7:
        # No fetch sessions: with id 0 the client sends its partitions each time.
        head += struct.pack(">hi", code, 0)
    head += count(len(topics), flexible)
    for topic, partitions in topics:
        head += topic if isinstance(topic, bytes) else text(topic, flexible)
        head += count(len(partitions), flexible)
        for served in partitions:
            head += _served(version, flexible, served)
            if served.records is not None:
                pieces += [bytes(head), served.records]
                head = bytearray()
            if flexible:
                head += b"\0"
        if flexible:
            head += b"\0"
    if flexible:
        head += b"\0"
    if head:
        pieces.append(bytes(head))
    return pieces


def _served(version: int, flexible: bool, served: Served) -> bytes:
    out = bytearray(
        struct.pack(">ihqq", served.partition, served.code, served.high_watermark, served.last_stable_offset)
    )
    if version >= 5:
        out += struct.pack(">q", served.log_start)
    out += count(-1 if served.aborted is None else len(served.aborted), flexible)
    for producer_id, first in served.aborted or ():
        out += struct.pack(">qq", producer_id, first) + (b"\0" if flexible else b"")
    if version >= 11:
        out += struct.pack(">i", -1)
    size = served.records.size if served.records is not None else 0
    return bytes(out + (varint(size + 1) if flexible else struct.pack(">i", size)))
