"""The journal of groups and offsets: the internal topic `__consumer_offsets`."""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from penstock.kafka.records import COMMIT, Record, build_batch, control_outcome, decode_batch
from penstock.log.configs.topic import CONSUMER_OFFSETS
from penstock.log.errors import ErrorCode, LogError
from penstock.log.groups.classic.events import Snapshot
from penstock.log.groups.consumer import formats as consumer_formats
from penstock.log.groups.consumer.formats import ConsumerKey
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

if TYPE_CHECKING:
    from penstock.log.broker import Broker

log = logging.getLogger("penstock.log")
TOPIC = CONSUMER_OFFSETS
_TRANSACTIONAL = 0x10


Key = OffsetKey | GroupKey | ConsumerKey
Value = Committed | Snapshot | bytes | None  # None: a tombstone
Changes = (
    Mapping[OffsetKey, Committed | None]
    | Mapping[GroupKey, Snapshot | None]
    | Mapping[ConsumerKey, bytes | None]
    | Mapping[GroupKey | ConsumerKey, bytes | None]
)


class Change(NamedTuple):
    """One record of the journal. `producer_id` is -1 outside transactions."""

    producer_id: int
    key: Key
    value: Value
    position: int


class Decision(NamedTuple):
    """The end of a producer's transaction."""

    producer_id: int
    committed: bool


class Journal:
    """The compacted topic that stores groups and offsets."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    @property
    def end(self) -> int:
        """The offset of the next record."""
        return self._broker.store.partition(TOPIC, 0).end if TOPIC in self._broker.store.topics else 0

    async def write(self, changes: Changes, producer: tuple[int, int] | None = None) -> int:
        """Append changes as one batch, optionally in a producer's transaction (id, epoch); return the first offset.

        The append happens before the first await, which waits for the fsync.
        """
        now = self._broker.clock()
        records = [Record(_encode_key(key), _encode(value), timestamp=now) for key, value in changes.items()]
        id, epoch = producer or (-1, -1)
        kind = _TRANSACTIONAL if producer else 0
        batch = build_batch(records, producer_id=id, producer_epoch=epoch, attributes=kind)
        try:
            self._broker.store.create_internal(TOPIC)
            return await self._broker.write(TOPIC, 0, batch)
        except (LogError, OSError) as failure:  # such as a full disk; clients retry after this code
            raise LogError(ErrorCode.coordinator_not_available, f"cannot write to {TOPIC}: {failure}") from failure

    def replay(self) -> Iterator[Change | Decision]:
        """Yield all records, oldest first."""
        if TOPIC not in self._broker.store.topics:
            return
        for batch, data in self._broker.store.partition(TOPIC, 0).batches():
            if batch.is_control:
                yield Decision(batch.producer_id, control_outcome(data) == COMMIT)
            else:
                producer_id = batch.producer_id if batch.is_transactional else -1
                yield from _changes(producer_id, batch.base_offset, data)


def _changes(producer_id: int, offset: int, data: memoryview) -> Iterator[Change]:
    try:
        yield from (change for record in decode_batch(data) if (change := _decode(producer_id, record)))
    except (LogError, struct.error, ValueError) as error:
        # Before the name was reserved, clients could write anything to this topic.
        log.error("%s: the records from offset %d on are not the broker's own, skipped: %s", TOPIC, offset, error)


def _encode_key(key: Key) -> bytes:
    return consumer_formats.encode_key(key) if isinstance(key, ConsumerKey) else encode_key(key)


def _encode(value: Value) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    return encode_offset(value) if isinstance(value, Committed) else encode_group(value)


def _decode(producer_id: int, record: Record) -> Change | None:
    data, value, at = record.key or b"", record.value, record.offset
    key = decode_key(data) or consumer_formats.decode_key(data)
    if key is None or value is None:
        return key and Change(producer_id, key, None, at)
    if isinstance(key, ConsumerKey):
        return Change(producer_id, key, value, at)
    if isinstance(key, OffsetKey):
        return Change(producer_id, key, decode_offset(value, at), at)
    return Change(producer_id, key, decode_group(value), at)
