"""Runs the state machines of classic groups: replies, writes to the journal, timers."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.log.errors import ErrorCode, LogError
from penstock.log.groups.classic.events import Event, Reply, Store, Tick
from penstock.log.groups.classic.group import Group
from penstock.log.groups.classic.state_machine import handle
from penstock.log.groups.formats import GroupKey
from penstock.log.groups.journal import Journal

if TYPE_CHECKING:
    from penstock.log.broker import Broker, Timer


T = TypeVar("T")


class Runner:
    """Executes the instructions of the state machine: sends replies, stores groups, schedules timers."""

    def __init__(self, broker: Broker, journal: Journal) -> None:
        self._broker = broker
        self._journal = journal
        self._numbers = count(1)
        self._waiting: dict[int, asyncio.Future[Reply]] = {}
        self._timers: dict[str, tuple[int, Timer]] = {}
        self._work: set[asyncio.Task[Any]] = set()

    @property
    def writes(self) -> int:
        """How many writes to the journal are pending."""
        return len(self._work)

    @property
    def waiting(self) -> int:
        """How many requests wait for a rebalance."""
        return len(self._waiting)

    async def stop(self) -> None:
        """Fail waiting requests with a retriable error, and finish the writes."""
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(LogError(ErrorCode.coordinator_not_available, "the broker is shutting down"))
        await asyncio.gather(*self._work, return_exceptions=True)
        for _, timer in self._timers.values():
            timer.cancel()

    def send(self, group: Group, event: Any) -> asyncio.Future[Reply]:
        """Apply a request to a group; return its future reply."""
        number = next(self._numbers)
        future = self._waiting[number] = asyncio.get_running_loop().create_future()
        self.apply(group, replace(event, to=number))
        return future

    def apply(self, group: Group, event: Event) -> None:
        """Apply an event to a group, and execute the instructions."""
        for instruction in handle(group, event, self._broker.clock()):
            if isinstance(instruction, Store):
                self.spawn(self._store(group, instruction))
            else:
                self._answer(instruction)
        self.schedule(group)

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run a task that continues if the client disconnects. Tasks start in the order they were created."""
        task = asyncio.get_running_loop().create_task(work)
        self._work.add(task)
        task.add_done_callback(self._work.discard)
        return task

    def _answer(self, reply: Reply) -> None:
        future = self._waiting.pop(reply.to)
        if not future.done():  # the client may have disconnected
            future.set_result(reply)

    async def _store(self, group: Group, store: Store) -> None:
        then = store.then
        try:
            await self._journal.write({GroupKey(group.id): store.snapshot})
        except LogError as failure:
            then = then and replace(then, error=failure.code)
        if then is not None:
            self.apply(group, then)

    def schedule(self, group: Group) -> None:
        """Schedule a timer for the group's next deadline; an earlier timer is kept, and schedules the next one."""
        deadline = group.deadline()
        planned, _ = self._timers.get(group.id, (None, None))
        if deadline is None or (planned is not None and planned <= deadline):
            return
        self.unschedule(group)
        # One more millisecond: the timer uses another clock than the deadline.
        seconds = max(deadline - self._broker.clock() + 1, 1) / 1000
        self._timers[group.id] = deadline, self._broker.call_later(seconds, partial(self._on_timer, group))

    def unschedule(self, group: Group) -> None:
        """Cancel a group's timer."""
        _, timer = self._timers.pop(group.id, (None, None))
        if timer is not None:
            timer.cancel()

    def _on_timer(self, group: Group) -> None:
        del self._timers[group.id]
        self.apply(group, Tick())
