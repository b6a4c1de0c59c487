"""Events for WebSocket and SSE clients: what happened to jobs, in order, with a bound for each subscriber."""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Event = Mapping[str, Any]
_MOST_WAITING = 1_000
_RECENT = 1_000


@dataclass(eq=False)
class Subscription:
    """The events of one client, from the moment it subscribed.

    A client that does not read loses its oldest events; `missed` counts them, so that it can ask for the jobs again.
    """

    bus: EventBus
    job: str | None = None
    most: int = _MOST_WAITING
    missed: int = 0
    _waiting: deque[Event] = field(default_factory=deque)
    _ready: asyncio.Event = field(default_factory=asyncio.Event)
    _closed: bool = False
    _detailed: tuple[Event, Event] | None = None

    def offer(self, event: Event, brief: Event | None = None) -> None:
        """Add an event; the oldest one makes room. While it waits, a later one takes its detail from it."""
        if self.job is not None and event.get("job") not in (None, self.job):
            return
        if self._detailed is not None and self._waiting and self._waiting[-1] is self._detailed[0]:
            self._waiting[-1] = self._detailed[1]
        self._detailed = (event, brief) if brief is not None and brief is not event else None
        if len(self._waiting) >= self.most:
            self._waiting.popleft()
            self.missed += 1
        self._waiting.append(event)
        self._ready.set()

    async def __aiter__(self) -> AsyncIterator[Event]:
        """Yield events until the subscription is closed."""
        while True:
            while self._waiting:
                yield self._waiting.popleft()
            if self._closed:
                return
            self._ready.clear()
            await self._ready.wait()

    def close(self) -> None:
        """End the subscription; what waits is still delivered."""
        self._closed = True
        self.bus.leave(self)
        self._ready.set()


class EventBus:
    """Publishes events to all subscribers. Used on the event loop only; `publish_threadsafe` from other threads."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._numbers = itertools.count(1)
        self._subscribers: set[Subscription] = set()
        self._recent: deque[Event] = deque(maxlen=_RECENT)
        self._loop: asyncio.AbstractEventLoop | None = None

    def __len__(self) -> int:
        return len(self._subscribers)

    def bind(self, loop: asyncio.AbstractEventLoop) -> None:
        """Set the loop that other threads publish through."""
        self._loop = loop

    def publish(
        self, kind: str, job: str | None = None, *, detail: Mapping[str, Any] | None = None, **content: Any
    ) -> None:
        """Number an event and hand it to every subscriber; `detail` goes to those of one job only, and once."""
        event = {"seq": next(self._numbers), "at": self._now(), "kind": kind, "job": job, **content}
        self._recent.append(event)
        detailed = {**event, **detail} if detail else event
        for one in tuple(self._subscribers):
            one.offer(event if one.job is None else detailed, event)

    def publish_threadsafe(self, kind: str, job: str | None = None, **content: Any) -> None:
        """Publish from another thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(lambda: self.publish(kind, job, **content))

    def subscribe(self, job: str | None = None, after: int | None = None) -> Subscription:
        """Subscribe to the events of one job, or of all; `after` repeats recent ones with a higher number."""
        made = Subscription(self, job)
        for event in self._recent if after is not None else ():
            if event["seq"] > (after or 0):
                made.offer(event)
        self._subscribers.add(made)
        return made

    def leave(self, subscription: Subscription) -> None:
        """Remove a subscriber."""
        self._subscribers.discard(subscription)

    def close(self) -> None:
        """End all subscriptions."""
        for one in tuple(self._subscribers):
            one.close()
