"""The newest events of a driver, for the manager that attaches next."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from penstock.driver.messages import Message

SIZE = 1_000


class EventBuffer:
    """Numbers events and keeps the newest.

    Invariants: numbers grow by 1 from 1; at most `size` events are kept; epochs, of which a later one has the totals,
    are dropped before all others.
    """

    def __init__(self, size: int = SIZE) -> None:
        self._size = size
        self._events: list[Message] = []
        self._lock = threading.Lock()
        self._newest = 0

    @property
    def newest(self) -> int:
        """The number of the newest event; 0 if there was none."""
        return self._newest

    def add(self, job: str, kind: str, at: float, fields: Mapping[str, Any]) -> Message:
        """Number an event and keep it."""
        with self._lock:
            self._newest += 1
            event = {"type": "event", "seq": self._newest, "job": job, "at": at, "kind": kind, **fields}
            if kind == "epoch":
                self._forget_nodes(job)
            self._events.append(event)
            if len(self._events) > self._size:
                del self._events[self._least_needed()]
            return event

    def after(self, seq: int) -> list[Message]:
        """Return the events that are kept and have a higher number."""
        with self._lock:
            return [event for event in self._events if event["seq"] > seq]

    def _forget_nodes(self, job: str) -> None:
        """Keep the nodes of the newest epoch only: they are totals, and a plan may have many."""
        for place in range(len(self._events) - 1, -1, -1):
            event = self._events[place]
            if event["job"] == job and event["kind"] == "epoch":
                # Not changed in place: it may be on its way to a manager.
                self._events[place] = {name: value for name, value in event.items() if name != "nodes"}
                return

    def _least_needed(self) -> int:
        return next((place for place, event in enumerate(self._events) if event["kind"] == "epoch"), 0)
