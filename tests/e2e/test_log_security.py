"""The log behind logins, TLS and ACLs, through three client libraries that nobody here wrote."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import ssl
import struct
import subprocess
import sys
import time
import urllib.request
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError as AioKafkaError
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from typer.testing import CliRunner

from penstock.cli.acl import app as acl_commands
from penstock.errors import BrokerRefused, UnknownSetting
from penstock.log.security.quotas import PRODUCE, Entity, Quotas
from penstock.log.security.users import Users
from tests.e2e.secured import PASSWORDS, PATIENCE, Log, consume, produce, serving, wait_for
from tests.log.security.certificates import Pair, authority, signed

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # kafka-python reads its schemas by a deprecated function
    from kafka import KafkaConsumer, KafkaProducer
    from kafka.errors import KafkaError as KafkaPythonError

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="makes certificates with the openssl command")
WRONG = "wrong-but-secret"
MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
EVERY_ACL = AclBindingFilter(
    ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("secured")


@pytest.fixture(scope="module")
def ca(folder: Path) -> Pair:
    return authority(folder)


@pytest.fixture(scope="module")
def server(folder: Path, ca: Pair) -> Pair:
    return signed(folder, ca, "server", "/CN=localhost")


@pytest.fixture(scope="module")
def log(folder: Path, ca: Pair, server: Pair) -> Iterator[Log]:
    users = Users(folder / "data")
    users.add("root", PASSWORDS["root"], is_super=True)
    users.add("alice", PASSWORDS["alice"])
    users.add("slow", PASSWORDS["slow"], is_super=True)
    Quotas(folder / "data", time.monotonic).change(Entity("slow"), {PRODUCE: 20_000.0})
    with serving(folder / "data", ca, server, "--login", "--no-auto-create") as log:
        done = log.root.create_topics([NewTopic(name, 1) for name in ("open", "orders", "other")])
        for created in done.values():
            created.result(PATIENCE)
        yield log
    # After all tests: nothing of what was said holds a secret.
    said = "".join(log.said)
    assert not [password for password in (*PASSWORDS.values(), WRONG) if password in said]
    assert "Traceback" not in said


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
        KafkaProducer(**log.options("root", "SCRAM-SHA-256", WRONG), bootstrap_timeout_ms=3000)


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


def grant(
    admin: AdminClient, kind: ResourceType, name: str, operation: AclOperation, *, prefixed: bool = False
) -> AclBinding:
    pattern = ResourcePatternType.PREFIXED if prefixed else ResourcePatternType.LITERAL
    acl = AclBinding(kind, name, pattern, "User:alice", "*", operation, AclPermissionType.ALLOW)
    for done in admin.create_acls([acl]).values():
        done.result(PATIENCE)
    return acl


@pytest.fixture
def no_acls(log: Log) -> Iterator[None]:
    yield
    for done in log.root.delete_acls([EVERY_ACL]).values():
        done.result(PATIENCE)


@pytest.mark.usefixtures("no_acls")
def test_a_user_without_rights_gets_nothing(log: Log) -> None:
    config = log.config("alice")
    produce(log.config("root"), "orders", b"secret")
    consume(log.config("root"), "orders", "readers")
    admin = AdminClient(config)
    assert admin.list_topics(timeout=PATIENCE).topics == {}
    assert [each.group_id for each in admin.list_consumer_groups().result(PATIENCE).valid] == []
    refused = produce(config, "orders", b"mine")
    assert refused is not None
    assert refused.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    for denied in (consume(config, "orders", "readers"), consume(config, "orders", "mine")):
        assert isinstance(denied, KafkaError)
        assert denied.code() in (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED)
    with pytest.raises(KafkaException) as caught:
        admin.create_topics([NewTopic("mine", 1)])["mine"].result(PATIENCE)
    assert caught.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    with pytest.raises(KafkaException) as caught:
        grant(admin, ResourceType.TOPIC, "orders", AclOperation.ALL)
    assert caught.value.args[0].code() == KafkaError.CLUSTER_AUTHORIZATION_FAILED


@pytest.mark.usefixtures("no_acls")
def test_a_grant_lets_exactly_that_through(log: Log) -> None:
    config = log.config("alice")
    admin = AdminClient(config)
    grant(log.root, ResourceType.TOPIC, "ord", AclOperation.WRITE, prefixed=True)
    assert produce({**config, "enable.idempotence": True}, "orders", b"mine") is None
    refused = produce(config, "other", b"mine")
    assert refused is not None
    assert refused.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert list(admin.list_topics(timeout=PATIENCE).topics) == ["orders"]
    unread = consume(config, "orders", "alices")
    assert isinstance(unread, KafkaError)

    grant(log.root, ResourceType.TOPIC, "orders", AclOperation.READ)
    grant(log.root, ResourceType.GROUP, "alices", AclOperation.READ)
    assert isinstance(consume(config, "orders", "alices"), bytes)
    other = consume(config, "orders", "bobs")
    assert isinstance(other, KafkaError)
    assert other.code() == KafkaError.GROUP_AUTHORIZATION_FAILED
    seen = [each.group_id for each in admin.list_consumer_groups().result(PATIENCE).valid]
    assert seen == ["alices"]


@pytest.mark.usefixtures("no_acls")
def test_acls_are_found_as_they_were_made(log: Log) -> None:
    made = grant(log.root, ResourceType.GROUP, "alices", AclOperation.READ)
    wanted = AclBindingFilter(
        ResourceType.GROUP, "alices", ResourcePatternType.MATCH, None, None, AclOperation.ANY, AclPermissionType.ANY
    )
    assert log.root.describe_acls(wanted).result(PATIENCE) == [made]


def acl(log: Log, user: str, *arguments: str) -> str:
    login = ["--broker", log.address, "--user", user, "--mechanism", "SCRAM-SHA-256", "--ca", str(log.ca.certificate)]
    env = {"PENSTOCK_PASSWORD": PASSWORDS[user]}
    result = CliRunner().invoke(acl_commands, [*arguments, *login], env=env, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.usefixtures("no_acls")
def test_the_command_adds_lists_and_removes_acls(log: Log) -> None:
    said = acl(log, "root", "add", "User:alice", "-o", "read", "-o", "write", "--topic", "ord", "--prefixed")
    assert said == "added 2 ACLs for User:alice\n"
    acl(log, "root", "add", "User:alice", "-o", "describe", "--cluster", "--permission", "deny")
    lines = [line.split() for line in acl(log, "root", "list").splitlines()[1:]]
    assert lines == [
        ["User:alice", "*", "allow", "read", "topic", "prefixed", "ord"],
        ["User:alice", "*", "allow", "write", "topic", "prefixed", "ord"],
        ["User:alice", "*", "deny", "describe", "cluster", "literal", "kafka-cluster"],
    ]
    assert produce(log.config("alice"), "orders", b"mine") is None
    with pytest.raises(BrokerRefused, match="alice has no permission to list ACLs"):
        acl(log, "alice", "list")
    assert acl(log, "root", "remove", "User:alice") == "removed 3 ACLs of User:alice\n"
    refused = produce(log.config("alice"), "orders", b"mine")
    assert refused is not None
    for wrong in (["-o", "raed", "--topic", "orders"], ["-o", "read"]):
        with pytest.raises(UnknownSetting) as caught:
            acl(log, "root", "add", "User:alice", *wrong)
        assert caught.value.hint


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


def test_the_commands_understand_the_url_of_the_log(log: Log) -> None:
    code, out, err = said_by(started(log, "root", "topic", "list"))
    assert (code, err) == (0, "")
    assert "orders" in out


def test_who_does_not_trust_the_certificate_is_told_how_to(log: Log) -> None:
    code, _, err = said_by(started(log, "root", "topic", "list", ca=False))
    assert code == 2
    assert "certificate verify failed" in err
    assert "--ca FILE" in err


ALLOW = "penstock acl add User:alice --operation write --topic orders"


@pytest.mark.usefixtures("no_acls")
def test_who_may_not_write_is_told_so(log: Log) -> None:
    grant(log.root, ResourceType.TOPIC, "orders", AclOperation.READ)
    refused = (
        2,
        "",
        f"BrokerRefused: permission denied: user 'alice' may not write to topic 'orders'\n  allow it: {ALLOW}\n",
    )
    assert said_by(started(log, "alice", "produce", "orders"), "mine\n") == refused


@pytest.mark.usefixtures("no_acls")
def test_who_may_write_no_longer_is_told_what_was_acknowledged(log: Log) -> None:
    """Without the right to see the topic's settings, and with the right to write taken away in the midst."""
    grant(log.root, ResourceType.TOPIC, "midst", AclOperation.WRITE)
    grant(log.root, ResourceType.TOPIC, "midst", AclOperation.READ)
    for created in log.root.create_topics([NewTopic("midst", 1)]).values():
        created.result(PATIENCE)
    command = started(log, "alice", "produce", "midst")
    assert command.stdin is not None
    # Enough that Python's reader hands the first lines on.
    command.stdin.write("first\n" * 100_000)
    command.stdin.flush()
    assert consume(log.config("root"), "midst", "midst") == b"first"
    for done in log.root.delete_acls([EVERY_ACL]).values():
        done.result(PATIENCE)
    code, out, err = said_by(command, "second\n" * 100_000)
    first, so_far, hint = err.splitlines()
    assert (code, out, first) == (
        2,
        "",
        "BrokerRefused: permission denied: user 'alice' may not write to topic 'midst'",
    )
    assert so_far.endswith(" acknowledged; nothing more was sent")
    assert hint == f"  allow it: {ALLOW.replace('orders', 'midst')}"


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


def test_a_clients_certificate_is_a_login(folder: Path, ca: Pair, server: Pair) -> None:
    alice = signed(folder, ca, "alice", "/O=Ops/CN=alice")
    more = ["--client-ca", ca.certificate, "--super-user", "User:CN=alice,O=Ops"]
    with serving(folder / "certified", ca, server, *more) as log:
        shown = {"ssl.certificate.location": str(alice.certificate), "ssl.key.location": str(alice.key)}
        trusted = {"bootstrap.servers": log.address, "security.protocol": "SSL", "log_level": 0}
        trusted["ssl.ca.location"] = str(ca.certificate)
        assert produce({**trusted, **shown}, "mine", b"hello") is None
        with pytest.raises(KafkaException):
            AdminClient(trusted).list_topics(timeout=1)


def test_the_log_is_not_opened_to_other_machines_without_asking_who_they_are(folder: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "penstock.cli",
        "log",
        "serve",
        "--data",
        str(folder / "bare"),
        "--listen",
        "0.0.0.0:0",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 2
    assert "without authentication" in done.stderr
    assert "penstock log user add" in done.stderr
