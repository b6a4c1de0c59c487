"""Topics behind TLS, logins and ACLs: a connection's URL is all it takes, and a refusal says what to look at."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote
from uuid import uuid4

import pyarrow as pa
import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from penstock.connectors.topics.sink import TopicSink
from penstock.connectors.topics.source import TopicSource
from penstock.contracts import Epoch
from penstock.errors import PenstockError, SinkFailed, SourceFailed
from penstock.log.security.users import Users
from penstock.schema import Schema
from penstock.settings import Settings
from tests.e2e.secured import PASSWORDS, PATIENCE, Log, serving
from tests.log.security.certificates import authority, signed

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="makes certificates with the openssl command")
NUMBERS = Schema("n bigint")
ROWS = pa.record_batch({"n": [1, 2, 3]})


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Log]:
    folder: Path = tmp_path_factory.mktemp("secured")
    ca = authority(folder)
    users = Users(folder / "data")
    users.add("root", PASSWORDS["root"], is_super=True)
    users.add("alice", PASSWORDS["alice"])
    users.add("carol", PASSWORDS["carol"])
    with serving(folder / "data", ca, signed(folder, ca, "server", "/CN=localhost"), "--login") as log:
        log.root.create_topics([NewTopic("trades", 1)])["trades"].result(PATIENCE)
        yield log


def url(log: Log, user: str, password: str = "") -> str:
    secret = quote(password or PASSWORDS[user], safe="")
    return f"kafka://{user}:{secret}@{log.address}?mechanism=SCRAM-SHA-512&ca={log.ca.certificate}"


def source(connection: str) -> TopicSource:
    made = TopicSource("trades", NUMBERS, connection="prod")
    made.configure("job", Settings(connections={"prod": connection}))
    return made


def sink(connection: str, topic: str) -> TopicSink:
    made = TopicSink(topic, connection="prod")
    made.configure("job", Settings(connections={"prod": connection}))
    return made


def write(made: TopicSink) -> int:
    made.check()
    made.open(NUMBERS, ())
    lineage = uuid4().hex
    made.bind_lineage(lineage, made.name)
    return made.prepare(Epoch(lineage, made.name, 0), 0, [ROWS])


def refusal(made: TopicSource) -> PenstockError:
    with pytest.raises(SourceFailed) as caught:
        made.check()
    return caught.value


def allow(log: Log, user: str, topic: str, *operations: AclOperation) -> None:
    for operation in operations:
        who, kind = f"User:{user}", ResourcePatternType.LITERAL
        acl = AclBinding(ResourceType.TOPIC, topic, kind, who, "*", operation, AclPermissionType.ALLOW)
        log.root.create_acls([acl])[acl].result(PATIENCE)


def allow_ledgers(log: Log, user: str) -> None:
    kinds = {ResourceType.GROUP: AclOperation.READ, ResourceType.TRANSACTIONAL_ID: AclOperation.WRITE}
    for kind, operation in kinds.items():
        prefixed = ResourcePatternType.PREFIXED
        acl = AclBinding(kind, "penstock.", prefixed, f"User:{user}", "*", operation, AclPermissionType.ALLOW)
        log.root.create_acls([acl])[acl].result(PATIENCE)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_what_is_written_behind_a_login_is_read_there(log, mechanism):
    connection = url(log, "root").replace("SCRAM-SHA-512", mechanism)
    made = source(connection)
    made.check()
    start = made.latest(made.initial(), None)
    assert write(sink(connection, "trades")) == 3
    end = made.latest(start, None)
    batches = [batch for split in made.splits(start, end, 1) for batch in made.read_split(split)]
    assert pa.Table.from_batches(batches).column("n").to_pylist() == [1, 2, 3]
    assert made.lag(end) == 0


def test_a_wrong_password_is_called_so_and_not_shown(log):
    error = refusal(source(url(log, "root", "wrong-but-secret")))
    assert "refuses user 'root'" in str(error)
    assert "the name or the password is wrong" in str(error)
    assert "check user, password and mechanism" in error.hint
    assert "wrong-but-secret" not in str(error)
    assert "penstock log serve" not in str(error)
    with pytest.raises(SinkFailed, match="the name or the password is wrong"):
        write(sink(url(log, "root", "wrong-but-secret"), "trades"))


def test_a_plain_connection_is_told_of_tls_and_login(log):
    error = refusal(source(log.address))
    assert "closes the connection" in str(error)
    assert "check tls and ca" in error.hint
    assert "user and password" in error.hint


def test_a_certificate_of_an_unknown_authority_is_told_of_ca(log):
    connection = url(log, "root").replace(f"ca={log.ca.certificate}", "tls=true")
    error = refusal(source(connection))
    assert "certificate" in str(error)
    assert "check tls and ca" in error.hint


def test_a_source_that_may_not_read_names_the_permission(log):
    error = refusal(source(url(log, "alice")))
    assert "user 'alice' has no permission to read it" in str(error)
    assert "penstock acl add User:alice --operation read --topic trades" in error.hint


def test_a_sink_that_may_not_write_names_the_permission(log):
    with pytest.raises(SinkFailed, match="vwap: user 'alice' has no permission to write it") as caught:
        write(sink(url(log, "alice"), "vwap"))
    assert "penstock acl add User:alice --operation write --topic vwap" in caught.value.hint


def test_a_sink_that_may_only_look_is_refused_where_it_writes(log):
    allow(log, "alice", "trades", AclOperation.DESCRIBE)
    with pytest.raises(SinkFailed, match="trades: user 'alice' has no permission to write it exactly once") as caught:
        write(sink(url(log, "alice"), "trades"))
    assert "penstock acl add User:alice --operation read --group penstock. --prefixed" in caught.value.hint
    assert "penstock acl add User:alice --operation read --operation write --topic trades" in caught.value.hint


def test_a_sink_that_may_write_but_not_make_its_topic_says_so(log):
    allow(log, "carol", "means", AclOperation.WRITE)
    with pytest.raises(SinkFailed, match="means: user 'carol' has no permission to create it"):
        write(sink(url(log, "carol"), "means"))
    allow(log, "carol", "means", AclOperation.CREATE, AclOperation.READ)
    allow_ledgers(log, "carol")
    assert write(sink(url(log, "carol"), "means")) == 3
