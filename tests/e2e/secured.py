"""A log behind TLS and logins as a process of its own, and what a client does with it."""

from __future__ import annotations

import os
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.log.security.quotas import PRODUCE, Entity, Quotas
from penstock.log.security.users import Users
from tests.log.security.certificates import Pair, authority, signed

PASSWORDS = {"root": "root-4f2a9c", "alice": "alice-77b1e0", "carol": "carol-c0ffee", "slow": "slow-0dd5ea"}
WRONG = "wrong-but-secret"
PATIENCE = 20.0


@dataclass
class Log:
    """A running `penstock log serve`, what it said, and the certificates to talk to it."""

    address: str
    metrics: str
    ca: Pair
    said: list[str] = field(default_factory=list)

    @cached_property
    def root(self) -> AdminClient:
        """An administrator; one for all tests, for librdkafka drops the requests of a client that is forgotten."""
        return AdminClient(self.config("root"))

    def config(self, user: str, mechanism: str = "SCRAM-SHA-512", password: str | None = None) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.address,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.ca.certificate),
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": password or PASSWORDS[user],
            "log_level": 0,
        }

    def options(self, user: str, mechanism: str, password: str | None = None) -> dict[str, Any]:
        """The same for aiokafka and kafka-python."""
        return {
            "bootstrap_servers": self.address,
            "security_protocol": "SASL_SSL",
            "ssl_context": ssl.create_default_context(cafile=self.ca.certificate),
            "sasl_mechanism": mechanism,
            "sasl_plain_username": user,
            "sasl_plain_password": password or PASSWORDS[user],
        }


@contextmanager
def serving(data: Path, ca: Pair, server: Pair, *more: str | Path) -> Iterator[Log]:
    command: list[str | Path] = [sys.executable, "-m", "penstock.cli", "log", "serve", "--data", data]
    command += [
        "--listen",
        "127.0.0.1:0",
        "--metrics",
        "127.0.0.1:0",
        "--sync",
        "none",
        "--group-initial-rebalance-delay",
        "100ms",
    ]
    command += ["--tls-cert", server.certificate, "--tls-key", server.key, *more]
    log = Log("", "", ca)
    process = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    try:
        for line in process.stdout:
            log.said.append(line)
            word, _, rest = line.strip().partition(" on ")
            if word == "metrics":
                log.metrics = rest
            if word == "listening":
                log.address = rest
                break
        assert log.address, "".join(log.said)
        reader = threading.Thread(target=log.said.extend, args=[process.stdout])
        reader.start()
        yield log
    finally:
        process.terminate()
        process.wait(PATIENCE)
        if log.address:
            reader.join()
        process.stdout.close()
    assert process.returncode == 0, "".join(log.said)


@contextmanager
def secured(folder: Path) -> Iterator[Log]:
    """A log with logins over TLS: root and slow are administrators, slow has a quota, and alice has no rights."""
    ca = authority(folder)
    users = Users(folder / "data")
    users.add("root", PASSWORDS["root"], is_super=True)
    users.add("alice", PASSWORDS["alice"])
    users.add("slow", PASSWORDS["slow"], is_super=True)
    Quotas(folder / "data", time.monotonic).change(Entity("slow"), {PRODUCE: 20_000.0})
    server = signed(folder, ca, "server", "/CN=localhost")
    with serving(folder / "data", ca, server, "--login", "--no-auto-create") as log:
        done = log.root.create_topics([NewTopic(name, 1) for name in ("open", "orders", "other")])
        for created in done.values():
            created.result(PATIENCE)
        yield log
    # After all tests: nothing of what was said holds a secret.
    said = "".join(log.said)
    assert not [password for password in (*PASSWORDS.values(), WRONG) if password in said]
    assert "Traceback" not in said


def started(log: Log, user: str, *arguments: str, ca: bool = True) -> subprocess.Popen[str]:
    """A command as that user, who is named in PENSTOCK_LOG."""
    url = f"kafka://{user}:{PASSWORDS[user]}@{log.address}?mechanism=SCRAM-SHA-256&tls=true"
    env = {**os.environ, "PENSTOCK_LOG": f"{url}&ca={log.ca.certificate}" if ca else url}
    command = [sys.executable, "-m", "penstock.cli", *arguments]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=env, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def said_by(command: subprocess.Popen[str], lines: str = "") -> tuple[int, str, str]:
    with command:
        out, err = command.communicate(lines, PATIENCE)
    assert not [password for password in PASSWORDS.values() if password in out + err]
    return command.returncode, out, err


def wait_for(found: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if (result := found()) is not None:
            return result
    pytest.fail(f"waited {PATIENCE} s in vain")


def produce(config: dict[str, Any], topic: str, value: bytes) -> KafkaError | None:
    """Send one record; return the error that the log answered."""
    outcome: list[KafkaError | None] = []
    producer = Producer({**config, "message.timeout.ms": 5000})
    producer.produce(topic, value, on_delivery=lambda error, _: outcome.append(error))
    producer.flush(PATIENCE)
    return outcome[0]


def consume(config: dict[str, Any], topic: str, group: str) -> bytes | KafkaError:
    """Read the first record, or the error that the log answered."""
    consumer = Consumer({**config, "group.id": group, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    try:
        message = wait_for(lambda: consumer.poll(1))
        return message.error() or message.value()
    finally:
        consumer.close()
