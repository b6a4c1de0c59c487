from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from penstock.log.errors import ErrorCode, LogError
from penstock.log.groups.events import Snapshot
from penstock.log.groups.formats import (
    Committed,
    GroupKey,
    OffsetKey,
    decode_group,
    decode_key,
    decode_offset,
    encode_group,
    encode_key,
    encode_offset,
)
from penstock.log.storage.records import COMMIT, Record, build_batch, marker_outcome, open_batch

if TYPE_CHECKING:
    from penstock.log.broker import Broker

TOPIC = "__consumer_offsets"
# All of it is read at start, and only closed segments are compacted: small ones keep the start short.
_SETTINGS = {"cleanup.policy": "compact", "segment.bytes": str(8 << 20)}
_TRANSACTIONAL = 0x10


Key = OffsetKey | GroupKey
Value = Committed | Snapshot | None  # None: the key is gone
Changes = Mapping[OffsetKey, Committed | None] | Mapping[GroupKey, Snapshot | None] | Mapping[Key, None]


class Change(NamedTuple):
    """One line of the journal. `producer_id` is -1 outside transactions."""

    producer_id: int
    key: Key
    value: Value
    position: int


class Decision(NamedTuple):
    """A producer's transaction has ended."""

    producer_id: int
    committed: bool


class Journal:
    """The compacted topic that remembers groups and offsets."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    @property
    def end(self) -> int:
        """Where the next change goes."""
        return self._broker.store.partition(TOPIC, 0).end if TOPIC in self._broker.store.topics else 0

    async def write(self, changes: Changes, producer: tuple[int, int] | None = None) -> int:
        """Append changes as one batch, perhaps of a producer's transaction (id, epoch); return where the first went.

        The append happens at once, before the first wait; the wait is for the disk.
        """
        now = self._broker.clock()
        records = [Record(encode_key(key), _encode(value), timestamp=now) for key, value in changes.items()]
        id, epoch = producer or (-1, -1)
        kind = _TRANSACTIONAL if producer else 0
        batch = build_batch(records, producer_id=id, producer_epoch=epoch, attributes=kind)
        try:
            self._ensure_topic()
            return await self._broker.write(TOPIC, 0, batch)
        except (LogError, OSError) as failure:  # a full disk; clients ask again when they hear this
            raise LogError(ErrorCode.coordinator_not_available, f"cannot write to {TOPIC}: {failure}") from failure

    def replay(self) -> Iterator[Change | Decision]:
        """Yield everything that was written, oldest first."""
        if TOPIC not in self._broker.store.topics:
            return
        for batch, data in self._broker.store.partition(TOPIC, 0).batches():
            if batch.is_control:
                yield Decision(batch.producer_id, marker_outcome(data) == COMMIT)
            else:
                producer_id = batch.producer_id if batch.is_transactional else -1
                yield from (change for record in open_batch(data) if (change := _decode(producer_id, record)))

    def _ensure_topic(self) -> None:
        if TOPIC not in self._broker.store.topics:
            self._broker.store.create_topic(TOPIC, 1, _SETTINGS, internal=True)


def _encode(value: Value) -> bytes | None:
    if value is None:
        return None
    return encode_offset(value) if isinstance(value, Committed) else encode_group(value)


def _decode(producer_id: int, record: Record) -> Change | None:
    key, value, at = decode_key(record.key or b""), record.value, record.offset
    if key is None or value is None:
        return key and Change(producer_id, key, None, at)
    if isinstance(key, OffsetKey):
        return Change(producer_id, key, decode_offset(value, at), at)
    return Change(producer_id, key, decode_group(value), at)
