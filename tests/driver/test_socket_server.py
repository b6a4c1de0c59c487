"""The protocol of a driver over its socket, as docs/decisions/016 has it; without Spark."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.driver import socket_server as module
from penstock.driver.host import DriverHost
from penstock.driver.socket_server import SOCKET, SocketServer
from tests.driver.fake_runtime import FakeRuntime, assignment
from tests.driver.manager import Manager
from tests.waiting import wait_for


class Driver:
    """A host with a fake runtime behind a real socket."""

    def __init__(self, folder: Path, heartbeat_seconds: float = 3600.0) -> None:
        self.folder, self.runtime = folder, FakeRuntime()
        self.host = DriverHost(folder, self.runtime, token=3)
        self.server = SocketServer(folder, self.host, heartbeat_seconds=heartbeat_seconds)
        self.host.publish = self.server.publish
        self.server.start()
        self._managers: list[Manager] = []

    def manager(self, token: int | None = None, after: int = 0) -> Manager:
        manager = Manager(self.folder, token, after)
        self._managers.append(manager)
        return manager

    def close(self) -> None:
        self.host.exit()
        self.host.wait(10)
        for manager in self._managers:
            manager.close()
        self.server.close()


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Driver]:
    driver = Driver(tmp_path)
    yield driver
    driver.close()


def test_attach_is_answered_with_hello_and_a_job_can_be_run_and_stopped(driver: Driver) -> None:
    manager = driver.manager(3)
    hello = manager.read()
    assert hello is not None
    assert (hello["type"], hello["pid"], hello["jobs"]) == ("hello", os.getpid(), {})
    manager.send({"type": "run", "job": "j1", "target": "job.py", "checkpoint": "c"})
    manager.until("running")
    manager.send({"type": "stop", "job": "j1", "savepoint": "s"})
    ended = manager.until("ended")
    assert [message["kind"] for message in ended] == ["stopping", "savepoint", "ended"]


def test_a_manager_with_an_older_token_is_refused(driver: Driver) -> None:
    manager = driver.manager(2)
    refused = manager.read()
    assert refused is not None
    assert refused["type"] == "refused"
    assert manager.read() is None


def test_a_new_manager_takes_over_and_the_old_connection_is_dropped(driver: Driver) -> None:
    driver.host.run(assignment(token=3))
    old = driver.manager(3)
    old.until("running")
    new = driver.manager(4)
    assert [message.get("kind", message["type"]) for message in new.until("running")] == ["hello", "loading", "running"]
    assert old.read() is None
    refused = driver.manager(3).read()
    assert refused is not None
    assert refused["type"] == "refused"
    driver.runtime.runs["j1"].commit(0, 1)
    new.until("epoch")


def test_events_that_a_manager_missed_are_replayed_after_the_number_it_knows(driver: Driver) -> None:
    driver.host.run(assignment(token=3))
    first = driver.manager(3)
    seen = first.until("running")[-1]["seq"]
    first.close()
    driver.runtime.runs["j1"].commit(0, 5)
    wait_for(lambda: driver.host.events.newest > seen)
    again = driver.manager(3, after=seen)
    assert [message.get("kind") for message in again.until("epoch")] == [None, "epoch"]


def test_a_job_goes_on_without_a_manager(driver: Driver) -> None:
    driver.host.run(assignment(token=3))
    driver.manager(3).close()
    wait_for(lambda: "j1" in driver.runtime.runs)
    driver.runtime.runs["j1"].finish()
    assert driver.host.wait(10)
    assert (driver.folder / "outcome-j1.json").exists()


def test_heartbeats_are_sent_while_a_manager_is_attached(tmp_path: Path) -> None:
    driver = Driver(tmp_path, heartbeat_seconds=0.01)
    driver.host.run(assignment(token=3))
    beat = driver.manager(3).until("heartbeat")[-1]
    assert set(beat) == {"type", "at", "jobs", "rss"}
    driver.close()


def test_a_manager_that_does_not_read_is_disconnected_and_blocks_nobody(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_UNREAD", 10_000)
    driver.host.run(assignment(token=3))
    slow = driver.manager(3)
    slow.until("running")
    event = {"type": "event", "job": "j1", "kind": "epoch", "text": "x" * 100_000}
    for number in range(100, 200):
        driver.server.publish({**event, "seq": number})
    received = 0
    while slow.read() is not None:
        received += 1
    assert received < 100
    assert driver.manager(3).until("hello")


@pytest.mark.parametrize("first", [b"nonsense\n", b"[1]\n", b'{"type":"stop","job":"j1"}\n', b'{"type":"attach"}\n'])
def test_who_does_not_attach_first_is_refused(driver: Driver, first: bytes) -> None:
    manager = driver.manager()
    manager.socket.sendall(first)
    answer = manager.read()
    assert answer is not None
    assert answer["type"] == "refused"
    assert manager.read() is None


def test_a_message_that_cannot_be_carried_out_is_answered(driver: Driver) -> None:
    manager = driver.manager(3)
    manager.send({"type": "stop", "job": "j9"})
    assert manager.until("rejected")[-1]["message"] == "no such job runs here"


def test_the_socket_is_for_its_owner_only_and_works_in_a_folder_with_a_long_path(tmp_path: Path) -> None:
    folder = tmp_path / ("d" * 60) / ("e" * 60)
    folder.mkdir(parents=True)
    driver = Driver(folder)
    assert stat.S_IMODE((folder / SOCKET).stat().st_mode) == 0o600
    assert driver.manager(3).until("hello")
    driver.close()
    assert not (folder / SOCKET).exists()
