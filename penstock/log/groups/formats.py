"""Keys and values of `__consumer_offsets` in Apache Kafka's own formats, so that its tools can read them.

Writes key versions 1 (offset) and 2 (group), and value versions 3 (group, offset) and 1 (an offset with an expiry
time); also reads all earlier versions. Kafka 4.1 and later write offsets in version 4, with a topic id, and read all of
these.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from penstock.kafka.wire import WireReader, blob, text
from penstock.log.groups.classic.events import MemberSnapshot, Snapshot

_OFFSET, _GROUP = 1, 2


class OffsetKey(NamedTuple):
    """The key of a committed offset."""

    group: str
    topic: str
    partition: int


class GroupKey(NamedTuple):
    """The key of a group."""

    group: str


class Committed(NamedTuple):
    """A committed offset. `position` is its own offset in the journal: the newer one counts."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    timestamp: int = -1
    expires: int = -1
    position: int = -1


def encode_key(key: OffsetKey | GroupKey) -> bytes:
    """Encode a key."""
    if isinstance(key, GroupKey):
        return struct.pack(">h", _GROUP) + text(key.group)
    return struct.pack(">h", _OFFSET) + text(key.group) + text(key.topic) + struct.pack(">i", key.partition)


def decode_key(data: bytes) -> OffsetKey | GroupKey | None:
    """Decode a key; None for one of a later type."""
    reader = WireReader(memoryview(data))
    version = reader.int16()
    if version == _GROUP:
        return GroupKey(reader.text() or "")
    return OffsetKey(reader.text() or "", reader.text() or "", reader.int32()) if version <= _OFFSET else None


def encode_offset(value: Committed) -> bytes:
    """Encode a committed offset."""
    if value.expires >= 0:
        head = struct.pack(">hq", 1, value.offset)
        return head + text(value.metadata) + struct.pack(">qq", value.timestamp, value.expires)
    head = struct.pack(">hqi", 3, value.offset, value.leader_epoch)
    return head + text(value.metadata) + struct.pack(">q", value.timestamp)


def decode_offset(data: bytes, position: int) -> Committed:
    """Decode a committed offset at a position of the journal."""
    reader = WireReader(memoryview(data))
    version, offset = reader.int16(), reader.int64()
    epoch = reader.int32() if version >= 3 else -1
    metadata, timestamp = reader.text() or "", reader.int64()
    return Committed(offset, epoch, metadata, timestamp, reader.int64() if version == 1 else -1, position)


def encode_group(value: Snapshot) -> bytes:
    """Encode a group."""
    head = struct.pack(">h", 3) + text(value.protocol_type) + struct.pack(">i", value.generation)
    middle = text(value.protocol) + text(value.leader) + struct.pack(">qi", value.since, len(value.members))
    return head + middle + b"".join(_encode_member(member) for member in value.members)


def decode_group(data: bytes) -> Snapshot:
    """Decode a group."""
    reader = WireReader(memoryview(data))
    version = reader.int16()
    protocol_type, generation = reader.text() or "", reader.int32()
    protocol, leader = reader.text(), reader.text()
    since = reader.int64() if version >= 2 else -1
    members = tuple(_decode_member(reader, version) for _ in range(reader.int32()))
    return Snapshot(protocol_type, generation, protocol, leader, since, members)


def _encode_member(member: MemberSnapshot) -> bytes:
    texts = (member.id, member.instance_id, member.client_id, member.client_host)
    timeouts = struct.pack(">ii", member.rebalance_timeout, member.session_timeout)
    return b"".join(map(text, texts)) + timeouts + blob(member.subscription) + blob(member.assignment)


def _decode_member(reader: WireReader, version: int) -> MemberSnapshot:
    id, instance = reader.text() or "", reader.text() if version >= 3 else None
    client, host = reader.text() or "", reader.text() or ""
    rebalance = reader.int32() if version >= 1 else -1
    session = reader.int32()
    rebalance = rebalance if rebalance >= 0 else session
    subscription, assignment = (bytes(reader.blob() or b"") for _ in range(2))
    return MemberSnapshot(id, instance, client, host, rebalance, session, subscription, assignment)
