"""Promise: what a request is answered with, errors above all, is what Apache Kafka 4.2 answers to the same request."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from kio.index import load_request_schema

from penstock.kafka.records import Record, build_batch
from penstock.log.protocol.apis import BY_NAME
from penstock.log.protocol.messages import _builder
from tests.brokers import running_kafka
from tests.log.requests import decoded_reply, encoded, framed, head
from tests.log.server import LogProcess
from tests.waiting import wait_for

NOW = int(time.time() * 1000)
TOPIC, BROKER, GROUP = 2, 4, 32  # kinds of resources
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
Codes = Callable[[Any], Any]


class Broker:
    """A connection to either of the two."""

    def __init__(self, address: str) -> None:
        host, port = address.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), 30)

    def ask(self, name: str, version: int, **fields: Any) -> Any:
        api = BY_NAME[name]
        body = encoded(_builder(load_request_schema(api.key, version))(fields))
        self._socket.sendall(framed(head(api, version) + body))
        answer = self._read(int.from_bytes(self._read(4)))
        return decoded_reply(api, version, answer[5 if api.is_flexible(version) else 4 :])

    def _read(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = self._socket.recv(count - len(data))
            assert more, "the connection was closed"
            data += more
        return data

    def close(self) -> None:
        self._socket.close()


class Probe(NamedTuple):
    """A request, and what of the answer is compared."""

    api: str
    version: int
    fields: dict[str, Any]
    codes: Codes


def topic(name: str, partitions: int = 1, **config: str) -> Probe:
    settings = [{"name": key.replace("_", "."), "value": value} for key, value in config.items()]
    made = {"name": name, "num_partitions": partitions, "replication_factor": 1, "assignments": [], "configs": settings}
    return Probe("create_topics", 7, {"topics": [made], "timeout": 10_000}, lambda got: got.topics[0].error_code)


def alter(kind: int, name: str, *changes: tuple[str, int, str | None]) -> Probe:
    configs = [{"name": key, "config_operation": operation, "value": value} for key, operation, value in changes]
    resource = {"resource_type": kind, "resource_name": name, "configs": configs}
    return Probe("incremental_alter_configs", 1, {"resources": [resource]}, lambda got: got.responses[0].error_code)


def produce(name: str, records: bytes, acks: int = -1, partition: int = 0) -> Probe:
    data = [{"name": name, "partition_data": [{"index": partition, "records": records}]}]

    def codes(got: Any) -> Any:
        found = got.responses[0].partition_responses[0]
        return found.error_code, [each.batch_index for each in found.record_errors]

    return Probe("produce", 9, {"acks": acks, "timeout": 5000, "topic_data": data}, codes)


def batch(*keys: bytes | None, time: int = NOW) -> bytes:
    return bytes(build_batch([Record(key, b"v", timestamp=time) for key in keys]))


def offsets(time: int) -> Probe:
    wanted = [{"partition_index": 0, "current_leader_epoch": -1, "timestamp": time}]
    fields = {"replica_id": -1, "timeout": 1000, "topics": [{"name": "kept", "partitions": wanted}]}
    return Probe("list_offsets", 11, fields, lambda got: [(p.error_code, p.offset) for p in got.topics[0].partitions])


def beat(member: str = "m1", epoch: int = 0, **more: Any) -> Probe:
    fields = {"group_id": "g", "member_id": member, "member_epoch": epoch, "rebalance_timeout": 60_000}
    fields |= {"subscribed_topic_names": ["plain"], "topic_partitions": [], **more}
    return Probe("consumer_group_heartbeat", 1, fields, lambda got: (got.error_code, got.member_epoch))


def commit(group: str, member: str = "", epoch: int = -1, version: int = 9) -> Probe:
    place = {"partition_index": 0, "committed_offset": 1, "committed_leader_epoch": -1, "committed_metadata": ""}
    fields = {"group_id": group, "member_id": member, "generation_id_or_member_epoch": epoch}
    fields |= {"topics": [{"name": "plain", "partitions": [place]}]}
    return Probe("offset_commit", version, fields, lambda got: got.topics[0].partitions[0].error_code)


def metadata(*names: str) -> Probe:
    wanted = [{"name": name, "topic_id": UUID(int=0)} for name in names]
    fields = {"topics": wanted, "allow_auto_topic_creation": False}
    return Probe("metadata", 12, fields, lambda got: {each.name: each.error_code for each in got.topics})


WRONG = [("compression_type", "bzip"), ("cleanup_policy", "none"), ("retention_ms", "-2"), ("nope", "1")]
WRONG += [("min_cleanable_dirty_ratio", "1.5"), ("preallocate", "maybe"), ("compression_gzip_level", "11")]
WRONG += [("segment_ms", "0"), ("max_compaction_lag_ms", "0"), ("leader_replication_throttled_replicas", "x")]
RIGHT = [("cleanup_policy", ""), ("cleanup_policy", "compact, delete"), ("retention_ms", "-1"), ("retention_ms", " 5 ")]
RIGHT += [("unclean_leader_election_enable", "TRUE"), ("leader_replication_throttled_replicas", "*")]
POLICY, SESSION = "cleanup.policy", "consumer.session.timeout.ms"
PROBES = [
    *(topic(f"topic-{at}", **{key: value}) for at, (key, value) in enumerate(WRONG + RIGHT)),
    *(topic("x", partitions) for partitions in (0, -2)),
    *(topic(name) for name in (".", "a b", "x" * 250, "plain", "some.name", "some_name")),
    *(
        alter(TOPIC, "plain", (POLICY, operation, value))
        for operation, value in ((APPEND, "compact"), (APPEND, "compact"), (SUBTRACT, "delete"), (SUBTRACT, "compact"))
    ),
    alter(TOPIC, "plain", ("retention.ms", APPEND, "5")),
    alter(TOPIC, "plain", ("retention.ms", SET, None)),
    alter(TOPIC, "plain", ("retention.ms", SET, "1"), ("retention.ms", SET, "2")),
    alter(TOPIC, "plain", ("flush.ms", DELETE, None)),
    alter(TOPIC, "missing", ("retention.ms", SET, "1")),
    *(alter(GROUP, "g", (SESSION, SET, value)) for value in ("1", "46000")),
    alter(GROUP, "", (SESSION, SET, "46000")),
    *(alter(BROKER, "1", ("log.retention.ms", SET, value)) for value in ("abc", "999999")),
    alter(BROKER, "1", ("log.dirs", SET, "x")),
    alter(BROKER, "77", ("log.retention.ms", SET, "1")),
    produce("kept", batch(b"a")),
    produce("kept", batch(b"a", None, b"b", None)),
    produce("plain", batch(b"a", time=NOW + 10 * 3_600_000)),
    produce("plain", batch(b"a"), acks=5),
    produce("missing", batch(b"a")),
    produce("plain", batch(b"a"), partition=9),
    *(produce("plain", records) for records in (b"", b"x" * 80, batch(b"a")[:-1] + b"?")),
    *(offsets(time) for time in (-1, -2, -3, -4, -5, -6, 0, NOW + 10**9)),
    beat(group_id=""),
    beat(""),
    beat(epoch=-5),
    beat(group_id="other", epoch=3),
    beat(server_assignor="sticky"),
    beat(),
    beat(),
    beat(epoch=9),
    beat("m9", 1),
    beat("m2", topic_partitions=None),
    beat("m2", subscribed_topic_names=None),
    beat("m2", subscribed_topic_names=None, subscribed_topic_regex="("),
    beat("m2", instance_id=""),
    beat("m2", rebalance_timeout=-1),
    beat("m7", -1),
    commit("g"),
    commit("g", "nobody", 1),
    commit("g", "m1", 77),
    *(commit("new", "a", 3, version) for version in (8, 9)),
    commit("new"),
    beat(epoch=-1),
    metadata("plain", "missing", "bad name"),
]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Broker]]:
    folder: Path = tmp_path_factory.mktemp("beside")
    with running_kafka() as kafka, LogProcess(folder, sync="none") as log:
        with closing(Broker(kafka)) as theirs, closing(Broker(log.bootstrap)) as ours:
            for broker in (theirs, ours):
                prepare(broker)
            yield [theirs, ours]
        assert log.faults == []


def prepare(broker: Broker) -> None:
    """Create topics, and wait until the groups that are used have a coordinator."""
    for probe in (topic("plain"), topic("kept", cleanup_policy="compact")):
        broker.ask(probe.api, probe.version, **probe.fields)
    for group in ("g", "other", "new"):
        wanted = [{"group_id": group, "member_epoch": -1, "topics": None}]

        def coordinated(group: str = group, wanted: Any = wanted) -> bool:
            broker.ask("find_coordinator", 4, key_type=0, coordinator_keys=[group])
            return not broker.ask("offset_fetch", 9, groups=wanted).groups[0].error_code

        wait_for(coordinated)


@pytest.mark.slow
def test_every_request_is_answered_as_by_apache_kafka(both: list[Broker]) -> None:
    """In order, for later ones see what earlier ones did."""
    different = []
    for probe in PROBES:
        theirs, ours = (probe.codes(broker.ask(probe.api, probe.version, **probe.fields)) for broker in both)
        if theirs != ours:
            different.append(f"{probe.api} {probe.fields}: Kafka {theirs}, ours {ours}")
    assert different == []
