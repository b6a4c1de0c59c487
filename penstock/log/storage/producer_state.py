"""The producer state of a partition: sequences, epochs and open transactions."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from penstock.kafka.batches import BatchHeader
from penstock.log.errors import ErrorCode, LogError

_REMEMBERED = 5  # batches that a client may have in flight, hence may send again
_EXPIRE_MS = 24 * 3600 * 1000


class BatchMetadata(NamedTuple):
    """An accepted batch: its sequences and its offset."""

    first: int
    last: int
    offset: int


@dataclass(slots=True)
class ProducerState:
    """One producer id on one partition; `timestamp` is the broker's time of its last batch."""

    epoch: int
    timestamp: int
    recent: deque[BatchMetadata] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))


class AbortedTxn(NamedTuple):
    """An aborted transaction: its records on this partition are between the two offsets."""

    producer_id: int
    first: int
    last: int
    last_stable_offset: int


class ProducerStates:
    """All producers of one partition. `open` maps producer id to the first offset of its transaction, oldest first."""

    __slots__ = ("_known", "open")

    def __init__(self) -> None:
        self._known: dict[int, ProducerState] = {}
        self.open: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._known)

    def get(self, producer_id: int) -> ProducerState | None:
        """Return the state of a producer."""
        return self._known.get(producer_id)

    def items(self) -> list[tuple[int, ProducerState]]:
        """Return all producers by id."""
        return list(self._known.items())

    def duplicate_of(self, batch: BatchHeader) -> int | None:
        """Return the offset of an earlier copy of a batch; None if it is new. Refuse one that is out of order."""
        producer = self._known.get(batch.producer_id)
        if producer is None:
            # Unknown, perhaps expired or deleted by retention: then any sequence is accepted, as in Kafka.
            return None
        if batch.producer_epoch < producer.epoch:
            message = f"producer {batch.producer_id} has epoch {producer.epoch}, not {batch.producer_epoch}"
            raise LogError(ErrorCode.invalid_producer_epoch, message)
        if batch.producer_epoch == producer.epoch:
            for written in producer.recent:
                if written.first == batch.base_sequence and written.last == batch.last_sequence:
                    return written.offset
        self._check_sequence(producer, batch)
        self._check_transaction(batch)
        return None

    def _check_sequence(self, producer: ProducerState, batch: BatchHeader) -> None:
        if batch.producer_epoch > producer.epoch:
            expected = 0
        elif producer.recent:
            expected = (producer.recent[-1].last + 1) & 0x7FFFFFFF
        else:
            return
        if batch.base_sequence != expected:
            message = f"producer {batch.producer_id} sent sequence {batch.base_sequence}, expected {expected}"
            raise LogError(ErrorCode.out_of_order_sequence_number, message)

    def _check_transaction(self, batch: BatchHeader) -> None:
        if batch.producer_id in self.open and not batch.is_transactional:
            message = f"producer {batch.producer_id} wrote outside its open transaction"
            raise LogError(ErrorCode.invalid_txn_state, message)

    def record_batch(self, batch: BatchHeader, offset: int, now: int) -> None:
        """Record a batch that was appended at an offset."""
        producer = self._of_epoch(batch, now)
        producer.recent.append(BatchMetadata(batch.base_sequence, batch.last_sequence, offset))
        if batch.is_transactional:
            self.open.setdefault(batch.producer_id, offset)

    def end_transaction(self, batch: BatchHeader, now: int) -> int | None:
        """End the producer's transaction by its control batch; return its first offset if one was open."""
        self._of_epoch(batch, now)
        return self.open.pop(batch.producer_id, None)

    def _of_epoch(self, batch: BatchHeader, now: int) -> ProducerState:
        producer = self._known.get(batch.producer_id)
        if producer is None or producer.epoch != batch.producer_epoch:
            producer = self._known[batch.producer_id] = ProducerState(batch.producer_epoch, now)
        producer.timestamp = max(producer.timestamp, now)
        return producer

    def expire(self, now: int, after: int = _EXPIRE_MS) -> None:
        """Remove producers that sent nothing for so long and have no open transaction."""
        old = [key for key, one in self._known.items() if now - one.timestamp > after and key not in self.open]
        for key in old:
            del self._known[key]

    def encoded(self) -> dict[str, Any]:
        """Encode the states for a snapshot."""
        return {
            "known": [[key, one.epoch, one.timestamp, list(one.recent)] for key, one in self._known.items()],
            "open": list(self.open.items()),
        }

    @classmethod
    def decoded(cls, data: dict[str, Any]) -> ProducerStates:
        """Decode the states of a snapshot."""
        producers = cls()
        for key, epoch, timestamp, recent in data["known"]:
            written = deque((BatchMetadata(*each) for each in recent), maxlen=_REMEMBERED)
            producers._known[key] = ProducerState(epoch, timestamp, written)
        producers.open = dict(data["open"])
        return producers
