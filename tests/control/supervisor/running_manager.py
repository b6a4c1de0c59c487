"""A manager in a thread of the tests, with real driver processes that run scripted jobs instead of Spark."""

from __future__ import annotations

import asyncio
import stat
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from penstock.control.machine.states import JobState
from penstock.control.rest.manager import Caller
from penstock.control.security.tokens import Access
from penstock.control.store.repositories.jobs import Job, new_id
from penstock.control.store.repositories.versions import Version
from penstock.control.store.store import Store
from penstock.control.supervisor.data_folder import DataFolder
from penstock.control.supervisor.drivers.launchers import LocalLauncher
from penstock.control.supervisor.drivers.processes import kill_all, marks
from penstock.control.supervisor.event_bus import EventBus
from penstock.control.supervisor.leader.leadership import Leadership
from penstock.control.supervisor.options import Options
from penstock.control.supervisor.requests.job_manager import JobManager
from tests.waiting import wait_for

DRIVER = Path(__file__).with_name("scripted_driver.py")
ROOT = Path(__file__).parents[3]
CALLER = Caller("ada", "operator")
QUICK_RESTART = {"kind": "fixed_delay", "delay": 0.05, "attempts": 5}


def scripted_python(folder: Path) -> str:
    """Return an interpreter that runs the scripted driver in place of `-m penstock.driver`."""
    script = folder / "python"
    script.write_text(f'#!/bin/sh\nshift 2\nPYTHONPATH={ROOT} exec {sys.executable} {DRIVER} "$@"\n')
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return str(script)


class RunningManager:
    """A manager over a data folder. `kill` leaves its drivers and its lease as kill -9 does."""

    def __init__(self, data: Path, url: str | None = None, **options: Any) -> None:
        self.data = DataFolder(data)
        self.data.create()
        self.store = Store(url or self.data.store_url)
        self.store.migrate()
        chosen = {"spares": 0, "lease_seconds": 1.0, "settings": {"parallelism": 1}, **options}
        self.options = Options(self.data, **chosen)
        self._loop = asyncio.new_event_loop()
        bus = EventBus(time.time)
        self.leadership = Leadership(self.store, self.options, LocalLauncher(python=scripted_python(data)), bus)
        self.manager = JobManager(self.store, self.options, self.leadership, Access(self.store.tokens))
        self._task: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._run, name="manager")

    def _run(self) -> None:
        self._task = self._loop.create_task(self.leadership.run())
        try:
            self._loop.run_until_complete(self._task)
        except asyncio.CancelledError:
            pass
        finally:
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()

    def start(self) -> RunningManager:
        self._thread.start()
        return self

    def kill(self) -> None:
        """Stop acting at once."""
        if self._thread.is_alive() and self._task is not None:
            self._loop.call_soon_threadsafe(self._task.cancel)
            self._thread.join(30)
            assert not self._thread.is_alive(), "the manager does not end"
        self.store.close()

    def shut_down(self) -> None:
        """As Ctrl-C of `penstock up`."""
        term = self.leadership.term
        assert term is not None
        asyncio.run_coroutine_threadsafe(term.shut_down(), self._loop).result(60)
        self.kill()

    def leave(self) -> None:
        """As the end of `penstock server`; it goes on until it is killed."""
        term = self.leadership.term
        assert term is not None
        asyncio.run_coroutine_threadsafe(term.leave(), self._loop).result(60)

    # --- jobs --------------------------------------------------------------------------------------

    def add(self, name: str, behaviour: str = "run", **fields: Any) -> str:
        """Store a job as a submission does, but for the check of its plan."""
        job = new_id()
        arguments = {"behaviour": behaviour}
        folder = self.data.version(job, 1)
        folder.mkdir(parents=True)
        (folder / "job.py").write_text("")
        row = {"policy": QUICK_RESTART, "checkpoint": self.data.checkpoint(job), **fields}
        with self.store.begin() as write:
            write.jobs.create(Job(id=job, name=name, arguments=arguments, **row))
            write.versions.add(Version(job=job, number=1, entry="job.py", digest="", arguments=arguments))
        self.leadership.wake()
        return job

    def add_version(self, job: str, behaviour: str) -> int:
        number = self.store.versions.next_number(job)
        arguments = {"behaviour": behaviour}
        self.store.versions.add(Version(job=job, number=number, entry="job.py", digest="", arguments=arguments))
        return number

    def get(self, job: str) -> Job:
        return self.store.jobs.get(job)

    def wait_for_state(self, job: str, *states: JobState) -> Job:
        def reached() -> bool:
            return self.get(job).state in states

        wait_for(reached, f"the job is not {', '.join(states)} but {self.get(job).state}", seconds=30)
        return self.get(job)

    def wait_for_command(self, command: str) -> str:
        wait_for(lambda: self.store.commands.get(command).state != "open", "the command is still open", seconds=30)
        return self.store.commands.get(command).state

    def request(self, job: str, kind: Any, **arguments: Any) -> str:
        return self.manager.request(job, kind, arguments, CALLER).id

    def checkpoint(self, job: str) -> Path:
        return Path(self.data.checkpoint(job))

    def starts(self, job: str) -> list[int]:
        """Return the processes that have run the job."""
        path = self.checkpoint(job) / "starts"
        return [int(line) for line in path.read_text().splitlines()] if path.exists() else []

    def ran_twice(self, job: str) -> bool:
        return (self.checkpoint(job) / "twice").exists()

    def epochs(self, job: str) -> int:
        return len(self.store.epochs.page(job, limit=1000).items)


@contextmanager
def running_manager(data: Path, **options: Any) -> Iterator[RunningManager]:
    """Run a manager; at the end no driver of its folder is left."""
    manager = RunningManager(data, **options).start()
    try:
        yield manager
    finally:
        manager.kill()
        end_drivers(data)


def end_drivers(data: Path) -> None:
    """Kill all drivers of a data folder."""
    runs = data / "runs"
    for mark in marks() & {path.name for path in runs.iterdir()}:
        kill_all(mark)
