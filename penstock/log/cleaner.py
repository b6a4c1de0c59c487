"""Keeping house: retention, compaction, producers that went away, and a slow look for damage."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

from penstock.log.errors import LogError
from penstock.log.storage.compaction import DamagedSourceError, Outcome, Plan, compact, plan_compaction, swap_steps
from penstock.log.storage.partition import Partition
from penstock.log.storage.retention import retain
from penstock.log.storage.scrub import look, next_unchecked, note_damages
from penstock.log.storage.segment import Damage
from penstock.log.storage.swap import discard_cleaned
from penstock.log.storage.topics import Topic

if TYPE_CHECKING:
    from penstock.log.broker import Broker, Timer

log = logging.getLogger("penstock.log")
_CHECKPOINT_BYTES = 16 << 20  # what recovery may have to read again
_SCRUB_BYTES = 256 << 20  # what one round may look at


class StoppedError(Exception):
    """The broker stops; what was begun is thrown away."""


class Pace:
    """Lets the loop breathe while a thread computes: threads of one process take turns, five milliseconds each."""

    def __init__(self) -> None:
        self.stopped = False
        self._since = 0.0

    def __call__(self) -> None:
        """Go on, after a rest if it is time for one."""
        if self.stopped:
            raise StoppedError
        if time.perf_counter() - self._since > 0.001:
            time.sleep(0.0005)
            self._since = time.perf_counter()


class Cleaner:
    """Goes over all partitions again and again, one at a time. What takes long is done in a thread."""

    def __init__(self, broker: Broker, interval: float = 30.0) -> None:
        self._broker = broker
        self._interval = interval
        self._timer: Timer | None = None
        self._task: asyncio.Task[None] | None = None
        self._pace = Pace()
        self._scrub_left = 0

    def start(self) -> None:
        """Plan the first round."""
        self._timer = self._broker.call_later(self._interval, self._begin)

    async def stop(self) -> None:
        """End; a compaction that is under way is given up."""
        self._pace.stopped = True
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            await self._task

    def _begin(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._round())

    async def _round(self) -> None:
        try:
            await self.clean_all()
        except StoppedError:
            return
        except Exception:  # a mistake of ours here must not end all housekeeping
            log.exception("cleaning was cut short")
        if not self._pace.stopped:
            self.start()

    async def clean_all(self) -> None:
        """Go over all partitions once."""
        self._scrub_left = _SCRUB_BYTES
        for name, index in list(self._broker.store.written()):
            try:
                await self._clean(name, index)
            except (LogError, OSError) as error:
                log.warning("cannot clean %s-%d: %s", name, index, error)
            await asyncio.sleep(0)
            if self._pace.stopped:
                raise StoppedError

    async def _clean(self, name: str, index: int) -> None:
        store, now = self._broker.store, self._broker.clock()
        if name not in store.topics:
            return
        partition, topic = store.partition(name, index), store.topic(name)
        if partition.failed:
            return
        retain(partition, topic, now)
        partition.producers.expire(now)
        base, size = partition.vouched
        if partition.active.base == base and partition.active.size - size > _CHECKPOINT_BYTES:
            partition.checkpoint()
        if topic.compacted:
            await self._compact(partition, topic)
        await self._scrub(partition)

    async def _compact(self, partition: Partition, topic: Topic) -> None:
        plan = plan_compaction(partition, topic, self._broker.clock())
        while plan is not None:
            done = await self._pass(partition, plan)
            if done is None or done >= plan.sources[-1].end:
                return
            plan = plan_compaction(partition, topic, self._broker.clock(), force=True)

    async def _pass(self, partition: Partition, plan: Plan) -> int | None:
        """Compact once; return up to where, or None if nothing came of it."""
        try:
            outcome = await asyncio.to_thread(compact, plan, self._pace)
            return outcome.end if await self._swap(partition, outcome) else None
        except DamagedSourceError as error:
            log.error("%s-%d is not compacted: %s", partition.topic, partition.index, error)
            self._note(partition, error.damages)
            return None
        finally:
            discard_cleaned(plan.folder)

    async def _swap(self, partition: Partition, outcome: Outcome) -> bool:
        steps = swap_steps(partition, outcome)
        while self._is_kept(partition):
            fits = next(steps, None)
            if fits is not True:
                return fits is None
            await asyncio.sleep(0)
        return False

    async def _scrub(self, partition: Partition) -> None:
        while self._scrub_left > 0 and (unchecked := next_unchecked(partition)) is not None:
            damages = await asyncio.to_thread(look, unchecked, self._pace)
            self._scrub_left -= unchecked.source.size
            unchecked.segment.unchecked = 0
            self._note(partition, damages)

    def _note(self, partition: Partition, damages: list[Damage]) -> None:
        if self._is_kept(partition):
            for segment in partition.segments:
                note_damages(segment, [damage for damage in damages if damage.path == segment.path])

    def _is_kept(self, partition: Partition) -> bool:
        return any(each is partition for each in self._broker.store.opened())
