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
_TRANSACTIONAL = 0x10


Key = OffsetKey | GroupKey
Value = Committed | Snapshot | None  # None: the key is gone
Changes = Mapping[OffsetKey, Committed | None] | Mapping[GroupKey, Snapshot | None] | Mapping[Key, None]


class Change(NamedTuple):
    """One line of the journal. `producer_id` is -1 outside transactions."""

    producer_id: int
    key: Key
    value: Value


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
        self._ensure_topic()
        return self._broker.store.partition(TOPIC, 0).end

    async def write(self, changes: Changes, producer: tuple[int, int] | None = None) -> int:
        """Append changes as one batch, perhaps of a producer's transaction (id, epoch); return where the first went.

        The append happens at once, before the first wait; the wait is for the disk.
        """
        now = self._broker.clock()
        records = [Record(encode_key(key), _encode(value), timestamp=now) for key, value in changes.items()]
        id, epoch = producer or (-1, -1)
        kind = _TRANSACTIONAL if producer else 0
        batch = build_batch(records, producer_id=id, producer_epoch=epoch, attributes=kind)
        self._ensure_topic()
        try:
            return await self._broker.write(TOPIC, 0, batch)
        except LogError as failure:
            raise LogError(ErrorCode.coordinator_not_available, failure.message) from failure

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
            self._broker.store.create_topic(TOPIC, 1, {"cleanup.policy": "compact"}, internal=True)


def _encode(value: Value) -> bytes | None:
    if value is None:
        return None
    return encode_offset(value) if isinstance(value, Committed) else encode_group(value)


def _decode(producer_id: int, record: Record) -> Change | None:
    key = decode_key(record.key or b"")
    if key is None or record.value is None:
        return key and Change(producer_id, key, None)
    if isinstance(key, OffsetKey):
        return Change(producer_id, key, decode_offset(record.value, record.offset))
    return Change(producer_id, key, decode_group(record.value))
