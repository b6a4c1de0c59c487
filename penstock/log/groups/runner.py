from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.log.errors import ErrorCode, LogError
from penstock.log.groups.events import Event, Reply, Store, Tick
from penstock.log.groups.formats import GroupKey
from penstock.log.groups.group import Group
from penstock.log.groups.journal import Journal
from penstock.log.groups.machine import handle

if TYPE_CHECKING:
    from penstock.log.broker import Broker, Timer


T = TypeVar("T")


class Runner:
    """Carries out what the machine instructs: answers those who wait, stores groups, keeps their deadlines."""

    def __init__(self, broker: Broker, journal: Journal) -> None:
        self._broker = broker
        self._journal = journal
        self._numbers = count(1)
        self._waiting: dict[int, asyncio.Future[Reply]] = {}
        self._timers: dict[str, tuple[int, Timer]] = {}
        self._work: set[asyncio.Task[Any]] = set()

    @property
    def writes(self) -> int:
        """Writes to the journal, and what follows from them, that are under way."""
        return len(self._work)

    @property
    def waiting(self) -> int:
        """Members that wait for a rebalance."""
        return len(self._waiting)

    async def stop(self) -> None:
        """Send those who wait to ask again later, and let writes come to their end."""
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(LogError(ErrorCode.coordinator_not_available, "the broker is shutting down"))
        await asyncio.gather(*self._work, return_exceptions=True)
        for _, timer in self._timers.values():
            timer.cancel()

    def send(self, group: Group, event: Any) -> asyncio.Future[Reply]:
        """Tell a group something that it will answer."""
        number = next(self._numbers)
        future = self._waiting[number] = asyncio.get_running_loop().create_future()
        self.feed(group, replace(event, to=number))
        return future

    def feed(self, group: Group, event: Event) -> None:
        """Tell a group something, and do what it says."""
        for instruction in handle(group, event, self._broker.clock()):
            if isinstance(instruction, Store):
                self.spawn(self._store(group, instruction))
            else:
                self._answer(instruction)
        self.arm(group)

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Do something that goes on without those who asked for it. Such tasks begin in the order they were made."""
        task = asyncio.get_running_loop().create_task(work)
        self._work.add(task)
        task.add_done_callback(self._work.discard)
        return task

    def _answer(self, reply: Reply) -> None:
        future = self._waiting.pop(reply.to)
        if not future.done():  # the client may have hung up
            future.set_result(reply)

    async def _store(self, group: Group, store: Store) -> None:
        then = store.then
        try:
            await self._journal.write({GroupKey(group.id): store.snapshot})
        except LogError as failure:
            then = then and replace(then, error=failure.code)
        if then is not None:
            self.feed(group, then)

    def arm(self, group: Group) -> None:
        """Wake up at the group's next deadline; a timer that rings too early is left as it is, and sets the next."""
        deadline = group.deadline()
        planned, _ = self._timers.get(group.id, (None, None))
        if deadline is None or (planned is not None and planned <= deadline):
            return
        self.disarm(group)
        # One more millisecond: the timer's clock is not the one that the deadline is compared with.
        seconds = max(deadline - self._broker.clock() + 1, 1) / 1000
        self._timers[group.id] = deadline, self._broker.call_later(seconds, partial(self._ring, group))

    def disarm(self, group: Group) -> None:
        """Forget a group's deadline."""
        _, timer = self._timers.pop(group.id, (None, None))
        if timer is not None:
            timer.cancel()

    def _ring(self, group: Group) -> None:
        del self._timers[group.id]
        self.feed(group, Tick())
