"""Rewriting a batch during compaction: records are removed, offsets and sequences stay."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import NamedTuple

from penstock.kafka.batches import HAS_HORIZON, HEADER_SIZE, BatchHeader, write_header
from penstock.kafka.compression import compress
from penstock.kafka.records import decompress_records, key_and_value, raw_records
from penstock.kafka.wire import zigzag
from penstock.log.errors import LogError
from penstock.log.storage.producer_state import AbortedTxn

_CODEC = 0x07


def key_hash(key: bytes) -> bytes:
    """Return the hash of a key in the offset map: 16 bytes, however long the key is."""
    return blake2b(key, digest_size=16).digest()


class AbortedRanges:
    """Which batches belong to transactions that were aborted."""

    def __init__(self, aborted: Iterable[AbortedTxn]) -> None:
        self._ranges: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        for each in aborted:
            self._ranges[each.producer_id].append((each.first, each.last))

    def contains(self, batch: BatchHeader) -> bool:
        """Return whether a batch belongs to an aborted transaction."""
        if not batch.is_transactional or batch.is_control:
            return False
        return any(first <= batch.base_offset < last for first, last in self._ranges.get(batch.producer_id, ()))


class MustRetain(NamedTuple):
    """What has to be retained, if only as an empty batch.

    The last batches of the known producers, by offset, or the epochs of their last markers; and the last offset of
    all, without which a consumer that reads to the end would wait forever.
    """

    batches: frozenset[int]
    markers: Mapping[int, int]
    offset: int


class _RetainedRecord(NamedTuple):
    timestamp: int
    offset_delta: int
    rest: bytes  # key, value and headers, as they came
    is_tombstone: bool


@dataclass
class Rewriter:
    """Cleans batches in the order of the log, up to offset `end`; `newest` maps each key to its last offset."""

    newest: Mapping[bytes, int]
    end: int
    aborted: AbortedRanges
    last: MustRetain
    now: int
    delete_retention_ms: int
    _has_records: dict[int, bool] = field(default_factory=dict)  # by producer, since its last marker

    def rewrite(self, batch: BatchHeader, data: memoryview) -> memoryview | None:
        """Return the cleaned batch: the same bytes, a rebuilt batch, or None to drop it."""
        if batch.base_offset >= self.end:
            return data
        if batch.is_control:
            return self._marker(batch, data)
        if self.aborted.contains(batch):
            return self._emptied(batch)
        try:
            return self._records(batch, data)
        except LogError:
            self._has_records[batch.producer_id] = True
            return data  # its records cannot be decoded, so their keys are unknown

    def _marker(self, batch: BatchHeader, data: memoryview) -> memoryview | None:
        decides = self._has_records.pop(batch.producer_id, False)
        if decides or self._is_last(batch) or self.last.markers.get(batch.producer_id) == batch.producer_epoch:
            return data
        if batch.horizon is None:
            kept, _ = self._split(batch, data)
            return _rebuilt(batch, kept, self.now + self.delete_retention_ms)
        return None if batch.horizon <= self.now else data

    def _records(self, batch: BatchHeader, data: memoryview) -> memoryview | None:
        kept, dropped = self._split(batch, data)
        if not kept:
            return data if not batch.record_count and self._is_last(batch) else self._emptied(batch)
        self._has_records[batch.producer_id] = True
        tombstones = any(record.is_tombstone for record in kept)
        if not dropped and tombstones == (batch.horizon is not None):
            return data
        horizon = batch.horizon if batch.horizon is not None else self.now + self.delete_retention_ms
        return _rebuilt(batch, kept, horizon if tombstones else None)

    def _split(self, batch: BatchHeader, data: memoryview) -> tuple[list[_RetainedRecord], int]:
        body, kept = decompress_records(data), []
        over = batch.horizon is not None and batch.horizon <= self.now
        for time, delta, start, end in raw_records(body, batch.record_count):
            key, has_value = key_and_value(body, start)
            gone = key is not None and self._is_old(key, batch.base_offset + delta)
            if batch.is_control or not (gone or (over and not has_value)):
                kept.append(_RetainedRecord(batch.first_timestamp + time, delta, body[start:end], not has_value))
        return kept, batch.record_count - len(kept)

    def _is_old(self, key: bytes, offset: int) -> bool:
        return self.newest.get(key_hash(key), -1) > offset

    def _emptied(self, batch: BatchHeader) -> memoryview | None:
        return _rebuilt(batch, [], None) if self._is_last(batch) else None

    def _is_last(self, batch: BatchHeader) -> bool:
        return batch.base_offset in self.last.batches or batch.last_offset == self.last.offset


def _rebuilt(batch: BatchHeader, kept: list[_RetainedRecord], horizon: int | None) -> memoryview:
    attributes = batch.attributes & ~HAS_HORIZON | (0 if horizon is None else HAS_HORIZON)
    first, newest = batch.first_timestamp, batch.max_timestamp
    if horizon is not None:
        first = horizon
    elif kept:
        first = kept[0].timestamp
    if kept and not batch.is_stamped:
        newest = max(record.timestamp for record in kept)
    if not kept:
        attributes &= ~_CODEC
    body = b"".join(_encoded(record, first) for record in kept)
    data = bytearray(HEADER_SIZE) + compress(attributes & _CODEC, body)
    changes = {"attributes": attributes, "first_timestamp": first, "max_timestamp": newest, "record_count": len(kept)}
    write_header(data, batch._replace(**changes))
    return memoryview(data)


def _encoded(record: _RetainedRecord, first: int) -> bytes:
    body = b"\0" + zigzag(record.timestamp - first) + zigzag(record.offset_delta) + record.rest
    return zigzag(len(body)) + body
