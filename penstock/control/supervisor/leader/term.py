"""What the parts of an active manager know of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from penstock.control.machine.events import Event
from penstock.control.machine.job import Job
from penstock.control.store.repositories.jobs import Job as StoredJob
from penstock.control.store.store import Store
from penstock.control.supervisor.drivers.registry import Drivers
from penstock.control.supervisor.event_bus import EventBus
from penstock.control.supervisor.options import Options


class Slots:
    """In the queue of events: find out whether a job fits, once its turn has come."""


SLOTS = Slots()


class Term(Protocol):
    """One term of an active manager. `jobs` and `machines` have the jobs that are not in a final state."""

    store: Store
    token: int
    options: Options
    clock: Callable[[], float]
    bus: EventBus
    drivers: Drivers
    jobs: dict[str, StoredJob]
    machines: dict[str, Job]
    shutting_down: bool

    def put(self, job: str, event: Event | Slots) -> None:
        """Queue an event of a job."""
