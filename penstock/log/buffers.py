"""What the broker holds in memory, by kind, measured when somebody asks: one row per buffer, cache and table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client.core import GaugeMetricFamily

from penstock.log.frames import spare_bytes
from penstock.log.heap import heap, resident
from penstock.log.storage.held import COMPACTED_KEYS, OPENED_BYTES
from penstock.log.transactions.machine import State

if TYPE_CHECKING:
    from penstock.log.broker import Broker


def families(broker: Broker) -> Iterator[GaugeMetricFamily]:
    """Yield the gauges."""
    yield _gauge("penstock_log_buffer_bytes", "Bytes in buffers", "buffer", buffer_bytes(broker))
    yield _gauge("penstock_log_held", "Things held in memory", "kind", held(broker))
    yield _gauge("penstock_log_memory_bytes", "Memory of the process", "kind", memory_bytes())


def buffer_bytes(broker: Broker) -> dict[str, int]:
    """Return the bytes in each kind of buffer; all but `unsent_files` take memory."""
    of = [connection.held for connection in broker.connections]
    return {
        "receive": sum(each.arriving for each in of),
        "receive_spare": spare_bytes(),
        "receive_tls": sum(each.reserved for each in of),
        "requests_waiting": sum(each.waiting for each in of),
        "recompress": broker.openers.held,
        "decompressed": OPENED_BYTES.now,
        "unsent": sum(each.unsent for each in of),
        "unsent_files": sum(each.unsent_in_files for each in of),
        "indexes": broker.store.handles.index_bytes,
    }


def held(broker: Broker) -> dict[str, int]:
    """Return how many there are of each kind of thing that is kept in memory."""
    return {**_of_connections(broker), **_of_storage(broker), **_of_groups(broker), **_of_clients(broker)}


def _of_connections(broker: Broker) -> dict[str, int]:
    of = [connection.held for connection in broker.connections]
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
        "compaction_keys": COMPACTED_KEYS.now,
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
        "quota_clients": broker.security.quotas.held,
        "acl_answers": access.held if access is not None else 0,
    }


def memory_bytes() -> dict[str, int]:
    """Return what the process has; heap_free was freed and not yet returned to the system."""
    found, in_heap = resident(), heap()
    sizes = {} if found is None else {"resident": found}
    return sizes if in_heap is None else {**sizes, "heap_used": in_heap.used, "heap_free": in_heap.free}


def _gauge(name: str, text: str, label: str, samples: dict[str, int]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, text, labels=[label])
    for kind, number in samples.items():
        family.add_metric([kind], number)
    return family
