"""All drivers of the active manager: those with jobs, the spares, and the pools."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from penstock.control.supervisor.data_folder import DataFolder
from penstock.control.supervisor.drivers.connection import SOCKET
from penstock.control.supervisor.drivers.driver import Driver, DriverListener, Group
from penstock.control.supervisor.drivers.launchers import DriverStart, Launcher
from penstock.control.supervisor.drivers.processes import ProcessIdentity, find_driver, kill_all, marks

SPARE = "spare-"
_logger = logging.getLogger(__name__)


class Drivers:
    """Starts, finds and adopts drivers. Used on the event loop only."""

    def __init__(
        self, data: DataFolder, launcher: Launcher, token: int, listener: DriverListener, clock: Callable[[], float]
    ) -> None:
        self._data, self._launcher, self._token = data, launcher, token
        self._listener, self._clock = listener, clock
        self._drivers: dict[str, Driver] = {}
        self._starting_spares = 0

    def __iter__(self) -> Iterator[Driver]:
        return iter(tuple(self._drivers.values()))

    def of_run(self, run: str) -> Driver | None:
        """Return the driver that has a run."""
        return next((one for one in self if run in one.runs.values()), None)

    def named(self, name: str) -> Driver | None:
        """Return a driver by the name of its folder."""
        return self._drivers.get(name)

    async def start(
        self, folder: Path, group: Group, environment: Mapping[str, str], spare: Mapping[str, Any] | None = None
    ) -> Driver:
        """Start a driver, or find the one that runs in this folder, and attach to it."""
        process = await asyncio.to_thread(self._launcher.start, DriverStart(folder, environment, spare))
        return self._add(folder, process, group)

    def adopt(self, folder: Path, process: ProcessIdentity, group: Group) -> Driver:
        """Attach to a driver that an earlier manager started; one with several runs is attached to once."""
        known = self._drivers.get(folder.name)
        return known if known is not None else self._add(folder, process, group)

    def _add(self, folder: Path, process: ProcessIdentity, group: Group) -> Driver:
        driver = Driver(folder, process, group, self._listener, self._clock)
        self._drivers[driver.name] = driver
        driver.follow(self._token)
        return driver

    def forget(self, driver: Driver) -> None:
        """Remove a driver that is gone."""
        self._drivers.pop(driver.name, None)

    def spares(self, group: Group) -> list[Driver]:
        """Return the spares that jobs of a group can use, those that are ready first."""
        fitting = [one for one in self if one.is_spare and one.group.spark == group.spark and one.group.pool is None]
        return sorted(fitting, key=lambda one: not one.is_connected)

    def pool(self, group: Group) -> Driver | None:
        """Return the driver of a pool, if it runs."""
        return next((one for one in self if group.pool is not None and one.group == group), None)

    async def start_spare(self, group: Group, settings: Mapping[str, Any], environment: Mapping[str, str]) -> Driver:
        """Start a driver that waits for a job."""
        folder = self._data.run(f"{SPARE}{secrets.token_hex(6)}").resolve()
        return await self.start(folder, group, environment, settings)

    async def keep_spares(
        self, count: int, group: Group, settings: Mapping[str, Any], environment: Mapping[str, str]
    ) -> None:
        """Start so many spares as are missing."""
        missing = count - len(self.spares(group)) - self._starting_spares
        if missing <= 0:
            return
        self._starting_spares += missing
        try:
            for _ in range(missing):
                driver = await self.start_spare(group, settings, environment)
                _logger.info("spare driver %s started", driver.name)
        finally:
            self._starting_spares -= missing

    async def leave_all(self) -> None:
        """Detach from all drivers, which go on."""
        await asyncio.gather(*(driver.leave() for driver in self))
        self._drivers.clear()

    async def end_idle(self) -> None:
        """End all drivers without jobs: the manager shuts down."""
        idle = [driver for driver in self if not driver.runs]
        for driver in idle:
            await driver.send({"type": "exit"})
        await asyncio.gather(*(driver.kill() for driver in idle))


def find_process(folder: Path, pid: int | None, started: float | None) -> ProcessIdentity | None:
    """Return the driver of a folder if it runs: by its identity if that was stored, else by its marker."""
    if pid is not None and started is not None:
        found = ProcessIdentity(pid, started)
        return found if found.alive else None
    return find_driver(folder.name)


def folder_of(data: DataFolder, run: str, socket: str | None) -> Path:
    """Return the folder of a run's driver: that of its socket, or its own."""
    return Path(socket).parent if socket else data.run(run).resolve()


def socket_path(folder: Path) -> str:
    """Return what is stored of a driver's socket."""
    return os.fspath(folder / SOCKET)


def end_orphans(data: DataFolder, known: Iterable[str]) -> list[str]:
    """Kill drivers of this data folder that no run knows: spares of an earlier manager."""
    mine = {path.name for path in data.runs.iterdir() if path.is_dir()} if data.runs.is_dir() else set()
    orphans = sorted((marks() & mine) - set(known))
    for name in orphans:
        kill_all(name)
    return orphans


def remove_old_runs(data: DataFolder, job: str, attempt: int, kept: int) -> None:
    """Remove the folders of a job's earlier runs, but for the newest."""
    for path in data.runs.glob(f"{job}-*"):
        number = path.name.rpartition("-")[2]
        if number.isdigit() and int(number) <= attempt - kept:
            with contextlib.suppress(OSError):
                shutil.rmtree(path)
