"""Gauges collected on each scrape: consumer lag, sizes on disk, memory by buffer, cache and table."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from prometheus_client.core import GaugeMetricFamily

from penstock.log.errors import LogError
from penstock.log.monitoring.process_memory import heap_usage, resident_bytes
from penstock.log.network.frames import spare_bytes
from penstock.log.storage.memory_usage import COMPACTION_KEYS, DECOMPRESSED_BYTES
from penstock.log.storage.partition import Partition
from penstock.log.transactions.state_machine import State

if TYPE_CHECKING:
    from penstock.log.broker import Broker
    from penstock.log.storage.store import Store


class Lag(NamedTuple):
    """The lag of a group on a partition."""

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
            unread = max(0, partition.high_watermark - max(committed.offset, partition.log_start))
            yield Lag(group, topic, index, unread, _age(partition, committed.offset, now) if unread else 0.0)


def _age(partition: Partition, offset: int, now: int) -> float:
    """Return the seconds since the oldest unread record, by the first timestamp of its batch."""
    batch, _ = next(partition.batches(max(offset, partition.log_start)), (None, None))
    return max(0.0, (now - batch.first_timestamp) / 1000) if batch else 0.0


class LogSizes:
    """Bytes on disk by topic, without opening partitions that are not in use."""

    def __init__(self) -> None:
        self._unused: dict[tuple[UUID, int], int] = {}

    def by_topic(self, store: Store) -> dict[str, int]:
        """Return the size of each topic."""
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
        # A partition that was not opened since the start cannot have changed since it was measured.
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


def memory_families(broker: Broker) -> Iterator[GaugeMetricFamily]:
    """Yield the gauges of memory."""
    yield _labelled_gauge("penstock_log_buffer_bytes", "Bytes in buffers", "buffer", buffer_bytes(broker))
    yield _labelled_gauge("penstock_log_held", "Objects in memory", "kind", object_counts(broker))
    yield _labelled_gauge("penstock_log_memory_bytes", "Memory of the process", "kind", memory_bytes())


def buffer_bytes(broker: Broker) -> dict[str, int]:
    """Return the bytes in each kind of buffer; all but `unsent_files` are in memory."""
    of = [connection.usage for connection in broker.connections]
    return {
        "receive": sum(each.arriving for each in of),
        "receive_spare": spare_bytes(),
        "receive_tls": sum(each.reserved for each in of),
        "requests_waiting": sum(each.waiting for each in of),
        "recompress": broker.validation_pool.queued_bytes,
        "decompressed": DECOMPRESSED_BYTES.value,
        "unsent": sum(each.unsent for each in of),
        "unsent_files": sum(each.unsent_in_files for each in of),
        "indexes": broker.store.handles.index_bytes,
    }


def object_counts(broker: Broker) -> dict[str, int]:
    """Return the number of objects in memory by kind."""
    return {**_of_connections(broker), **_of_storage(broker), **_of_groups(broker), **_of_clients(broker)}


def _of_connections(broker: Broker) -> dict[str, int]:
    of = [connection.usage for connection in broker.connections]
    return {
        "connections": len(of),
        "requests_unanswered": sum(each.unanswered for each in of),
        "connections_throttled": sum(each.throttled for each in of),
        "fsyncs_awaited": broker.syncer.waiting,
    }


def _of_storage(broker: Broker) -> dict[str, int]:
    partitions = broker.store.opened()
    waiting = {waiter for each in partitions for waiter in each.waiters}
    return {
        "fetches_waiting": len(waiting),
        "partitions_open": len(partitions),
        "segments": sum(len(each.segments) for each in partitions),
        "files_open": broker.store.handles.open,
        "indexes": broker.store.handles.indexes,
        "producers": sum(len(each.producers) for each in partitions),
        "transactions_in_partitions": sum(len(each.producers.open) for each in partitions),
        "aborted_transactions": sum(len(each.aborted) for each in partitions),
        "compaction_keys": COMPACTION_KEYS.value,
    }


def _of_groups(broker: Broker) -> dict[str, int]:
    classic, modern = broker.groups.groups.values(), broker.groups.consumers.all.values()
    return {
        "groups": len(classic) + len(modern),
        "group_members": sum(len(each.members) for each in classic) + sum(len(each.members) for each in modern),
        "group_requests_waiting": broker.groups.runner.waiting,
        "group_journal_writes": broker.groups.runner.writes,
        "offsets_committed": broker.groups.offsets.committed_count,
        "offsets_pending": broker.groups.offsets.pending_count,
    }


def _of_clients(broker: Broker) -> dict[str, int]:
    transactions, access = broker.transactions.all(), broker.security.access
    return {
        "transactional_ids": len(transactions),
        "transactions_open": sum(each.state is State.ONGOING or each.state.is_decided for each in transactions),
        "quota_clients": broker.security.quotas.tracked,
        "acl_answers": access.cached if access is not None else 0,
    }


def memory_bytes() -> dict[str, int]:
    """Return the memory of the process; heap_free was freed and not yet returned to the system."""
    found, in_heap = resident_bytes(), heap_usage()
    sizes = {} if found is None else {"resident": found}
    return sizes if in_heap is None else {**sizes, "heap_used": in_heap.used, "heap_free": in_heap.free}


def _labelled_gauge(name: str, text: str, label: str, samples: dict[str, int]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, text, labels=[label])
    for kind, number in samples.items():
        family.add_metric([kind], number)
    return family
