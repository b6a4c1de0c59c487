"""The log behind logins and TLS, through three client libraries that nobody here wrote."""

from __future__ import annotations

import asyncio
import shutil
import socket
import ssl
import struct
import subprocess
import sys
import urllib.request
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError as AioKafkaError
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from tests.e2e.secured import (
    PASSWORDS,
    PATIENCE,
    WRONG,
    Log,
    consume,
    produce,
    said_by,
    secured,
    serving,
    started,
    wait_for,
)
from tests.log.security.certificates import authority, signed

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # kafka-python reads its schemas by a deprecated function
    from kafka import KafkaConsumer, KafkaProducer
    from kafka.errors import KafkaError as KafkaPythonError

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="makes certificates with the openssl command")
MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Log]:
    with secured(tmp_path_factory.mktemp("secured")) as log:
        yield log


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_librdkafka_logs_in_over_tls(log: Log, mechanism: str) -> None:
    config = log.config("root", mechanism)
    assert produce(config, "open", b"hello") is None
    assert consume(config, "open", f"librdkafka-{mechanism}") == b"hello"


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_aiokafka_logs_in_over_tls(log: Log, mechanism: str) -> None:
    async def scenario() -> bytes | None:
        options = log.options("root", mechanism)
        async with AIOKafkaProducer(**options) as producer:
            await producer.send_and_wait("open", b"hello")
        async with AIOKafkaConsumer("open", auto_offset_reset="earliest", **options) as consumer:
            return (await asyncio.wait_for(consumer.getone(), PATIENCE)).value

    assert asyncio.run(scenario()) == b"hello"


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python_logs_in_over_tls(log: Log, mechanism: str) -> None:
    options = log.options("root", mechanism)
    producer = KafkaProducer(**options)
    producer.send("open", b"hello").get(PATIENCE)
    producer.close()
    consumer = KafkaConsumer("open", auto_offset_reset="earliest", **options)
    assert wait_for(lambda: next(iter(consumer.poll(1000).values()), None))[0].value == b"hello"
    consumer.close()


@pytest.mark.parametrize(("user", "mechanism"), [("root", "PLAIN"), ("root", "SCRAM-SHA-512"), ("nobody", "PLAIN")])
def test_a_wrong_password_and_an_unknown_user_get_nowhere(log: Log, user: str, mechanism: str) -> None:
    errors: list[KafkaError] = []
    admin = AdminClient({**log.config(user, mechanism, WRONG), "error_cb": errors.append})

    def refusal() -> KafkaError | None:
        admin.poll(0.2)
        return next((error for error in errors if error.code() == KafkaError._AUTHENTICATION), None)

    assert "login failed" in wait_for(refusal).str()
    assert wait_for(lambda: next((line for line in log.said if "login failed" in line), None))
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=1)


def test_the_other_libraries_are_told_of_a_wrong_password_too(log: Log) -> None:
    async def scenario() -> None:
        producer = AIOKafkaProducer(**log.options("root", "SCRAM-SHA-256", WRONG))
        try:
            await producer.start()
        finally:
            await producer.stop()

    with pytest.raises(AioKafkaError):
        asyncio.run(scenario())
    with pytest.raises(KafkaPythonError):
        KafkaProducer(**log.options("root", "SCRAM-SHA-256", WRONG), bootstrap_timeout_ms=1000)


@pytest.mark.parametrize("api", [0, 1, 2, 3, 9, 10, 11, 16, 19, 20, 22, 29, 32, 48, 50, 51, 60])
def test_before_the_login_every_other_request_ends_the_connection_without_an_answer(log: Log, api: int) -> None:
    host, port = log.address.split(":")
    context = ssl.create_default_context(cafile=log.ca.certificate)
    body = struct.pack(">hhih", api, 0, 1, -1) + bytes(40)
    plain = socket.create_connection((host, int(port)), PATIENCE)
    with context.wrap_socket(plain, server_hostname="localhost") as wrapped:
        wrapped.sendall(struct.pack(">i", len(body)) + body)
        assert wrapped.recv(1) == b""


def test_before_the_login_a_large_request_ends_the_connection(log: Log) -> None:
    host, port = log.address.split(":")
    context = ssl.create_default_context(cafile=log.ca.certificate)
    plain = socket.create_connection((host, int(port)), PATIENCE)
    with context.wrap_socket(plain, server_hostname="localhost") as wrapped:
        wrapped.sendall(struct.pack(">ihhih", 1_000_000, 36, 2, 1, -1))
        assert wrapped.recv(1) == b""


def test_who_exceeds_a_quota_is_told_to_wait_and_loses_nothing(log: Log) -> None:
    waits: list[float] = []
    config = {**log.config("slow"), "linger.ms": 0, "throttle_cb": lambda event: waits.append(event.throttle_time)}
    producer, outcome = Producer(config), []
    for _ in range(3):
        producer.produce("other", bytes(10_000), on_delivery=lambda error, _: outcome.append(error))
        producer.flush(PATIENCE)
    assert outcome == [None] * 3
    assert wait_for(lambda: producer.poll(0.1) or waits or None)


def test_a_client_without_tls_gets_no_answer(log: Log) -> None:
    host, port = log.address.split(":")
    with socket.create_connection((host, int(port)), PATIENCE) as plain:
        plain.sendall(struct.pack(">ihhih", 10, 18, 0, 1, -1))
        answer = plain.recv(100)
    assert answer == b"" or answer[0] == 0x15  # at most a TLS alert


def test_the_commands_understand_the_url_of_the_log(log: Log) -> None:
    code, out, err = said_by(started(log, "root", "topic", "list"))
    assert (code, err) == (0, "")
    assert "orders" in out


def test_who_does_not_trust_the_certificate_is_told_how_to(log: Log) -> None:
    code, _, err = said_by(started(log, "root", "topic", "list", ca=False))
    assert code == 2
    assert "certificate verify failed" in err
    assert "--ca FILE" in err


def test_a_user_who_is_added_while_the_log_runs_can_log_in(log: Log) -> None:
    strong = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 8192)
    made = UserScramCredentialUpsertion("carol", strong, PASSWORDS["carol"].encode())
    log.root.alter_user_scram_credentials([made])["carol"].result(PATIENCE)
    for mechanism in ("SCRAM-SHA-256", "PLAIN"):
        assert AdminClient(log.config("carol", mechanism)).list_topics(timeout=PATIENCE).topics == {}
    assert set(log.root.describe_user_scram_credentials().result(PATIENCE)) == {"root", "alice", "carol", "slow"}


def test_metrics_are_served_without_a_secret(log: Log) -> None:
    text = urllib.request.urlopen(log.metrics, timeout=PATIENCE).read().decode()
    assert "penstock_log_connections_active" in text
    assert not [password for password in PASSWORDS.values() if password in text]


def test_a_clients_certificate_is_a_login(tmp_path: Path) -> None:
    ca = authority(tmp_path)
    server = signed(tmp_path, ca, "server", "/CN=localhost")
    alice = signed(tmp_path, ca, "alice", "/O=Ops/CN=alice")
    more = ["--client-ca", ca.certificate, "--super-user", "User:CN=alice,O=Ops"]
    with serving(tmp_path / "certified", ca, server, *more) as log:
        shown = {"ssl.certificate.location": str(alice.certificate), "ssl.key.location": str(alice.key)}
        trusted = {"bootstrap.servers": log.address, "security.protocol": "SSL", "log_level": 0}
        trusted["ssl.ca.location"] = str(ca.certificate)
        assert produce({**trusted, **shown}, "mine", b"hello") is None
        with pytest.raises(KafkaException):
            AdminClient(trusted).list_topics(timeout=1)


def test_the_log_is_not_opened_to_other_machines_without_asking_who_they_are(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "penstock.cli",
        "log",
        "serve",
        "--data",
        str(tmp_path / "bare"),
        "--listen",
        "0.0.0.0:0",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 2
    assert "without authentication" in done.stderr
    assert "penstock log user add" in done.stderr
