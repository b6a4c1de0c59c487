"""Consumer groups in `__consumer_offsets`, in Apache Kafka's own formats.

One record each for the group's epoch (3), a member (5), the epoch of the target (6), a member's target (7) and a
member's current assignment (8). Kafka also stores the matches of regular expressions (16); here they are recomputed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from enum import IntEnum
from itertools import groupby
from typing import NamedTuple
from uuid import UUID

from penstock.kafka.wire import WireReader, count, text
from penstock.log.groups.consumer.state import ConsumerGroup, Member, MemberState, Partitions


class Kind(IntEnum):
    """The type of a record."""

    EPOCH = 3
    MEMBER = 5
    TARGET_EPOCH = 6
    TARGET = 7
    PROGRESS = 8


class ConsumerKey(NamedTuple):
    """The key of a record."""

    kind: Kind
    group: str
    member: str = ""


Changes = dict[ConsumerKey, bytes | None]


def changes(before: ConsumerGroup | None, after: ConsumerGroup) -> Changes:
    """Return the records of the changes from one group state to the next."""
    old = before or ConsumerGroup(after.id)
    found: Changes = {}
    for id in old.members.keys() - after.members.keys():
        found |= {ConsumerKey(kind, after.id, id): None for kind in (Kind.PROGRESS, Kind.TARGET, Kind.MEMBER)}
    changed = [each for id, each in after.members.items() if old.members.get(id) is not each]
    for member in changed:
        known = old.members.get(member.id)
        if known is None or known.metadata != member.metadata:
            found[ConsumerKey(Kind.MEMBER, after.id, member.id)] = encode_member(member)
    if before is None or (old.epoch, old.topics_hash) != (after.epoch, after.topics_hash):
        found[ConsumerKey(Kind.EPOCH, after.id)] = encode_epoch(after.epoch, after.topics_hash)
    if after.target is not old.target:
        for id, target in after.target.items():
            if old.target.get(id) != target:
                found[ConsumerKey(Kind.TARGET, after.id, id)] = encode_target(target)
    if old.target_epoch != after.target_epoch:
        found[ConsumerKey(Kind.TARGET_EPOCH, after.id)] = encode_epoch(after.target_epoch)
    for member in changed:
        known = old.members.get(member.id)
        if known is None or known.progress != member.progress:
            found[ConsumerKey(Kind.PROGRESS, after.id, member.id)] = encode_progress(member)
    return found


def deletion(group: ConsumerGroup) -> Changes:
    """Return the tombstones of a group without members."""
    return {ConsumerKey(kind, group.id): None for kind in (Kind.TARGET_EPOCH, Kind.EPOCH)}


def encode_key(key: ConsumerKey) -> bytes:
    """Encode a key."""
    data = struct.pack(">h", key.kind) + text(key.group)
    return data if key.kind in (Kind.EPOCH, Kind.TARGET_EPOCH) else data + text(key.member)


def decode_key(data: bytes) -> ConsumerKey | None:
    """Decode a key; None for one of another type."""
    (number,) = struct.unpack_from(">h", data)
    if number not in Kind.__members__.values():
        return None
    kind = Kind(number)
    reader = WireReader(memoryview(data), at=2)
    group = reader.text() or ""
    return ConsumerKey(kind, group, "" if kind in (Kind.EPOCH, Kind.TARGET_EPOCH) else reader.text() or "")


def encode_epoch(epoch: int, topics_hash: int = 0) -> bytes:
    """Encode a group's epoch, or its target's; the hash is Kafka's tag 0."""
    tags = b"\1\0\x08" + struct.pack(">q", topics_hash) if topics_hash else b"\0"
    return struct.pack(">hi", 0, epoch) + tags


def encode_member(member: Member) -> bytes:
    """Encode a member's metadata."""
    texts = (member.instance_id, member.rack_id, member.client_id, member.client_host)
    topics = sorted(member.topics)
    names = count(len(topics), True) + _texts(*topics)
    timeout = struct.pack(">i", member.rebalance_timeout)
    described = _texts(*texts) + names + _texts(member.regex or "") + timeout + _texts(member.assignor)
    return b"\0\0" + described + b"\0"


def encode_target(partitions: Partitions) -> bytes:
    """Encode a member's target assignment."""
    return b"\0\0" + _partitions(partitions) + b"\0"


def encode_progress(member: Member) -> bytes:
    """Encode a member's current assignment."""
    head = struct.pack(">hiib", 0, member.epoch, member.previous_epoch, member.state)
    return head + _partitions(member.assigned) + _partitions(member.revoking) + b"\0"


class Replay:
    """Restores groups from the records of the log."""

    def __init__(self) -> None:
        self._values: dict[str, dict[ConsumerKey, bytes]] = {}

    def follow(self, key: ConsumerKey, value: bytes | None) -> None:
        """Apply the next record."""
        known = self._values.setdefault(key.group, {})
        if value is None:
            known.pop(key, None)
        else:
            known[key] = value

    def groups(self) -> Iterator[ConsumerGroup]:
        """Yield the restored groups."""
        for id, values in self._values.items():
            if ConsumerKey(Kind.EPOCH, id) in values:
                yield _restored(id, values)


def _restored(id: str, values: Mapping[ConsumerKey, bytes]) -> ConsumerGroup:
    reader = _reader(values[ConsumerKey(Kind.EPOCH, id)])
    epoch, tags = reader.int32(), dict(reader.tags())
    topics_hash = struct.unpack(">q", tags[0])[0] if 0 in tags else 0
    target_epoch = values.get(ConsumerKey(Kind.TARGET_EPOCH, id))
    members = {
        key.member: _member(key.member, value, values.get(ConsumerKey(Kind.PROGRESS, id, key.member)))
        for key, value in values.items()
        if key.kind is Kind.MEMBER
    }
    target = {
        key.member: _read_partitions(_reader(value))
        for key, value in values.items()
        if key.kind is Kind.TARGET and key.member in members
    }
    reached = _reader(target_epoch).int32() if target_epoch else 0
    return ConsumerGroup(id, epoch, reached, members, target, topics_hash)


def _member(id: str, value: bytes, progress: bytes | None) -> Member:
    reader = _reader(value)
    instance, rack, client, host = (reader.text() for _ in range(4))
    topics = frozenset(name or "" for name in reader.each(WireReader.text))
    regex, timeout, assignor = reader.text(), reader.int32(), reader.text()
    member = Member(
        id=id,
        instance_id=instance,
        rack_id=rack,
        client_id=client or "",
        client_host=host or "",
        rebalance_timeout=timeout,
        topics=topics,
        regex=regex or None,
        assignor=assignor,
    )
    return _with_progress(member, _reader(progress)) if progress else member


def _with_progress(member: Member, reader: WireReader) -> Member:
    epoch, previous, state = reader.int32(), reader.int32(), MemberState(reader.int8())
    assigned, revoking = _read_partitions(reader), _read_partitions(reader)
    return replace(member, epoch=epoch, previous_epoch=previous, state=state, assigned=assigned, revoking=revoking)


def _texts(*values: str | None) -> bytes:
    return b"".join(text(value, flexible=True) for value in values)


def _partitions(partitions: Iterable[tuple[UUID, int]]) -> bytes:
    found = groupby(sorted(partitions), lambda each: each[0])
    topics = [(topic, [index for _, index in places]) for topic, places in found]
    entries = (
        topic.bytes + count(len(indexes), True) + struct.pack(f">{len(indexes)}i", *indexes) + b"\0"
        for topic, indexes in topics
    )
    return count(len(topics), True) + b"".join(entries)


def _reader(value: bytes) -> WireReader:
    """Return a reader of a value's fields, after its version."""
    return WireReader(memoryview(value), flexible=True, at=2)


def _read_partitions(reader: WireReader) -> Partitions:
    found: set[tuple[UUID, int]] = set()
    for topic, indexes in reader.each(_read_topic):
        found.update((topic, index) for index in indexes)
    return frozenset(found)


def _read_topic(reader: WireReader) -> tuple[UUID, list[int]]:
    topic, indexes = UUID(bytes=bytes(reader.raw(16))), reader.each(WireReader.int32)
    reader.skip_tags()
    return topic, indexes
