"""One driver as the manager sees it: its process, its connection, and what it reported last."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from penstock.control.supervisor.drivers.connection import (
    DriverConnection,
    DriverUnreachable,
    Message,
    TokenRefused,
)
from penstock.control.supervisor.drivers.processes import ProcessIdentity, kill_all

_RETRY_SECONDS = 0.1
# From its process to its first answer: Python's imports, on a machine that is busy starting others.
START_SECONDS = 120.0


class DriverListener(Protocol):
    """Who is called about a driver, on the event loop."""

    def connected(self, driver: Driver) -> None:
        """The driver answered; its jobs are in `driver.hello`."""

    def heard(self, driver: Driver, message: Message) -> None:
        """The driver sent an event."""

    def rejected(self, driver: Driver, message: Message) -> None:
        """The driver did not do what it was asked for."""

    def gone(self, driver: Driver) -> None:
        """The driver's processes do not exist any more."""

    def refused(self, reason: str) -> None:
        """The driver knows a newer manager: this one must stop acting."""


@dataclass(frozen=True)
class Group:
    """What a driver is for: one job of its own, a spare for some Spark, or the jobs of a pool."""

    spark: str  # the master and Spark's configuration as text; only jobs with the same can use this driver
    pool: str | None = None


class Driver:
    """A driver's process. `runs` has the run of each of its jobs; a spare has none.

    Invariant: once `gone` was reported, no process with the driver's marker exists.
    """

    def __init__(
        self, folder: Path, process: ProcessIdentity, group: Group, listener: DriverListener, clock: Callable[[], float]
    ) -> None:
        self.folder, self.process, self.group = folder, process, group
        self._listener, self._clock = listener, clock
        self._connection: DriverConnection | None = None
        self._last_seq = 0
        self._launched = clock()
        self._last_heard: float | None = None
        self._task: asyncio.Task[None] | None = None
        self.runs: dict[str, str] = {}
        self.attempts: dict[str, int] = {}
        self.progress: dict[str, Mapping[str, Any]] = {}
        self.hello: Message = {}
        self.resident = 0
        self.has_had_job = False

    @property
    def name(self) -> str:
        """The name of its folder, which is also its marker."""
        return self.folder.name

    @property
    def is_connected(self) -> bool:
        """Whether the manager is attached to it."""
        return self._connection is not None

    @property
    def is_spare(self) -> bool:
        """Whether it waits for its first job."""
        return not self.has_had_job and not self.runs

    def silence(self) -> float:
        """Return for how long the driver has not been heard, beyond what it may take to start."""
        if self._last_heard is None:
            return self._clock() - self._launched - START_SECONDS
        return self._clock() - self._last_heard

    def expect_answer(self) -> None:
        """The driver has started long ago: it is lost if it does not answer soon."""
        self._last_heard = self._clock()

    def follow(self, token: int) -> None:
        """Attach to the driver with the manager's token, and stay attached until it ends."""
        self._task = asyncio.create_task(self._follow(token), name=f"driver {self.name}")

    async def send(self, message: Mapping[str, Any]) -> bool:
        """Send a message; return whether the driver is there to get it."""
        if self._connection is None:
            return False
        try:
            await self._connection.send(message)
        except DriverUnreachable:
            return False
        return True

    async def kill(self) -> None:
        """End all its processes; `gone` follows."""
        await asyncio.to_thread(kill_all, self.name, self.process)

    async def leave(self) -> None:
        """Detach from the driver, which goes on."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        self._disconnect()

    async def _follow(self, token: int) -> None:
        while self.process.alive:
            try:
                await self._converse(token)
            except TokenRefused as error:
                self._listener.refused(str(error))
                return
            except DriverUnreachable:
                pass
            finally:
                self._disconnect()
            await asyncio.sleep(_RETRY_SECONDS)
        # Its JVM and workers may outlive it by seconds; the job must not be started beside them.
        await self.kill()
        self._listener.gone(self)

    async def _converse(self, token: int) -> None:
        self._connection = await DriverConnection.open(self.folder, token, self._last_seq)
        self._last_heard = self._clock()
        self.hello = self._connection.hello
        self._listener.connected(self)
        async for message in self._connection.messages():
            self._last_heard = self._clock()
            self._take(message)

    def _take(self, message: Message) -> None:
        if message.get("type") == "refused":
            raise TokenRefused(str(message.get("reason", "")))
        if message.get("type") == "heartbeat":
            self.progress.update(message.get("jobs") or {})
        elif message.get("type") == "event" and message.get("seq", 0) > self._last_seq:
            self._last_seq = message["seq"]
            self._listener.heard(self, message)
        elif message.get("type") == "rejected":
            self._listener.rejected(self, message)

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def read_outcome(folder: Path, job: str) -> Message | None:
    """Return how a job of a driver ended, which the driver wrote before it sent it; None if it wrote nothing."""
    try:
        found = json.loads((folder / f"outcome-{job}.json").read_text())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None
