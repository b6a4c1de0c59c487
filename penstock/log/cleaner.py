"""The cleaner: retention, compaction, expiry of producers, and the scrub, in the background."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from penstock.log.errors import LogError
from penstock.log.storage.compaction import (
    CompactionPlan,
    CompactionResult,
    DamagedSegmentError,
    compact,
    discard_cleaned,
    plan_compaction,
    swap_steps,
)
from penstock.log.storage.integrity import next_scrub_task, record_damage, scrub
from penstock.log.storage.partition import Partition
from penstock.log.storage.retention import retain
from penstock.log.storage.segments.segment import Damage
from penstock.log.storage.topics import Topic

if TYPE_CHECKING:
    from penstock.log.broker import Broker, Timer

log = logging.getLogger("penstock.log")
INTERVAL_SECONDS = 15.0  # the longest time between two rounds
_SHORTEST_SECONDS = 0.1
_AGAIN_SECONDS = 1.0
_CHECKPOINT_BYTES = 16 << 20  # what recovery may have to scan
_SCRUB_BYTES = 256 << 20  # what one round may scrub


class StoppedError(Exception):
    """The broker stops; unfinished work is discarded."""


class Throttle:
    """Makes a computing thread yield the GIL, which it would otherwise hold for five milliseconds at a time."""

    def __init__(self) -> None:
        self.stopped = False
        self._since = 0.0

    def __call__(self) -> None:
        """Sleep for a moment if the thread ran for a millisecond; raise if the broker stops."""
        if self.stopped:
            raise StoppedError
        if time.perf_counter() - self._since > 0.001:
            time.sleep(0.0005)
            self._since = time.perf_counter()


class Cleaner:
    """Cleans all partitions in rounds, one partition at a time. Long work is done in a thread."""

    def __init__(self, broker: Broker, interval: float = INTERVAL_SECONDS) -> None:
        self._broker = broker
        self._interval = interval
        self._timer: Timer | None = None
        self._again: Timer | None = None
        self._task: asyncio.Task[None] | None = None
        self._retention: asyncio.Task[None] | None = None
        self._throttle = Throttle()
        self._scrub_left = 0

    def start(self) -> None:
        """Schedule the next round: they start an interval apart, however long each takes."""
        backoff = max(self._broker.store.settings.value("log.cleaner.backoff.ms") / 1000, _SHORTEST_SECONDS)
        self._timer = self._broker.call_later(min(self._interval, backoff), self._start_round)

    async def stop(self) -> None:
        """Stop; a running compaction is aborted."""
        self._throttle.stopped = True
        for timer in (self._timer, self._again):
            if timer is not None:
                timer.cancel()
        for task in (self._task, self._retention):
            if task is not None:
                await task

    def _start_round(self) -> None:
        self.start()
        if _is_over(self._task):
            self._task = asyncio.get_running_loop().create_task(self._round(self.clean_all))
        else:
            self._retain_meanwhile()

    def _retain_meanwhile(self) -> None:
        """Apply retention while a compaction runs, which may take minutes."""
        if _is_over(self._retention) and not self._throttle.stopped:
            self._retention = asyncio.get_running_loop().create_task(self._round(self.retain_all))

    async def _round(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except StoppedError:
            return
        except Exception:  # any bug here must not stop the cleaner: it is logged, and the next round tries again
            log.exception("a cleaning round failed")

    async def clean_all(self) -> None:
        """Clean all partitions once."""
        self._scrub_left = _SCRUB_BYTES
        await self._over_all(self._clean)

    async def retain_all(self) -> None:
        """Apply retention to all partitions once."""
        await self._over_all(self._retain)

    async def _over_all(self, work: Callable[[Partition, Topic], Awaitable[None]]) -> None:
        store = self._broker.store
        for name, index in list(store.written()):
            try:
                if name in store.topics and not (partition := store.partition(name, index)).failed:
                    await work(partition, store.topic(name))
            except (LogError, OSError) as error:
                log.warning("cannot clean %s-%d: %s", name, index, error)
            await asyncio.sleep(0)
            if self._throttle.stopped:
                raise StoppedError

    async def _clean(self, partition: Partition, topic: Topic) -> None:
        await self._retain(partition, topic)
        if topic.compacted:
            await self._compact(partition, topic)
        await self._scrub(partition)

    async def _retain(self, partition: Partition, topic: Topic) -> None:
        now = self._broker.clock()
        if retain(partition, topic, now):
            # A segment closed now can be deleted as soon as a snapshot of its producers is on disk.
            self._again = self._again or self._broker.call_later(_AGAIN_SECONDS, self._retain_again)
        partition.producers.expire(now, self._broker.store.settings.value("producer.id.expiration.ms"))
        base, size = partition.checkpointed
        if partition.active.base == base and partition.active.size - size > _CHECKPOINT_BYTES:
            partition.checkpoint()

    def _retain_again(self) -> None:
        self._again = None
        self._retain_meanwhile()

    async def _compact(self, partition: Partition, topic: Topic) -> None:
        plan = plan_compaction(partition, topic, self._broker.clock())
        while plan is not None:
            done = await self._pass(partition, plan)
            if done is None or done >= plan.sources[-1].end:
                return
            plan = plan_compaction(partition, topic, self._broker.clock(), force=True)

    async def _pass(self, partition: Partition, plan: CompactionPlan) -> int | None:
        """Run one pass; return the end offset, or None if it failed."""
        try:
            outcome = await asyncio.to_thread(compact, plan, self._throttle)
            return outcome.end if await self._swap(partition, outcome) else None
        except DamagedSegmentError as error:
            log.error("%s-%d is not compacted: %s", partition.topic, partition.index, error)
            self._record_damage(partition, error.damages)
            return None
        finally:
            discard_cleaned(plan.folder)

    async def _swap(self, partition: Partition, outcome: CompactionResult) -> bool:
        steps = swap_steps(partition, outcome)
        while self._is_open(partition):
            fits = next(steps, None)
            if fits is not True:
                return fits is None
            await asyncio.sleep(0)
        return False

    async def _scrub(self, partition: Partition) -> None:
        # The topic may be deleted meanwhile, and be created again with files of the same names.
        while self._scrub_left > 0 and self._is_open(partition) and (unchecked := next_scrub_task(partition)):
            damages = await asyncio.to_thread(scrub, unchecked, self._throttle)
            self._scrub_left -= unchecked.source.size
            unchecked.segment.unchecked = 0
            self._record_damage(partition, damages)

    def _record_damage(self, partition: Partition, damages: list[Damage]) -> None:
        if self._is_open(partition):
            for segment in partition.segments:
                record_damage(segment, [damage for damage in damages if damage.path == segment.path])

    def _is_open(self, partition: Partition) -> bool:
        return any(each is partition for each in self._broker.store.opened())


def _is_over(task: asyncio.Task[None] | None) -> bool:
    return task is None or task.done()
