"""The broker: the state that all requests share. One event loop, one data folder, no locks."""

from __future__ import annotations

import asyncio
import errno
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from penstock.log.cleaner import Cleaner
from penstock.log.errors import ErrorCode, LogError
from penstock.log.groups.coordinator import GroupCoordinator, GroupSettings
from penstock.log.monitoring.metrics import Metrics
from penstock.log.network.limits import Limits, RequestMemory
from penstock.log.security.setup import Security, open_security
from penstock.log.storage.checkpoints import Snapshot
from penstock.log.storage.partition import Appended, Partition
from penstock.log.storage.segments.segment import Segment
from penstock.log.storage.store import Store
from penstock.log.storage.syncer import Policy, Syncer
from penstock.log.storage.topics import Topic
from penstock.log.storage.validation import ValidationPool
from penstock.log.transactions.coordinator import TransactionCoordinator

if TYPE_CHECKING:
    from penstock.log.network.connection import Connection

Then = Callable[[OSError | None], None]
_MOST_TIME_SEARCHES = 2  # at a time: each decodes records in a thread that others need too


class Timer(Protocol):
    """A scheduled call."""

    def cancel(self) -> None:
        """Cancel the call."""


def wall_clock() -> int:
    """Return the time in milliseconds."""
    return time.time_ns() // 1_000_000


class Broker:
    """The store, the coordinators, security, the cleaner and the clock."""

    def __init__(
        self,
        folder: Path,
        *,
        sync: Policy = "always",
        security: Security | None = None,
        limits: Limits | None = None,
        group_settings: GroupSettings | None = None,
        node_id: int = 1,
        clock: Callable[[], int] = wall_clock,
    ) -> None:
        self.sync = sync
        self.clock = clock
        self.limits = limits or Limits()
        self.node_id = node_id
        self.metrics = Metrics()
        self.memory = RequestMemory(max(self.limits.in_flight_bytes, self.limits.request_bytes))
        self.store = Store(folder, self._save_checkpoint, durable=lambda: self.sync == "always")
        self.security = security or open_security(folder)
        self.syncer = Syncer(self.metrics.fsync_seconds)
        self._recovery_points: dict[Partition, tuple[int, int]] = {}
        self.groups = GroupCoordinator(self, group_settings)
        self.transactions = TransactionCoordinator(self)
        self.cleaner = Cleaner(self)
        self.validation_pool = ValidationPool(self.memory)
        self.time_searches = asyncio.Semaphore(_MOST_TIME_SEARCHES)
        self.connections: set[Connection] = set()
        self.host, self.port = "127.0.0.1", 0
        self.auto_create = True
        self.default_partitions = 1

    @property
    def cluster_id(self) -> str:
        """The cluster id, stored in the data folder."""
        return self.store.cluster_id

    def described(self) -> dict[str, str]:
        """Return the start options under Kafka's config names."""
        return {
            "advertised.listeners": f"PLAINTEXT://{self.host}:{self.port}",
            "auto.create.topics.enable": str(self.auto_create).lower(),
            "broker.id": str(self.node_id),
            **self.groups.settings.described(),
            "log.dirs": str(self.store.folder),
            "num.partitions": str(self.default_partitions),
            "penstock.sync": self.sync,
            "socket.request.max.bytes": str(self.limits.request_bytes),
        }

    async def start(self) -> None:
        """Restore groups and transactions, and start the background work."""
        self.syncer.start(asyncio.get_running_loop())
        await self.groups.start()
        await self.transactions.start()
        self.cleaner.start()

    async def stop(self) -> None:
        """Stop the background work and sync everything."""
        await self.cleaner.stop()
        await self.transactions.stop()
        await self.groups.stop()
        self.validation_pool.stop()
        self.syncer.stop()
        self.store.close()

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        """Schedule a call on the event loop."""
        return asyncio.get_running_loop().call_later(seconds, callback)

    def append(
        self, partition: Partition, data: bytearray | memoryview, *, internal: bool = False, prepared: bool = False
    ) -> Appended:
        """Append to a partition; a failed write is an error reply, not the end of the broker."""
        if partition.failed:
            raise LogError(
                ErrorCode.kafka_storage_error, f"writing to {partition.folder.name} failed before; restart the log"
            )
        try:
            return partition.append(data, self.clock(), internal=internal, prepared=prepared)
        except OSError as error:
            raise LogError(ErrorCode.kafka_storage_error, f"cannot write: {error.strerror}") from error

    def when_durable(self, partition: Partition, then: Then) -> None:
        """Call `then` when all that was appended is as durable as the policy requires, and visible to consumers."""
        if self.sync == "always":
            active = partition.active
            written = active.base, active.size
            self.syncer.sync(active.handle, partial(self._on_durable, partition, partition.end, written, then))
            return
        if self.sync == "interval":
            self.syncer.later(partition.active.handle)
        partition.advance_high_watermark(partition.end)
        then(None)

    def _on_durable(
        self, partition: Partition, end: int, written: tuple[int, int], then: Then, error: OSError | None
    ) -> None:
        if error is None and partition.failed:
            # An earlier record is not on disk, so this one must not be acknowledged either.
            error = OSError(errno.EIO, "an earlier record of the partition could not be synced")
        if error is None:
            self._store_recovery_point_soon(partition, written)
            partition.advance_high_watermark(end)
        else:
            # After a failed fsync it is unknown what is on disk: refuse appends until recovery has read it.
            partition.failed = True
        then(error)

    def _store_recovery_point_soon(self, partition: Partition, written: tuple[int, int]) -> None:
        # Once for all that shared an fsync, and after their replies: an older position is harmless.
        if not self._recovery_points:
            asyncio.get_running_loop().call_soon(self._store_recovery_points)
        self._recovery_points[partition] = written

    def _store_recovery_points(self) -> None:
        points, self._recovery_points = self._recovery_points, {}
        for partition, written in points.items():
            partition.store_recovery_point(*written)

    async def create_topic(self, name: str, partitions: int, config: Mapping[str, str]) -> Topic:
        """Create a topic for a client."""
        self.store.topics.check_new(name, partitions, config)
        await self.groups.before_creation(name)
        return self.store.create_topic(name, partitions, config)

    async def write(self, topic: str, index: int, batch: bytearray) -> int:
        """Append a batch of the broker itself and wait until it is durable; return its offset."""
        partition = self.store.partition(topic, index)
        appended = self.append(partition, batch, internal=True)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.when_durable(partition, partial(_finish, done))
        await done
        return appended.base_offset

    def _save_checkpoint(self, partition: Partition, written: Segment, point: Snapshot) -> None:
        # The snapshot claims that the segment is on disk, so that is synced first.
        self.syncer.sync_then_save(written.handle, partial(partition.save_snapshot, point))


def _finish(done: asyncio.Future[None], error: OSError | None) -> None:
    if done.done():
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(LogError(ErrorCode.kafka_storage_error, f"cannot sync: {error.strerror}"))
