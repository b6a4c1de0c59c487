"""ACLs of the log, through librdkafka and the commands: who has no permission is refused, and gets to know why."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from typer.testing import CliRunner

from penstock.cli.acl import app as acl_commands
from penstock.errors import BrokerRefused, UnknownSetting
from tests.e2e.secured import PASSWORDS, PATIENCE, Log, consume, produce, said_by, secured, started

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="makes certificates with the openssl command")
EVERY_ACL = AclBindingFilter(
    ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Log]:
    with secured(tmp_path_factory.mktemp("secured")) as log:
        yield log


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
