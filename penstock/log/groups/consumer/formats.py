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

from penstock.kafka.wire import varint
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
    data = struct.pack(">h", key.kind) + _short_text(key.group)
    return data if key.kind in (Kind.EPOCH, Kind.TARGET_EPOCH) else data + _short_text(key.member)


def decode_key(data: bytes) -> ConsumerKey | None:
    """Decode a key; None for one of another type."""
    (number,) = struct.unpack_from(">h", data)
    if number not in Kind.__members__.values():
        return None
    kind = Kind(number)
    texts = list(_short_texts(data))
    return ConsumerKey(kind, *texts[: 1 if kind in (Kind.EPOCH, Kind.TARGET_EPOCH) else 2])


def encode_epoch(epoch: int, topics_hash: int = 0) -> bytes:
    """Encode a group's epoch, or its target's; the hash is Kafka's tag 0."""
    tags = b"\1\0\x08" + struct.pack(">q", topics_hash) if topics_hash else b"\0"
    return struct.pack(">hi", 0, epoch) + tags


def encode_member(member: Member) -> bytes:
    """Encode a member's metadata."""
    texts = (member.instance_id, member.rack_id, member.client_id, member.client_host)
    topics = sorted(member.topics)
    names = varint(len(topics) + 1) + b"".join(map(_text, topics))
    timeout = struct.pack(">i", member.rebalance_timeout)
    described = b"".join(map(_text, texts)) + names + _text(member.regex or "") + timeout + _text(member.assignor)
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
    reader = _Reader(values[ConsumerKey(Kind.EPOCH, id)])
    epoch, tags = reader.number(">i"), reader.tags()
    topics_hash = struct.unpack(">q", tags[0])[0] if 0 in tags else 0
    target_epoch = values.get(ConsumerKey(Kind.TARGET_EPOCH, id))
    members = {
        key.member: _member(key.member, value, values.get(ConsumerKey(Kind.PROGRESS, id, key.member)))
        for key, value in values.items()
        if key.kind is Kind.MEMBER
    }
    target = {
        key.member: _Reader(value).partitions()
        for key, value in values.items()
        if key.kind is Kind.TARGET and key.member in members
    }
    reached = _Reader(target_epoch).number(">i") if target_epoch else 0
    return ConsumerGroup(id, epoch, reached, members, target, topics_hash)


def _member(id: str, value: bytes, progress: bytes | None) -> Member:
    reader = _Reader(value)
    instance, rack, client, host = (reader.text() for _ in range(4))
    topics = frozenset(reader.text() or "" for _ in range(reader.count()))
    regex, timeout, assignor = reader.text(), reader.number(">i"), reader.text()
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
    return _with_progress(member, _Reader(progress)) if progress else member


def _with_progress(member: Member, reader: _Reader) -> Member:
    epoch, previous, state = reader.number(">i"), reader.number(">i"), MemberState(reader.number(">b"))
    assigned, revoking = reader.partitions(), reader.partitions()
    return replace(member, epoch=epoch, previous_epoch=previous, state=state, assigned=assigned, revoking=revoking)


def _short_text(value: str) -> bytes:
    data = value.encode()
    return struct.pack(">h", len(data)) + data


def _short_texts(data: bytes) -> Iterator[str]:
    at = 2
    while at < len(data):
        (size,) = struct.unpack_from(">h", data, at)
        yield data[at + 2 : at + 2 + size].decode()
        at += 2 + size


def _text(value: str | None) -> bytes:
    data = b"" if value is None else value.encode()
    return b"\0" if value is None else varint(len(data) + 1) + data


def _partitions(partitions: Iterable[tuple[UUID, int]]) -> bytes:
    found = groupby(sorted(partitions), lambda each: each[0])
    topics = [(topic, [index for _, index in places]) for topic, places in found]
    entries = (
        topic.bytes + varint(len(indexes) + 1) + struct.pack(f">{len(indexes)}i", *indexes) + b"\0"
        for topic, indexes in topics
    )
    return varint(len(topics) + 1) + b"".join(entries)


class _Reader:
    """Reads the fields of a value in order, after its version."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 2

    def number(self, form: str) -> int:
        (value,) = struct.unpack_from(form, self._data, self._at)
        self._at += struct.calcsize(form)
        return int(value)

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._data[self._at]
            self._at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def count(self) -> int:
        return max(self.varint() - 1, 0)

    def text(self) -> str | None:
        size = self.varint()
        return None if size == 0 else self.raw(size - 1).decode()

    def raw(self, size: int) -> bytes:
        self._at += size
        return self._data[self._at - size : self._at]

    def tags(self) -> dict[int, bytes]:
        return {self.varint(): self.raw(self.varint()) for _ in range(self.varint())}

    def partitions(self) -> Partitions:
        found: set[tuple[UUID, int]] = set()
        for _ in range(self.count()):
            topic = UUID(bytes=self.raw(16))
            found.update((topic, self.number(">i")) for _ in range(self.count()))
            self.tags()
        return frozenset(found)
