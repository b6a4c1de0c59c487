"""The requests about security, asked of a real broker and read back as a client reads them."""

from __future__ import annotations

import asyncio
import typing
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

from penstock.log.broker import Broker
from penstock.log.errors import ErrorCode, LogError
from penstock.log.handlers import COROUTINES as HANDLERS
from penstock.log.handlers import authentication as logins
from penstock.log.network.connection import Connection
from penstock.log.protocol.apis import BY_NAME
from penstock.log.protocol.messages import error_reply, read_request, write_reply
from penstock.log.request_context import Call
from penstock.log.security.quotas import FETCH, PRODUCE
from penstock.log.security.setup import open_security


class Client:
    """Asks handlers as a connection does: every request and reply goes through its bytes."""

    def __init__(self, broker: Broker, principal: str | None = None) -> None:
        self.connection = Connection(broker, "10.0.0.1", broker.security.authentication(principal))

    def ask(self, name: str, version: int, **fields: Any) -> Any:
        api = BY_NAME[name]
        request = read_request(api, version, _encoded(api.key, version, fields))
        body = asyncio.run(self._answer(Call(self.connection, api, version, "test", lambda _: None), request))
        reply, size = entity_reader(load_response_schema(api.key, version))(body, 0)
        assert size == len(body)
        return reply

    async def _answer(self, call: Call, request: Any) -> bytes:
        try:
            return write_reply(call.api, call.version, await HANDLERS[call.api.name](call, request))
        except LogError as error:
            return error_reply(call.api, call.version, error) or b""


def _encoded(key: int, version: int, fields: dict[str, Any]) -> bytes:
    schema, out = load_request_schema(key, version), BytesIO()
    entity_writer(schema)(out, _built(schema, fields))
    return out.getvalue()


def _built(schema: Any, fields: dict[str, Any]) -> Any:
    hints = typing.get_type_hints(schema)
    for name, value in fields.items():
        if isinstance(value, list):
            kind = next(each for each in _parts(hints[name]) if hasattr(each, "__api_key__"))
            fields = {**fields, name: tuple(_built(kind, item) for item in value)}
    return schema(**fields)


def _parts(hint: Any) -> Iterator[Any]:
    yield hint
    for part in typing.get_args(hint):
        yield from _parts(part)


@pytest.fixture
def broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    monkeypatch.setattr(logins, "FAILED_LOGIN_DELAY", 0.0)
    open_security(tmp_path).users.add("alice", "pencil")
    broker = Broker(tmp_path, security=open_security(tmp_path, login=True, super_users=["User:root"]))
    yield broker
    broker.store.close()


@pytest.fixture
def root(broker: Broker) -> Client:
    return Client(broker, "User:root")


@pytest.fixture
def alice(broker: Broker) -> Client:
    return Client(broker, "User:alice")


READ_ORDERS = {
    "resource_type": 2,
    "resource_name": "orders",
    "resource_pattern_type": 3,
    "principal": "User:alice",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
}
EVERYTHING = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_login_by_plain_makes_the_connection_ready(broker: Broker, version: int) -> None:
    client = Client(broker)
    login = client.connection.authentication
    assert login is not None
    assert not login.ready
    handshake = client.ask("sasl_handshake", 1, mechanism="PLAIN")
    assert handshake.error_code is ErrorCode.none
    assert set(handshake.mechanisms) == {"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"}
    reply = client.ask("sasl_authenticate", version, auth_bytes=b"\0alice\0pencil")
    assert reply.error_code is ErrorCode.none
    assert (login.ready, client.connection.principal) == (True, "User:alice")


def test_a_wrong_password_is_refused_for_good_and_counted(broker: Broker) -> None:
    client = Client(broker)
    client.ask("sasl_handshake", 1, mechanism="PLAIN")
    refused = client.ask("sasl_authenticate", 2, auth_bytes=b"\0alice\0wrong")
    assert refused.error_code is ErrorCode.sasl_authentication_failed
    assert "wrong" not in str(refused.error_message).replace("password is wrong", "")
    again = client.ask("sasl_authenticate", 2, auth_bytes=b"\0alice\0pencil")
    assert again.error_code is ErrorCode.illegal_sasl_state
    login = client.connection.authentication
    assert login is not None
    assert login.failed
    assert not login.ready
    assert b"penstock_log_failed_logins_total 2.0" in broker.metrics.render(broker)


def test_a_login_keeps_its_order(broker: Broker) -> None:
    client = Client(broker)
    early = client.ask("sasl_authenticate", 2, auth_bytes=b"\0alice\0pencil")
    assert early.error_code is ErrorCode.illegal_sasl_state
    unknown = Client(broker).ask("sasl_handshake", 1, mechanism="GSSAPI")
    assert unknown.error_code is ErrorCode.unsupported_sasl_mechanism
    assert "SCRAM-SHA-512" in unknown.mechanisms
    client = Client(broker)
    client.ask("sasl_handshake", 1, mechanism="PLAIN")
    assert client.ask("sasl_handshake", 1, mechanism="PLAIN").error_code is ErrorCode.illegal_sasl_state


def test_after_a_handshake_of_version_0_the_login_is_bare_bytes(broker: Broker) -> None:
    client = Client(broker)
    login = client.connection.authentication
    assert login is not None
    client.ask("sasl_handshake", 0, mechanism="PLAIN")
    assert login.raw
    call = Call(client.connection, BY_NAME["sasl_authenticate"], 0, "", lambda _: None)
    assert asyncio.run(logins.login_step(call, b"\0alice\0pencil")) == b""
    assert login.ready
    assert not login.raw


def test_where_nobody_is_asked_a_login_and_acls_are_refused(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    try:
        client = Client(broker)
        assert client.ask("sasl_handshake", 1, mechanism="PLAIN").error_code is ErrorCode.illegal_sasl_state
        assert client.ask("describe_acls", 3, **EVERYTHING).error_code is ErrorCode.security_disabled
        made = client.ask("create_acls", 3, creations=[READ_ORDERS])
        assert made.results[0].error_code is ErrorCode.security_disabled
    finally:
        broker.store.close()


@pytest.mark.parametrize("version", [1, 2, 3])
def test_acls_are_created_described_and_deleted(broker: Broker, root: Client, version: int) -> None:
    made = root.ask("create_acls", version, creations=[READ_ORDERS, {**READ_ORDERS, "operation": 4}])
    assert [each.error_code for each in made.results] == [ErrorCode.none] * 2
    access = broker.security.access
    assert access is not None
    assert access.allowed("User:alice", "h", "DESCRIBE", "TOPIC", "orders")
    (resource,) = root.ask("describe_acls", version, **EVERYTHING).resources
    assert (resource.resource_type, resource.resource_name, resource.pattern_type) == (2, "orders", 3)
    assert [(each.principal, each.operation) for each in resource.acls] == [("User:alice", 3), ("User:alice", 4)]
    gone = root.ask("delete_acls", version, filters=[{**EVERYTHING, "operation": 4}])
    assert [each.operation for each in gone.filter_results[0].matching_acls] == [4]
    assert [each.operation for each in root.ask("describe_acls", version, **EVERYTHING).resources[0].acls] == [3]


def test_an_acl_is_reported_by_the_first_filter_that_deletes_it(root: Client) -> None:
    root.ask("create_acls", 3, creations=[READ_ORDERS, {**READ_ORDERS, "operation": 4}])
    filters = [{**EVERYTHING, "operation": 4}, EVERYTHING, {**EVERYTHING, "host_filter": "*"}]
    gone = root.ask("delete_acls", 3, filters=filters)
    assert [[each.operation for each in result.matching_acls] for result in gone.filter_results] == [[4], [3], []]
    assert root.ask("describe_acls", 3, **EVERYTHING).resources == ()


@pytest.mark.parametrize(
    "wrong",
    [
        {"resource_type": 1},
        {"resource_type": 99},
        {"operation": 1},
        {"permission_type": 1},
        {"resource_pattern_type": 2},
        {"resource_name": ""},
        {"principal": "alice"},
        {"host": ""},
        {"resource_type": 4},
    ],
)
def test_an_acl_that_cannot_be_meant_is_refused_and_its_neighbours_are_not(root: Client, wrong: dict[str, Any]) -> None:
    made = root.ask("create_acls", 3, creations=[{**READ_ORDERS, **wrong}, READ_ORDERS])
    assert [each.error_code for each in made.results] == [ErrorCode.invalid_request, ErrorCode.none]
    assert len(root.ask("describe_acls", 3, **EVERYTHING).resources) == 1


def test_who_may_not_alter_the_cluster_changes_nothing(broker: Broker, alice: Client, root: Client) -> None:
    denied = ErrorCode.cluster_authorization_failed
    root.ask("create_acls", 3, creations=[READ_ORDERS])
    assert alice.ask("create_acls", 3, creations=[READ_ORDERS]).results[0].error_code is denied
    assert alice.ask("delete_acls", 3, filters=[EVERYTHING]).filter_results[0].error_code is denied
    assert alice.ask("describe_acls", 3, **EVERYTHING).error_code is denied
    assert alice.ask("describe_user_scram_credentials", 0, users=None).error_code is denied
    change = {"name": "alice", "mechanism": 1}
    altered = alice.ask("alter_user_scram_credentials", 0, deletions=[change], upsertions=[])
    assert altered.results[0].error_code is denied
    assert alice.ask("describe_client_quotas", 1, components=[], strict=False).error_code is denied
    assert alice.ask("alter_client_quotas", 1, entries=[QUOTA], validate_only=False).entries[0].error_code is denied
    assert len(root.ask("describe_acls", 3, **EVERYTHING).resources) == 1
    assert len(broker.security.users) == 1
    assert broker.security.quotas.rules == {}


BOB = {"name": "bob", "mechanism": 1, "iterations": 4096, "salt": b"salt", "salted_password": b"x" * 32}


def test_credentials_are_set_described_without_their_keys_and_removed(broker: Broker, root: Client) -> None:
    made = root.ask("alter_user_scram_credentials", 0, deletions=[], upsertions=[BOB])
    assert [(each.user, each.error_code) for each in made.results] == [("bob", ErrorCode.none)]
    found = root.ask("describe_user_scram_credentials", 0, users=None)
    shown = {each.user: [(info.mechanism, info.iterations) for info in each.credential_infos] for each in found.results}
    assert shown == {"alice": [(1, 8192), (2, 8192)], "bob": [(1, 4096)]}
    root.ask("alter_user_scram_credentials", 0, deletions=[{"name": "bob", "mechanism": 1}], upsertions=[])
    (gone,) = root.ask("describe_user_scram_credentials", 0, users=[{"name": "bob"}]).results
    assert gone.error_code is ErrorCode.resource_not_found
    assert broker.security.users.get("bob") is None


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"iterations": 4095}, ErrorCode.unacceptable_credential),
        ({"iterations": 16385}, ErrorCode.unacceptable_credential),
        ({"mechanism": 9}, ErrorCode.unsupported_sasl_mechanism),
        ({"salt": b""}, ErrorCode.unacceptable_credential),
        ({"name": ""}, ErrorCode.unacceptable_credential),
    ],
)
def test_credentials_that_are_too_weak_or_unknown_are_refused(
    root: Client, wrong: dict[str, Any], code: ErrorCode
) -> None:
    made = root.ask("alter_user_scram_credentials", 0, deletions=[], upsertions=[{**BOB, **wrong}])
    assert made.results[0].error_code is code


def test_a_credential_that_is_altered_twice_at_once_is_left_alone(broker: Broker, root: Client) -> None:
    made = root.ask("alter_user_scram_credentials", 0, deletions=[], upsertions=[BOB, BOB])
    assert [each.error_code for each in made.results] == [ErrorCode.duplicate_resource]
    assert broker.security.users.get("bob") is None


QUOTA = {
    "entity": [{"entity_type": "user", "entity_name": "alice"}],
    "ops": [{"key": PRODUCE, "value": 1000.0, "remove": False}],
}


@pytest.mark.parametrize("version", [0, 1])
def test_quotas_are_set_found_and_removed(broker: Broker, root: Client, version: int) -> None:
    default = {**QUOTA, "entity": [{"entity_type": "user", "entity_name": None}]}
    made = root.ask("alter_client_quotas", version, entries=[QUOTA, default], validate_only=False)
    assert [each.error_code for each in made.entries] == [ErrorCode.none] * 2
    broker.security.quotas.charge(PRODUCE, "User:alice", "app", 1000)
    assert broker.security.quotas.charge(PRODUCE, "User:alice", "app", 1000) > 0

    def find(match_type: int, match: str | None = None, strict: bool = True) -> list[str | None]:
        component = {"entity_type": "user", "match_type": match_type, "match": match}
        found = root.ask("describe_client_quotas", version, components=[component], strict=strict)
        return [each.entity[0].entity_name for each in found.entries]

    assert find(0, "alice") == ["alice"]
    assert find(0, "bob") == []
    assert find(1) == [None]
    assert find(2) == ["alice", None]
    removed = {**QUOTA, "ops": [{"key": PRODUCE, "value": 0.0, "remove": True}]}
    root.ask("alter_client_quotas", version, entries=[removed], validate_only=False)
    assert find(2, strict=False) == [None]


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"entity": [{"entity_type": "ip", "entity_name": "10.0.0.1"}]}, ErrorCode.invalid_request),
        ({"entity": []}, ErrorCode.invalid_request),
        ({"ops": [{"key": "request_percentage", "value": 1.0, "remove": False}]}, ErrorCode.invalid_request),
        ({"ops": [{"key": FETCH, "value": 0.0, "remove": False}]}, ErrorCode.invalid_request),
        ({"ops": [{"key": FETCH, "value": float("nan"), "remove": False}]}, ErrorCode.invalid_request),
    ],
)
def test_a_quota_that_would_do_nothing_is_refused(
    broker: Broker, root: Client, wrong: dict[str, Any], code: ErrorCode
) -> None:
    made = root.ask("alter_client_quotas", 1, entries=[{**QUOTA, **wrong}], validate_only=False)
    assert made.entries[0].error_code is code
    assert broker.security.quotas.rules == {}


def test_a_quota_can_be_tried_without_being_set(broker: Broker, root: Client) -> None:
    made = root.ask("alter_client_quotas", 1, entries=[QUOTA], validate_only=True)
    assert made.entries[0].error_code is ErrorCode.none
    assert broker.security.quotas.rules == {}
