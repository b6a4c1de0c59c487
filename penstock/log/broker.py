"""The broker: what all requests share. One loop, one data folder, no locks."""

from __future__ import annotations

import asyncio
import errno
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from penstock.log.cleaner import Cleaner
from penstock.log.errors import ErrorCode, LogError
from penstock.log.groups.coordinator import GroupCoordinator
from penstock.log.groups.rules import GroupRules
from penstock.log.memory import Memory
from penstock.log.metrics import Metrics
from penstock.log.openers import Openers
from penstock.log.security.limits import Limits
from penstock.log.security.setup import Security, open_security
from penstock.log.storage.partition import Appended, Partition
from penstock.log.storage.segment import Segment
from penstock.log.storage.snapshot import Snapshot, save
from penstock.log.storage.store import Store
from penstock.log.storage.syncer import Policy, Syncer
from penstock.log.transactions.coordinator import TransactionCoordinator

if TYPE_CHECKING:
    from penstock.log.connection import Connection

Then = Callable[[OSError | None], None]


class Timer(Protocol):
    """Something that was planned."""

    def cancel(self) -> None:
        """It is not wanted any more."""


def wall_clock() -> int:
    """Return the time in milliseconds."""
    return time.time_ns() // 1_000_000


class Broker:
    """Everything behind the connections: the store, the coordinators, who may do what, and the clock."""

    def __init__(
        self,
        folder: Path,
        *,
        sync: Policy = "always",
        security: Security | None = None,
        limits: Limits | None = None,
        rules: GroupRules | None = None,
        node_id: int = 1,
        clock: Callable[[], int] = wall_clock,
    ) -> None:
        self.sync = sync
        self.clock = clock
        self.limits = limits or Limits()
        self.node_id = node_id
        self.metrics = Metrics()
        self.memory = Memory(max(self.limits.in_flight_bytes, self.limits.request_bytes))
        self.store = Store(folder, self._vouch, durable=lambda: self.sync == "always")
        self.security = security or open_security(folder)
        self.syncer = Syncer(self.metrics.fsync_seconds)
        self._synced: dict[Partition, tuple[int, int]] = {}
        self.groups = GroupCoordinator(self, rules)
        self.transactions = TransactionCoordinator(self)
        self.cleaner = Cleaner(self)
        self.openers = Openers(self.memory)
        self.connections: set[Connection] = set()
        self.host, self.port = "127.0.0.1", 0
        self.auto_create = True
        self.default_partitions = 1

    @property
    def cluster_id(self) -> str:
        """The name of the data, the same as long as the folder lives."""
        return self.store.cluster_id

    def described(self) -> dict[str, str]:
        """Return the broker's settings under Kafka's names, for those who ask."""
        return {
            "advertised.listeners": f"PLAINTEXT://{self.host}:{self.port}",
            "auto.create.topics.enable": str(self.auto_create).lower(),
            "broker.id": str(self.node_id),
            **self.groups.rules.described(),
            "log.dirs": str(self.store.folder),
            "num.partitions": str(self.default_partitions),
            "penstock.sync": self.sync,
            "socket.request.max.bytes": str(self.limits.request_bytes),
        }

    async def start(self) -> None:
        """Take up what an earlier process left, unfinished transactions too."""
        self.syncer.start(asyncio.get_running_loop())
        await self.groups.start()
        await self.transactions.start()
        self.cleaner.start()

    async def stop(self) -> None:
        """Put everything on disk."""
        await self.cleaner.stop()
        await self.transactions.stop()
        await self.groups.stop()
        self.openers.stop()
        self.syncer.stop()
        self.store.close()

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        """Call something after a while."""
        return asyncio.get_running_loop().call_later(seconds, callback)

    def append(
        self, partition: Partition, data: bytearray | memoryview, *, internal: bool = False, prepared: bool = False
    ) -> Appended:
        """Append to a partition; a disk that refuses is an answer to the client, not the end of the broker."""
        if partition.failed:
            raise LogError(ErrorCode.kafka_storage_error, f"the disk refused {partition.folder.name}; restart the log")
        try:
            return partition.append(data, self.clock(), internal=internal, prepared=prepared)
        except OSError as error:
            raise LogError(ErrorCode.kafka_storage_error, f"cannot write: {error.strerror}") from error

    def settle(self, partition: Partition, then: Then) -> None:
        """Call `then` when everything appended so far is as durable as the policy says, and show it to readers."""
        if self.sync == "always":
            active = partition.active
            written = active.base, active.size
            self.syncer.sync(active.handle, partial(self._settled, partition, partition.end, written, then))
            return
        if self.sync == "interval":
            self.syncer.later(partition.active.handle)
        partition.reach(partition.end)
        then(None)

    def _settled(
        self, partition: Partition, end: int, written: tuple[int, int], then: Then, error: OSError | None
    ) -> None:
        if error is None and partition.failed:
            # A record before this one is not on disk, so this one must not be acknowledged either.
            error = OSError(errno.EIO, "an earlier record of the partition could not be synced")
        if error is None:
            self._note_synced_soon(partition, written)
            partition.reach(end)
        else:
            # After a failed fsync nobody knows what the disk has: take no more before it was read again.
            partition.failed = True
        then(error)

    def _note_synced_soon(self, partition: Partition, written: tuple[int, int]) -> None:
        # Once for all that shared an fsync, and after they are answered: an older position does no harm.
        if not self._synced:
            asyncio.get_running_loop().call_soon(self._note_synced)
        self._synced[partition] = written

    def _note_synced(self) -> None:
        synced, self._synced = self._synced, {}
        for partition, written in synced.items():
            partition.note_synced(*written)

    async def write(self, topic: str, index: int, batch: bytearray) -> int:
        """Append one batch of the broker's own and wait until it is durable; return its offset."""
        partition = self.store.partition(topic, index)
        appended = self.append(partition, batch, internal=True)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.settle(partition, partial(_finish, done))
        await done
        return appended.base_offset

    def _vouch(self, partition: Partition, written: Segment, point: Snapshot) -> None:
        # The snapshot vouches for what is on disk, so the segment has to be there first.
        self.syncer.vouch(written.handle, partial(save, partition.folder, point))


def _finish(done: asyncio.Future[None], error: OSError | None) -> None:
    if done.done():
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(LogError(ErrorCode.kafka_storage_error, f"cannot sync: {error.strerror}"))
