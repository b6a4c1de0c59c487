"""A driver gets a clean environment and a session of its own, and is started once."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.control.supervisor.drivers.launchers import DriverStart, LocalLauncher, driver_environment
from penstock.control.supervisor.drivers.processes import kill_all
from tests.waiting import wait_for

SCRIPT = """#!/bin/sh
env > "$3/environment"
echo "$@" > "$3/arguments"
exec sleep 60
"""

# Its main thread ends first, as that of a killed process may.
LAST_THREAD = f"""#!{sys.executable}
import ctypes, os, sys, threading

def end_last():
    while not os.path.exists(sys.argv[3] + "/end"):
        threading.Event().wait(0.01)
    os._exit(3)

threading.Thread(target=end_last).start()
ctypes.CDLL(None).pthread_exit(None)
"""


@pytest.fixture
def launcher(tmp_path: Path) -> LocalLauncher:
    """A launcher whose Python is a script that records how it was started."""
    python = tmp_path / "python"
    python.write_text(SCRIPT)
    python.chmod(python.stat().st_mode | stat.S_IXUSR)
    return LocalLauncher(python=str(python))


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[DriverStart]:
    start = DriverStart(tmp_path / f"run-{os.getpid()}", {"PENSTOCK_SECRET_KEY": "s3cret"})
    yield start
    kill_all(start.mark)


def test_a_driver_has_a_session_of_its_own_and_a_clean_environment(
    launcher: LocalLauncher, driver: DriverStart, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_PASSWORD", "hunter2")
    found = launcher.start(driver)
    wait_for(lambda: (driver.folder / "arguments").exists() and (driver.folder / "arguments").read_text())
    environment = (driver.folder / "environment").read_text()
    assert os.getsid(found.pid) == found.pid
    assert "hunter2" not in environment
    assert "PENSTOCK_SECRET_KEY=s3cret" in environment
    assert f"PENSTOCK_RUN={driver.mark}" in environment


def test_a_driver_that_runs_already_is_not_started_again(launcher: LocalLauncher, driver: DriverStart) -> None:
    first = launcher.start(driver)
    assert launcher.start(driver) == first


def test_the_exit_code_is_known_once_it_ended(launcher: LocalLauncher, driver: DriverStart) -> None:
    found = launcher.start(driver)
    assert launcher.exit_code(found) is None
    kill_all(driver.mark, found)
    codes: list[int] = []
    wait_for(lambda: codes or codes.extend(filter(None, [launcher.exit_code(found)])) or codes)
    assert codes == [-9]


def test_the_exit_code_is_that_of_the_last_thread(tmp_path: Path, launcher: LocalLauncher, driver: DriverStart) -> None:
    (tmp_path / "python").write_text(LAST_THREAD)
    found = launcher.start(driver)
    wait_for(lambda: not found.alive)
    (driver.folder / "end").touch()
    assert launcher.exit_code(found) == 3


def test_secrets_are_not_in_the_representation(driver: DriverStart) -> None:
    assert "s3cret" not in repr(driver)
    assert driver_environment(driver)["PENSTOCK_SECRET_KEY"] == "s3cret"
