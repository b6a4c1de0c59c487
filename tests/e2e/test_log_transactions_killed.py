"""Promise: the broker is killed with -9 at random moments, and every transaction is there as a whole or not at all."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer

from benchmarks.peers.broker import free_port
from tests.e2e.test_log_transactions import PATIENCE, new_topic, values

KILLS = 3


class Server:
    """A log on one port and one folder that comes back whenever it is killed."""

    def __init__(self, folder: Path) -> None:
        self.address = f"127.0.0.1:{free_port()}"
        self._command = [sys.executable, "-m", "penstock.cli", "log", "serve"]
        self._command += ["--data", str(folder), "--listen", self.address, "--sync", "none"]
        self.kills = 0
        self._start()

    def _start(self) -> None:
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        assert any(line.startswith("listening on") for line in self._process.stdout), "it did not start"

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def come_back(self) -> None:
        self.kill()
        self._start()
        self.kills += 1

    def _end(self, how: signal.Signals) -> None:
        os.kill(self._process.pid, how)
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


@contextmanager
def serving(folder: Path) -> Iterator[Server]:
    server = Server(folder)
    try:
        yield server
    finally:
        server.kill()


class Transactions:
    """One client's transactions, each with the same number for two topics, and what it was told of them."""

    def __init__(self, address: str, topics: list[str]) -> None:
        self._topics = topics
        self._config = {
            "bootstrap.servers": address,
            "transactional.id": topics[0],
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 50,
            "log_level": 0,
        }
        self.committed: set[str] = set()
        self.unknown: set[str] = set()
        self._connect()

    def _connect(self) -> None:
        self._producer = Producer(self._config)
        _insist(lambda: self._producer.init_transactions(PATIENCE))

    def run(self, number: str) -> None:
        try:
            self._producer.begin_transaction()
            for topic in self._topics:
                self._producer.produce(topic, number)
            self.unknown.add(number)
            _insist(lambda: self._producer.commit_transaction(PATIENCE))
            self.unknown.discard(number)
            self.committed.add(number)
        except KafkaException as error:
            self._give_up(number, error)

    def _give_up(self, number: str, error: KafkaException) -> None:
        if error.args[0].txn_requires_abort():
            with suppress(KafkaException):
                _insist(lambda: self._producer.abort_transaction(PATIENCE))
                self.unknown.discard(number)
                return
        self._connect()


def _insist(request: Callable[[], object]) -> None:
    while True:
        try:
            request()
            return
        except KafkaException as error:
            if not error.args[0].retriable():
                raise


@pytest.mark.slow
def test_all_or_nothing_when_the_broker_is_killed_at_random_moments(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        topics = [new_topic(server.address, name) for name in ("one", "two")]
        client = Transactions(server.address, topics)
        number = 0
        for _ in range(KILLS):
            killing = threading.Timer(random.uniform(0.02, 0.3), server.come_back)
            killing.start()
            while killing.is_alive():
                client.run(str(number))
                number += 1
        client.run("last")
        one, two = (values(server.address, topic) for topic in topics)
    assert server.kills == KILLS
    assert "last" in client.committed
    assert one == two
    assert len(set(one)) == len(one)
    assert client.committed <= set(one) <= client.committed | client.unknown
