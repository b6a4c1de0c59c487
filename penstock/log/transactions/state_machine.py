"""The state machine of a transactional id, pure: requests in, instructions out. The coordinator does the I/O.

    Empty ──add──> Ongoing ──end──> PrepareCommit ──markers──> CompleteCommit ──add──> Ongoing
                      └── end, timeout, a new producer ──> PrepareAbort ──> CompleteAbort

Invariants
- An outcome is in the log (Prepare...) before the first marker is written, and never changes after that.
- While a change (`pending`) or markers are being written, every other change is refused, not queued.
- Epochs only grow; only the newest one is accepted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any, NamedTuple

from penstock.log.errors import ErrorCode, LogError

MAX_TIMEOUT_MS = 15 * 60 * 1000
EXPIRY_MS = 7 * 24 * 60 * 60 * 1000
_LAST_EPOCH = 0x7FFE  # one more is reserved, to fence the producer with this epoch

TopicPartition = tuple[str, int]


class State(IntEnum):
    """The state of a transactional id; numbered as in Kafka's transaction log."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6

    @property
    def label(self) -> str:
        """Kafka's name of it."""
        return self.name.title().replace("_", "")

    @property
    def is_decided(self) -> bool:
        """Whether the outcome is decided but not all markers are written."""
        return self in (State.PREPARE_COMMIT, State.PREPARE_ABORT)


class Producer(NamedTuple):
    """A producer id and its epoch."""

    id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Transaction:
    """The state of a transactional id; one record of the transaction log. Times in ms."""

    transactional_id: str
    producer: Producer
    timeout: int = 60_000
    state: State = State.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    started: int = -1
    updated: int = -1
    previous: Producer | None = None  # requested the last epoch bump; its repeated request is answered, not fenced

    @property
    def deadline(self) -> int | None:
        """When an ongoing transaction is aborted."""
        return self.started + self.timeout if self.state is State.ONGOING else None


@dataclass(frozen=True, slots=True)
class Save:
    """Write this to the transaction log, then call `saved` or `failed` of the machine."""

    transaction: Transaction


@dataclass(frozen=True, slots=True)
class WriteMarkers:
    """Write markers to every partition, then call `markers_written`; writing one twice is harmless."""

    producer: Producer
    partitions: frozenset[TopicPartition]
    commit: bool


class TransactionMachine:
    """Requests return what to save, None if nothing has changed, or raise the error for the client."""

    def __init__(self, transaction: Transaction) -> None:
        self.current = transaction
        self.pending: Transaction | None = None

    def init(self, claim: Producer | None, timeout: int, now: int, new_producer_id: Callable[[], int]) -> Save:
        """Assign the id to a new producer, or only to the current one if `claim` is given.

        An ongoing transaction is aborted first; retry when that is done.
        """
        if not 0 < timeout <= MAX_TIMEOUT_MS:
            raise LogError(ErrorCode.invalid_transaction_timeout, f"1 to {MAX_TIMEOUT_MS} ms, not {timeout}")
        self._refuse_while_busy()
        self._check_claim(claim)
        if self.current.state is State.ONGOING:
            return self._fence(now)
        producer = self._next_producer(claim, new_producer_id)
        reset: dict[str, Any] = {"state": State.EMPTY, "partitions": frozenset(), "started": -1}
        return self._propose(now, producer=producer, previous=claim, timeout=timeout, **reset)

    def add(self, producer: Producer, partitions: Collection[TopicPartition], now: int) -> Save | None:
        """Add partitions to the transaction, which starts with the first ones."""
        self._check_producer(producer)
        self._refuse_while_busy()
        ongoing = self.current.state is State.ONGOING
        if ongoing and self.current.partitions.issuperset(partitions):
            return None
        started = self.current.started if ongoing else now
        joined = self.current.partitions.union(partitions)
        return self._propose(now, state=State.ONGOING, partitions=joined, started=started, previous=None)

    def end(self, producer: Producer, commit: bool, now: int) -> Save | None:
        """Decide the outcome; a repeated request is answered, the opposite one is refused."""
        self._check_producer(producer)
        self._refuse_while_writing()
        decided, done = _OUTCOMES[commit]
        if self.current.state is State.ONGOING:
            return self._propose(now, state=decided)
        if self.current.state is decided:
            raise LogError(ErrorCode.concurrent_transactions, "the markers are still being written")
        if self.current.state is not done:
            wanted = "commit" if commit else "abort"
            raise LogError(ErrorCode.invalid_txn_state, f"cannot {wanted}: the state is {self.current.state.label}")
        return None

    def verify(self, producer: Producer, partition: TopicPartition) -> ErrorCode | None:
        """Return why a producer may not write to a partition now."""
        latest = self.pending or self.current
        if producer.id != latest.producer.id:
            return ErrorCode.invalid_producer_id_mapping
        if producer.epoch != latest.producer.epoch:
            return ErrorCode.invalid_producer_epoch
        # A batch after the decision could follow the marker and would stay open forever.
        writable = latest.state is State.ONGOING and partition in self.current.partitions
        return None if writable else ErrorCode.invalid_txn_state

    def time_out(self, now: int) -> Save | None:
        """Abort a transaction that took too long, and fence its producer."""
        deadline = self.current.deadline
        return None if self.pending or deadline is None or now < deadline else self._fence(now)

    def expire(self, now: int) -> Save | None:
        """Remove an id that was not used for long."""
        busy = self.pending or self.current.state is State.ONGOING or self.current.state.is_decided
        return None if busy or now < self.current.updated + EXPIRY_MS else self._propose(now, state=State.DEAD)

    def resume(self) -> Save | None:
        """Continue after a crash or a failed write: a decided outcome is saved again, to be sure."""
        return self._propose(self.current.updated) if self.current.state.is_decided and not self.pending else None

    def saved(self) -> WriteMarkers | None:
        """Make the pending state the current one."""
        assert self.pending is not None  # guaranteed by the coordinator
        self.current, self.pending = self.pending, None
        if not self.current.state.is_decided:
            return None
        return WriteMarkers(self.current.producer, self.current.partitions, self.current.state is State.PREPARE_COMMIT)

    def failed(self) -> None:
        """Drop the pending state, which could not be saved."""
        self.pending = None

    def markers_written(self, now: int) -> Save:
        """Complete the transaction: every marker is written."""
        done = _OUTCOMES[self.current.state is State.PREPARE_COMMIT][1]
        return self._propose(now, state=done, partitions=frozenset())

    def _propose(self, now: int, **changes: Any) -> Save:
        self.pending = replace(self.current, updated=now, **changes)
        return Save(self.pending)

    def _fence(self, now: int) -> Save:
        # The markers have the new epoch, so that the partitions fence the old producer too.
        fence = self.current.producer._replace(epoch=self.current.producer.epoch + 1)
        return self._propose(now, state=State.PREPARE_ABORT, producer=fence, previous=None)

    def _next_producer(self, claim: Producer | None, new_producer_id: Callable[[], int]) -> Producer:
        holder = self.current.producer
        if claim and claim == self.current.previous:
            return holder
        return Producer(new_producer_id(), 0) if holder.epoch >= _LAST_EPOCH else Producer(holder.id, holder.epoch + 1)

    def _check_claim(self, claim: Producer | None) -> None:
        is_new = self.current.producer.epoch < 0
        if claim and not is_new and claim not in (self.current.producer, self.current.previous):
            raise LogError(ErrorCode.producer_fenced, "another producer has taken this transactional id over")

    def _check_producer(self, producer: Producer) -> None:
        if producer.id != self.current.producer.id:
            raise LogError(ErrorCode.invalid_producer_id_mapping, "the transactional id has another producer id")
        if producer.epoch != self.current.producer.epoch:
            raise LogError(ErrorCode.producer_fenced, "another producer has taken this transactional id over")

    def _refuse_while_busy(self) -> None:
        self._refuse_while_writing()
        if self.current.state.is_decided:
            raise LogError(ErrorCode.concurrent_transactions, "the markers are still being written")

    def _refuse_while_writing(self) -> None:
        if self.pending:
            raise LogError(ErrorCode.concurrent_transactions, "another change of this transaction is being written")


_OUTCOMES = {
    True: (State.PREPARE_COMMIT, State.COMPLETE_COMMIT),
    False: (State.PREPARE_ABORT, State.COMPLETE_ABORT),
}
