"""Launchers: how a driver's process is started. The driver is the same everywhere; what differs is Spark's master."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from penstock.control.supervisor.drivers.processes import MARKER, ProcessIdentity, find_driver, identify
from penstock.errors import RunError

# What a driver needs of the manager's environment. Nothing else is inherited: it may hold the manager's secrets.
# The logins of object stores are for checkpoints, which drivers write.
_INHERITED = frozenset(
    """
    PATH HOME USER LOGNAME SHELL LANG LC_ALL LC_CTYPE TZ TMPDIR VIRTUAL_ENV PYTHONPATH PYTHONHOME
    JAVA_HOME JDK_JAVA_OPTIONS SPARK_HOME SPARK_CONF_DIR SPARK_LOCAL_IP SPARK_LOCAL_DIRS HADOOP_CONF_DIR
    HADOOP_HOME YARN_CONF_DIR KUBECONFIG KUBERNETES_SERVICE_HOST
    KUBERNETES_SERVICE_PORT SSL_CERT_FILE SSL_CERT_DIR LD_LIBRARY_PATH XDG_CACHE_HOME
    """.split()  # noqa: SIM905 - a list of names reads better without quotes
)
_INHERITED_PREFIXES = ("AWS_", "AZURE_", "GOOGLE_", "PENSTOCK_TEST_")
# The kernel ends a job before it ends the manager, the log or the database.
_OOM_SCORE = 500
_LAST_THREAD_SECONDS = 5.0


@dataclass(frozen=True)
class DriverStart:
    """What starts a driver: its folder, the secrets it gets by environment, and, for a spare, its settings."""

    folder: Path
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    spare: Mapping[str, Any] | None = None

    @property
    def mark(self) -> str:
        """The value of the marker by which its processes are found."""
        return self.folder.name


class Launcher(Protocol):
    """Starts drivers and reports how they ended."""

    name: str

    def start(self, driver: DriverStart) -> ProcessIdentity:
        """Start a driver; if it runs already, return that one."""

    def exit_code(self, process: ProcessIdentity) -> int | None:
        """Return the exit code, negative for a signal; None if it runs or was started by another manager."""


class LocalLauncher:
    """Starts the driver as a process of this machine, in a session of its own, so that it outlives the manager.

    `settings` are those of Spark's master, where it is not local: they are laid under every job's own settings.
    """

    def __init__(self, name: str = "local", python: str = sys.executable) -> None:
        self.name, self._python = name, python
        self._children: dict[int, subprocess.Popen[bytes]] = {}
        self._lock = threading.Lock()

    def start(self, driver: DriverStart) -> ProcessIdentity:
        """Start a driver; if it runs already, because a manager died right after it, return that one."""
        running = find_driver(driver.mark)
        if running is not None:
            return running
        command = [self._python, "-m", "penstock.driver", str(driver.folder)]
        if driver.spare is not None:
            command += ["--spare", json.dumps(dict(driver.spare))]
        child = self._spawn(command, driver)
        with self._lock:
            self._children[child.pid] = child
        found = identify(child.pid)
        if found is None:
            message = f"the driver exited at once, with code {child.wait()}"
            raise RunError(message, hint=f"see {driver.folder / 'driver.log'}", transient=True)
        return found

    def _spawn(self, command: list[str], driver: DriverStart) -> subprocess.Popen[bytes]:
        driver.folder.mkdir(parents=True, exist_ok=True)
        # What is printed before the driver takes over its own output, such as an import error.
        with (driver.folder / "start.log").open("ab") as output:
            try:
                child = subprocess.Popen(
                    command,
                    cwd=driver.folder,
                    env=driver_environment(driver),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            except OSError as error:
                message = f"cannot start a driver: {error.strerror}"
                raise RunError(message, hint=f"the command was {' '.join(command[:3])}", transient=True) from error
        _prefer_as_victim(child.pid)
        return child

    def exit_code(self, process: ProcessIdentity) -> int | None:
        """Return the exit code of a driver of this manager that has ended, and forget it."""
        with self._lock:
            child = self._children.get(process.pid)
            if child is None or process.alive:
                return None
            # The system has it once the last thread has ended, a moment after the main one.
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(_LAST_THREAD_SECONDS)
                del self._children[process.pid]
            return child.returncode

    def reap(self) -> None:
        """Collect ended children, so that no zombie stays."""
        with self._lock:
            for child in self._children.values():
                child.poll()


def driver_environment(driver: DriverStart) -> dict[str, str]:
    """Return a driver's environment: what every program needs, its marker, and its own secrets."""
    kept = {
        name: value for name, value in os.environ.items() if name in _INHERITED or name.startswith(_INHERITED_PREFIXES)
    }
    return {**kept, **driver.environment, MARKER: driver.mark, "PYTHONUNBUFFERED": "1"}


def _prefer_as_victim(pid: int) -> None:
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid}/oom_score_adj").write_text(str(_OOM_SCORE))


def remove_folder(folder: Path) -> None:
    """Remove a run's folder."""
    shutil.rmtree(folder, ignore_errors=True)
