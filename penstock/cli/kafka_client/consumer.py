"""The consumer of `penstock consume`, with librdkafka (loaded with this module)."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Self
from uuid import uuid4

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_INVALID,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from penstock.cli.kafka_client.cluster import Cluster
from penstock.errors import NoBroker, SourceFailed

BATCH = 5_000
WAIT = 0.2
COMMIT_EVERY = 1.0
REFRESH_EVERY = 5.0
# The group has rebalanced: the next owner of the partition prints again what could not be committed.
_TOO_LATE = (KafkaError.REBALANCE_IN_PROGRESS, KafkaError.ILLEGAL_GENERATION, KafkaError.UNKNOWN_MEMBER_ID)


class TopicReader:
    """Reads partitions from their starts to their ends, and commits what was printed if there is a group.

    A partition without a start starts at the committed offset of the group, else at its beginning. Without ends
    it follows the topic. `say` gets messages about transient errors.
    """

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        starts: dict[int, int],
        ends: dict[int, int] | None,
        *,
        group: str | None,
        uncommitted: bool,
        say: Callable[[str], None],
    ) -> None:
        self._cluster, self._topic, self._group, self._say = cluster, topic, group, say
        self._starts, self._ends = dict(starts), ends
        self._assigned = self._shared = self._growing = False
        self._known: set[int] = set()
        self._open: set[int] = set()
        self._next: dict[int, int] = {}
        self._printed: dict[int, int] = {}
        self._asked: dict[int, int] = {}
        self._commit_at = self._refresh_at = time.monotonic() + COMMIT_EVERY
        self._consumer = Consumer(
            cluster.config(
                group_id=group or f"penstock-consume-{uuid4()}",
                isolation_level="read_uncommitted" if uncommitted else "read_committed",
                enable_auto_commit=False,
                auto_offset_reset="error",
                enable_partition_eof=True,
                fetch_wait_max_ms=500 if ends is None else 50,
                topic_metadata_refresh_interval_ms=int(REFRESH_EVERY * 1000),
                session_timeout_ms=10_000,  # also bounds how long librdkafka waits for an unreachable broker at the end
            )
        )

    def share(self) -> None:
        """Read the partitions that the group assigns."""
        self._shared = True
        self._consumer.subscribe(
            [self._topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
        )

    def own(self, partitions: list[int], *, growing: bool) -> None:
        """Read these partitions without group management; if growing, also those that are added later."""
        self._known |= set(partitions)
        self._growing = growing
        self._on_assign(self._consumer, [TopicPartition(self._topic, each) for each in partitions])

    @property
    def done(self) -> bool:
        """Whether every partition is at its end."""
        return self._assigned and not self._open and self._ends is not None

    def read(self, limit: int) -> list[Message]:
        """Return some of the next records, or none if there are none yet."""
        found = self._consumer.consume(1, WAIT)
        if found and limit > 1:
            found += self._consumer.consume(min(limit - 1, BATCH), 0)
        if time.monotonic() >= self._refresh_at:
            self._refresh_metadata()
        return [message for message in found if self._wants(message)]

    def printed(self) -> None:
        """Mark everything read so far as printed, so that it can be committed."""
        self._printed = dict(self._next)
        if self._group and self._printed != self._asked and time.monotonic() >= self._commit_at:
            # Asynchronous: an unreachable broker would block for minutes. The last commit waits.
            self._consumer.commit(offsets=self._offsets(), asynchronous=True)
            self._asked = self._printed
            self._commit_at = time.monotonic() + COMMIT_EVERY

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        # Fail early if the broker is unreachable: commit and close would block for minutes.
        if self._group:
            self._cluster.topics()
        try:
            self._commit()
        finally:
            self._printed = {}
            self._consumer.close()

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        unknown = [each for each in partitions if each.partition not in self._starts]
        if unknown and self._group:
            committed = consumer.committed(unknown, timeout=self._cluster.patience["request_timeout"])
            self._starts |= {each.partition: each.offset for each in committed if each.offset != OFFSET_INVALID}
        for each in partitions:
            # Used once: after a rebalance the committed offset counts.
            each.offset = self._starts.pop(each.partition, OFFSET_BEGINNING)
        self._assigned = True
        self._open |= {each.partition for each in partitions if not self._is_at_end(each.partition, each.offset)}
        self._next |= {each.partition: each.offset for each in partitions if each.offset >= 0}
        if self._shared:
            consumer.assign(partitions)
        else:
            consumer.incremental_assign(partitions)

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        try:
            self._commit()
        except KafkaException as error:
            if error.args[0].code() not in _TOO_LATE:
                raise
        self._on_lost(consumer, partitions)

    def _on_lost(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        lost = {each.partition for each in partitions}
        self._open -= lost
        for offsets in (self._next, self._printed):
            for partition in lost:
                offsets.pop(partition, None)

    def _wants(self, message: Message) -> bool:
        error, partition, offset = message.error(), message.partition(), message.offset()
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            self._handle_error(error)
            return False
        if partition not in self._open or partition is None or offset is None:
            return False
        position = offset if error else offset + 1
        wanted = not error and not self._is_at_end(partition, offset)
        if wanted or error:
            self._next[partition] = position
        if self._is_at_end(partition, position):
            self._open.discard(partition)
            self._consumer.pause([TopicPartition(self._topic, partition)])
        return wanted

    def _is_at_end(self, partition: int, offset: int) -> bool:
        return self._ends is not None and offset >= self._ends.get(partition, 0)

    def _handle_error(self, error: KafkaError) -> None:
        if error.code() == KafkaError._AUTO_OFFSET_RESET:
            message = f"topic '{self._topic}' no longer has the offset to continue from: {error.str()}"
            raise SourceFailed(
                message, hint="choose another start with --from, or reset the group: penstock group reset"
            )
        if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            message = f"topic '{self._topic}' was deleted"
            raise SourceFailed(message)
        irrelevant = error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED and not self._group
        if not (error.retriable() or irrelevant or error.code() == KafkaError._MAX_POLL_EXCEEDED):
            raise KafkaException(error)

    def _refresh_metadata(self) -> None:
        """Detect an unreachable broker, a deleted topic and new partitions."""
        try:
            there = self._cluster.partitions(self._topic)
        except NoBroker as error:
            if self._ends is not None:
                raise
            self._say(f"{error.message}; waiting for it")
        else:
            new = [each for each in there if each not in self._known]
            if new and self._growing:
                self.own(new, growing=True)
        self._refresh_at = time.monotonic() + REFRESH_EVERY

    def _commit(self) -> None:
        if not (self._group and self._printed):
            return
        for each in self._consumer.commit(offsets=self._offsets(), asynchronous=False):
            if each.error:
                raise KafkaException(each.error)

    def _offsets(self) -> list[TopicPartition]:
        return [TopicPartition(self._topic, each, offset) for each, offset in self._printed.items()]
