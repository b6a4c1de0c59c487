"""What is looked up for the metrics when somebody asks: sizes on disk, and how far groups are behind."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from penstock.log.errors import LogError
from penstock.log.storage.partition import Partition

if TYPE_CHECKING:
    from penstock.log.broker import Broker
    from penstock.log.storage.store import Store


class Lag(NamedTuple):
    """How far a group is behind on a partition."""

    group: str
    topic: str
    partition: int
    records: int
    seconds: float


def lags(broker: Broker) -> Iterator[Lag]:
    """Yield the lag of every group on every partition that it has committed an offset of."""
    now = broker.clock()
    for group in broker.groups.offsets.groups():
        for (topic, index), committed in broker.groups.offsets.of(group).items():
            try:
                partition = broker.store.partition(topic, index)
            except LogError:  # the topic was deleted, its offsets not yet
                continue
            unread = max(0, partition.high - max(committed.offset, partition.log_start))
            yield Lag(group, topic, index, unread, _age(partition, committed.offset, now) if unread else 0.0)


def _age(partition: Partition, offset: int, now: int) -> float:
    """Seconds since the oldest unread record was written, by its batch's first timestamp."""
    batch, _ = next(partition.batches(max(offset, partition.log_start)), (None, None))
    return max(0.0, (now - batch.first_timestamp) / 1000) if batch else 0.0


class LogSizes:
    """Bytes on disk by topic, without opening partitions that nobody uses."""

    def __init__(self) -> None:
        self._unused: dict[tuple[UUID, int], int] = {}

    def by_topic(self, store: Store) -> dict[str, int]:
        """Add up the partitions of each topic."""
        sizes = Counter(dict.fromkeys(store.topics, 0))
        opened = {(each.topic, each.index): each for each in store.opened()}
        self._forget({topic.id for topic in store.topics.values()})
        for topic in store.topics.values():
            for index in range(topic.partitions):
                used = opened.get((topic.name, index))
                folder = store.folder / f"{topic.name}-{index}"
                sizes[topic.name] += used.size if used else self._size(topic.id, index, folder)
        return dict(sizes)

    def _size(self, topic: UUID, index: int, folder: Path) -> int:
        # What nobody has opened since the start cannot have changed since it was measured.
        if (topic, index) not in self._unused:
            self._unused[topic, index] = _size_on_disk(folder)
        return self._unused[topic, index]

    def _forget(self, kept: set[UUID]) -> None:
        self._unused = {key: size for key, size in self._unused.items() if key[0] in kept}


def _size_on_disk(folder: Path) -> int:
    try:
        return sum(each.stat().st_size for each in os.scandir(folder) if each.name.endswith(".log"))
    except FileNotFoundError:
        return 0
