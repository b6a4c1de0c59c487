"""A job manager with all that it depends on, each a process that can be killed."""

from __future__ import annotations

import contextlib
import os
import random
import re
import secrets
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import psutil

from penstock.control.store.store import Store
from penstock.control.supervisor.drivers.processes import identify, kill_all, marks, processes_of
from tests.databases import PostgresServer
from tests.log.server import LogProcess
from tests.waiting import becomes, wait_for

_ADDRESS = re.compile(r"^job manager on (\S+)$", re.MULTILINE)
ROOT = Path(__file__).resolve().parents[2]
SETTLE_SECONDS = 300.0


class ManagerProcess:
    """`penstock server` on PostgreSQL; killed, and started again on the same folder."""

    def __init__(self, folder: Path, store: str, log: str, *, scripted: bool) -> None:
        self.folder, self._scripted = folder, scripted
        self._options = ["--store", store, "--log", log, "--data", str(folder / "data"), "--port", "0", "--spares", "0"]
        self._output = folder / "manager.log"
        self._process: subprocess.Popen[bytes] | None = None
        self.url = ""

    def start(self) -> None:
        """Start it, and wait until it answers."""
        program = ["tests.crash.control_scripted", str(self.folder)] if self._scripted else ["penstock.cli"]
        from_here = self._output.stat().st_size if self._output.exists() else 0
        with self._output.open("ab") as out:
            command = [sys.executable, "-m", *program, "server", *self._options]
            self._process = subprocess.Popen(command, cwd=ROOT, stdout=out, stderr=subprocess.STDOUT)
        wait_for(lambda: self._address(from_here), "the manager did not start", while_=self._runs, seconds=120)
        self.url = self._address(from_here) or ""

    def _address(self, from_here: int) -> str | None:
        found = _ADDRESS.search(self._output.read_text(errors="replace")[from_here:])
        return found[1] if found else None

    def _runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """Kill -9."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    @property
    def said(self) -> str:
        return self._output.read_text(errors="replace")

    @property
    def tracebacks(self) -> int:
        return self.said.count("Traceback (most recent call last)")


class World:
    """Kills one part at random, and waits until all jobs run again."""

    def __init__(
        self, folder: Path, postgres: PostgresServer, log: LogProcess, chance: random.Random, *, scripted: bool
    ) -> None:
        self.folder, self.postgres, self.log, self.chance = folder, postgres, log, chance
        database = f"jobs_{secrets.token_hex(4)}"
        postgres.sql(f"CREATE DATABASE {database} OWNER ada", postgres.admin)
        url = postgres.url.rpartition("/")[0] + f"/{database}"
        self.manager = ManagerProcess(folder, url, log.bootstrap, scripted=scripted)
        self.store = Store(url)
        self.jobs: list[str] = []

    # --- faults ------------------------------------------------------------------------------------

    @property
    def faults(self) -> dict[str, Callable[[], None]]:
        return {
            "manager": self.kill_manager,
            "driver": self.kill_driver,
            "jvm": self.kill_jvm,
            "log": self.kill_log,
            "database": self.restart_database,
            "manager and driver": self.kill_manager_and_driver,
            "database and manager": self.kill_database_and_manager,
        }

    def kill_manager(self) -> None:
        self.manager.kill()
        self.manager.start()

    def kill_driver(self) -> None:
        found = self._drivers()
        if found:
            os.kill(self.chance.choice(found).pid, signal.SIGKILL)

    def kill_jvm(self) -> None:
        """Kill a JVM; without Spark, any process of a driver."""
        family = [one for mark in self._marks() for one in processes_of(mark)]
        chosen = [one for one in family if _name(one) == "java"] or family
        if chosen:
            with contextlib.suppress(psutil.Error):
                self.chance.choice(chosen).kill()

    def kill_log(self) -> None:
        self.log.kill()
        self.log.start()

    def restart_database(self) -> None:
        self.postgres.stop("immediate")
        self.postgres.start()

    def kill_manager_and_driver(self) -> None:
        self.manager.kill()
        self.kill_driver()
        self.manager.start()

    def kill_database_and_manager(self) -> None:
        self.postgres.stop("immediate")
        self.manager.kill()
        self.postgres.start()
        self.manager.start()

    # --- what is looked at -------------------------------------------------------------------------

    def settle(self) -> None:
        """Wait until every job is RUNNING, in one driver, and commits epochs."""
        assert becomes(self._all_run, seconds=SETTLE_SECONDS, poll=0.2), f"not all jobs run: {self.states()}"

    def states(self) -> dict[str, tuple[str, str | None]]:
        with contextlib.suppress(Exception):
            return {job.name: (job.state, str(job.error)) for job in self.store.jobs.all()}
        return {}

    def _all_run(self) -> bool:
        with contextlib.suppress(httpx.HTTPError, KeyError, ValueError):
            answer = httpx.get(f"{self.manager.url}/api/v1/jobs", params={"limit": 100}, timeout=5)
            found = {job["id"]: job for job in answer.json()["items"]} if answer.status_code == 200 else {}
            return all(found.get(job, {}).get("state") == "RUNNING" and _alive(found[job]["pid"]) for job in self.jobs)
        return False

    def runs_of(self, job: str) -> int:
        """Return how many drivers have a job now, by what is stored: more than one run that has not ended is wrong."""
        return len(self.store.runs.running([job]))

    def _marks(self) -> list[str]:
        runs = self.folder / "data" / "runs"
        return sorted(marks() & {path.name for path in runs.iterdir()}) if runs.is_dir() else []

    def _drivers(self) -> list[psutil.Process]:
        family = [one for mark in self._marks() for one in processes_of(mark)]
        return [one for one in family if "driver" in _command(one)]

    def close(self) -> None:
        """End everything."""
        self.manager.kill()
        for mark in self._marks():
            kill_all(mark)
        self.store.close()


@contextlib.contextmanager
def world(folder: Path, postgres: PostgresServer, chance: random.Random, *, scripted: bool) -> Iterator[World]:
    """Start a manager on a database of its own, with a log."""
    with LogProcess(folder) as log:
        made = World(folder, postgres, log, chance, scripted=scripted)
        try:
            made.manager.start()
            yield made
        finally:
            made.close()


def _alive(pid: int | None) -> bool:
    return pid is not None and identify(pid) is not None


def _name(process: psutil.Process) -> str:
    try:
        return str(process.name())
    except psutil.Error:
        return ""


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline()[:4])
    except psutil.Error:
        return ""
