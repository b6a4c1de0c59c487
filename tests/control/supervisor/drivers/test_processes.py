"""Processes of a driver are identified by pid and start time, and found by their marker."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import psutil

from penstock.control.supervisor.drivers.processes import (
    MARKER,
    ProcessIdentity,
    find_driver,
    identify,
    kill_all,
    processes_of,
    resident_bytes,
)
from tests.waiting import wait_for

SLEEP = "import time; time.sleep(60)"
# A child that leaves the process group and the tree: its parent ends.
ESCAPE = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', '{SLEEP}'], start_new_session=True)"


@contextmanager
def running(code: str, mark: str) -> Iterator[subprocess.Popen[bytes]]:
    environment = {**os.environ, MARKER: mark}
    process = subprocess.Popen([sys.executable, "-c", code], env=environment, start_new_session=True)
    try:
        yield process
    finally:
        kill_all(mark)
        process.wait()


def test_a_running_process_is_alive_and_an_ended_one_is_not() -> None:
    with running(SLEEP, "alive-1") as process:
        found = identify(process.pid)
        assert found is not None
        assert found.alive
        process.kill()
        # Not waited for: a zombie has ended too.
        wait_for(lambda: not found.alive, "the killed process still counts as alive")
        process.wait()
        assert identify(process.pid) is None


def test_a_later_process_with_the_same_id_is_another_one() -> None:
    own = identify(os.getpid())
    assert own is not None
    assert not ProcessIdentity(own.pid, own.started - 1).alive


def test_a_process_that_left_the_group_is_found_by_its_marker_and_killed() -> None:
    with running(ESCAPE, "escape-1") as process:
        process.wait()
        assert [one for one in processes_of("escape-1") if psutil.pid_exists(one.pid)]
        assert kill_all("escape-1") == 1
        assert find_driver("escape-1") is None


def test_the_driver_is_the_oldest_process_with_the_marker() -> None:
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', '{SLEEP}'])"
    with running(code, "oldest-1") as process:
        wait_for(lambda: len(processes_of("oldest-1")) == 2, "the child did not start")
        assert find_driver("oldest-1") == identify(process.pid)


def test_memory_is_that_of_the_whole_tree() -> None:
    own = identify(os.getpid())
    assert own is not None
    alone = resident_bytes(own)
    code = f"data = bytearray(64 * 1024 * 1024); {SLEEP}"
    with running(code, "memory-1"):
        wait_for(lambda: resident_bytes(own) > alone + 60 * 1024 * 1024, "the child's memory is not counted")


def test_killing_what_has_ended_does_nothing() -> None:
    assert kill_all("nobody-has-this-marker") == 0
