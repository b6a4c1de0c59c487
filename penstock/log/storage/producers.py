"""What a partition knows of the producers that wrote to it: sequences, epochs and open transactions."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from penstock.log.errors import ErrorCode, LogError
from penstock.log.storage.batches import Batch

_REMEMBERED = 5  # batches that a client may have in flight, hence may send again
_EXPIRE_MS = 24 * 3600 * 1000


class Written(NamedTuple):
    """A batch that was accepted: its sequences and where it went."""

    first: int
    last: int
    offset: int


@dataclass(slots=True)
class Producer:
    """One producer id on one partition; `timestamp` is when it was last heard of, whatever its records say."""

    epoch: int
    timestamp: int
    recent: deque[Written] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))


class Aborted(NamedTuple):
    """A transaction that was aborted: its records on this partition are between the two offsets."""

    producer_id: int
    first: int
    last: int
    stable: int


class Producers:
    """All producers of one partition. `open` maps producer id to the first offset of its transaction, oldest first."""

    __slots__ = ("_known", "open")

    def __init__(self) -> None:
        self._known: dict[int, Producer] = {}
        self.open: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._known)

    def get(self, producer_id: int) -> Producer | None:
        """Return what is known of a producer."""
        return self._known.get(producer_id)

    def items(self) -> list[tuple[int, Producer]]:
        """Return all, for those who describe them."""
        return list(self._known.items())

    def duplicate_of(self, batch: Batch) -> int | None:
        """Return the offset that a batch got when it came first; None if it is new. Refuse what is out of order."""
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

    def _check_sequence(self, producer: Producer, batch: Batch) -> None:
        if batch.producer_epoch > producer.epoch:
            expected = 0
        elif producer.recent:
            expected = (producer.recent[-1].last + 1) & 0x7FFFFFFF
        else:
            return
        if batch.base_sequence != expected:
            message = f"producer {batch.producer_id} sent sequence {batch.base_sequence}, expected {expected}"
            raise LogError(ErrorCode.out_of_order_sequence_number, message)

    def _check_transaction(self, batch: Batch) -> None:
        if batch.producer_id in self.open and not batch.is_transactional:
            message = f"producer {batch.producer_id} wrote outside its open transaction"
            raise LogError(ErrorCode.invalid_txn_state, message)

    def wrote(self, batch: Batch, offset: int, now: int) -> None:
        """Remember a batch of a producer that went to an offset."""
        producer = self._of_epoch(batch, now)
        producer.recent.append(Written(batch.base_sequence, batch.last_sequence, offset))
        if batch.is_transactional:
            self.open.setdefault(batch.producer_id, offset)

    def ended(self, batch: Batch, now: int) -> int | None:
        """A control batch closes the producer's transaction; return its first offset if one was open."""
        self._of_epoch(batch, now)
        return self.open.pop(batch.producer_id, None)

    def _of_epoch(self, batch: Batch, now: int) -> Producer:
        producer = self._known.get(batch.producer_id)
        if producer is None or producer.epoch != batch.producer_epoch:
            producer = self._known[batch.producer_id] = Producer(batch.producer_epoch, now)
        producer.timestamp = max(producer.timestamp, now)
        return producer

    def expire(self, now: int, after: int = _EXPIRE_MS) -> None:
        """Forget producers that were silent for so long and have no open transaction."""
        old = [key for key, one in self._known.items() if now - one.timestamp > after and key not in self.open]
        for key in old:
            del self._known[key]

    def encoded(self) -> dict[str, Any]:
        """Return all of it for a snapshot."""
        return {
            "known": [[key, one.epoch, one.timestamp, list(one.recent)] for key, one in self._known.items()],
            "open": list(self.open.items()),
        }

    @classmethod
    def decoded(cls, data: dict[str, Any]) -> Producers:
        """Return what a snapshot holds."""
        producers = cls()
        for key, epoch, timestamp, recent in data["known"]:
            written = deque((Written(*each) for each in recent), maxlen=_REMEMBERED)
            producers._known[key] = Producer(epoch, timestamp, written)
        producers.open = dict(data["open"])
        return producers
