"""Promise: every buffer and table of the log has a gauge, which rises with a real client and falls behind it."""

from __future__ import annotations

import os
import struct
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from prometheus_client.parser import text_string_to_metric_families

from benchmarks.peers.broker import free_port
from penstock.kafka.records import Record, build_batch
from penstock.log.broker import Broker
from penstock.log.monitoring.gauges import buffer_bytes, memory_bytes, object_counts
from penstock.log.monitoring.process_memory import heap_usage
from penstock.log.protocol.apis import BY_NAME
from penstock.log.security.quotas import PRODUCE, Entity, Quotas
from penstock.log.storage.compaction import compact, plan_compaction
from penstock.log.storage.memory_usage import COMPACTION_KEYS
from tests.log.network.test_slow_readers import Client
from tests.log.requests import head
from tests.log.server import LogProcess
from tests.waiting import wait_for

MIB = 1 << 20
SECONDS = 30
FETCH, METADATA = BY_NAME["fetch"], BY_NAME["metadata"]


class Watched:
    """A log and its gauges."""

    def __init__(self, process: LogProcess, metrics: int) -> None:
        self.process = process
        self.admin = AdminClient({"bootstrap.servers": process.bootstrap})
        self._url = f"http://127.0.0.1:{metrics}/metrics"

    def gauges(self) -> dict[str, float]:
        text = urllib.request.urlopen(self._url).read().decode()
        families = [each for each in text_string_to_metric_families(text) if each.name in NAMES]
        return {
            f"{NAMES[family.name]}{next(iter(sample.labels.values()))}": sample.value
            for family in families
            for sample in family.samples
        }

    def until(self, condition: Callable[[dict[str, float]], object]) -> None:
        wait_for(lambda: condition(self.gauges()), f"the gauges are {self.gauges()}", seconds=SECONDS, poll=0.01)

    def create(self, name: str, **config: str) -> None:
        settings = {key.replace("_", "."): value for key, value in config.items()}
        self.admin.create_topics([NewTopic(name, 1, 1, config=settings)])[name].result(SECONDS)

    def delete(self, name: str) -> None:
        self.admin.delete_topics([name])[name].result(SECONDS)

    def producer(self, **config: Any) -> Producer:
        more = {key.replace("_", "."): value for key, value in config.items()}
        return Producer({"bootstrap.servers": self.process.bootstrap, "message.max.bytes": 100 * MIB, **more})

    def send(self, topic: str, value: bytes, count: int = 1, **config: Any) -> None:
        producer = self.producer(**config)
        for _ in range(count):
            producer.produce(topic, value, "k")
            assert producer.flush(SECONDS) == 0


NAMES = {"penstock_log_buffer_bytes": "bytes:", "penstock_log_held": "", "penstock_log_memory_bytes": "memory:"}


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    folder, port = tmp_path_factory.mktemp("buffers"), free_port()
    (folder / "data").mkdir()
    Quotas(folder / "data", time.monotonic).change(Entity(client_id="slow"), {PRODUCE: 10_000})
    options = ("--metrics", f"127.0.0.1:{port}", "--acls", "--super-user", "User:ANONYMOUS")
    with LogProcess(folder, *options) as process:
        yield Watched(process, port)
        assert process.faults == []


def fetch_request(topic: str, *, wait_ms: int = 0, min_bytes: int = 1) -> bytes:
    start = struct.pack(">iiiibi", -1, wait_ms, min_bytes, 50 * MIB, 0, 1)
    wanted = struct.pack(">h", len(topic)) + topic.encode() + struct.pack(">iiqi", 1, 0, 0, 50 * MIB)
    return head(FETCH, 4) + start + wanted


def test_requests_that_arrive_are_counted_until_their_clients_go(log: Watched) -> None:
    clients = [Client(log.process.port, None) for _ in range(10)]
    for client in clients:
        client.socket.sendall(struct.pack(">i", 50 * MIB) + bytes(300_000))
    log.until(lambda now: now["bytes:receive"] >= 3_000_000 and now["connections"] >= 10)
    for client in clients:
        client.close()
    log.until(lambda now: now["bytes:receive"] == 0 and now["connections"] < 10)


def test_requests_that_wait_are_counted_until_they_are_answered(log: Watched) -> None:
    log.create("waiting")
    with closing(Client(log.process.port, None)) as client:
        client.send(fetch_request("waiting", wait_ms=60_000))
        client.send(head(METADATA, 1) + struct.pack(">i", 0))
        log.until(
            lambda now: now["fetches_waiting"] and now["bytes:requests_waiting"] and now["requests_unanswered"] == 1
        )
        log.send("waiting", b"v")
        client.answer()
        client.answer()
    log.until(lambda now: now["fetches_waiting"] == now["bytes:requests_waiting"] == now["requests_unanswered"] == 0)


def test_answers_that_nobody_reads_are_counted_apart_from_files(log: Watched) -> None:
    log.create("unread", max_message_bytes=str(20 * MIB))
    log.send("unread", os.urandom(15 * MIB))
    with closing(Client(log.process.port, None)) as client:
        client.send(fetch_request("unread"))
        client.send(head(METADATA, 1) + struct.pack(">i", 0))
        log.until(lambda now: now["bytes:unsent_files"] > MIB and now["bytes:unsent"] > 0)
        client.answer()
        client.answer()
        log.until(lambda now: now["bytes:unsent_files"] == now["bytes:unsent"] == 0)


def test_records_that_are_recompressed_are_counted_meanwhile(log: Watched) -> None:
    log.create("packed", compression_type="gzip", compression_gzip_level="9", max_message_bytes=str(30 * MIB))
    producer = log.producer(compression_type="lz4")
    producer.produce("packed", os.urandom(MIB) * 12)
    log.until(lambda now: producer.poll(0) or (now["bytes:recompress"] > 0 and now["bytes:decompressed"] >= 12 * MIB))
    assert producer.flush(SECONDS) == 0
    log.until(lambda now: now["bytes:recompress"] == now["bytes:decompressed"] == 0)
    assert 0 < log.gauges()["bytes:receive_spare"] < 10 * MIB


def test_what_a_topic_has_open_is_counted_until_it_is_deleted(log: Watched) -> None:
    before = log.gauges()
    log.create("open")
    log.send("open", bytes(5000), count=3, enable_idempotence=True)
    log.until(
        lambda now: all(now[kind] > before[kind] for kind in ("partitions_open", "segments", "files_open", "indexes"))
    )
    assert log.gauges()["bytes:indexes"] > before["bytes:indexes"]
    assert log.gauges()["producers"] == before["producers"] + 1
    log.delete("open")
    kinds = ("partitions_open", "segments", "indexes", "bytes:indexes", "producers")
    log.until(lambda now: all(now[kind] == before[kind] for kind in kinds))
    assert log.gauges()["files_open"] <= before["files_open"] + 1, "the trash is deleted by a thread"


def test_groups_and_transactions_are_counted_from_their_start_to_their_end(log: Watched) -> None:
    before = log.gauges()
    log.create("accounts")
    log.send("accounts", b"v")
    consumer = Consumer({"bootstrap.servers": log.process.bootstrap, "group.id": "auditors"})
    producer = log.producer(transactional_id="transfers")
    with closing(consumer):
        consumer.subscribe(["accounts"])
        log.until(lambda now: consumer.poll(0.05) or now["group_members"] == before["group_members"] + 1)
        assert log.gauges()["groups"] == before["groups"] + 1
        wait_for(lambda: consumer.poll(0.05) or consumer.assignment())
        producer.init_transactions(SECONDS)
        producer.begin_transaction()
        producer.produce("accounts", b"v")
        assert producer.flush(SECONDS) == 0
        offsets = [TopicPartition("accounts", 0, 1)]
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), SECONDS)
        now = log.gauges()
        assert (now["transactions_open"], now["transactional_ids"], now["offsets_pending"]) == (1, 1, 1)
        assert now["transactions_in_partitions"] >= 1
        producer.commit_transaction(SECONDS)
        now = log.gauges()
        assert (now["transactions_open"], now["transactions_in_partitions"], now["offsets_pending"]) == (0, 0, 0)
        assert now["offsets_committed"] == before["offsets_committed"] + 1
        producer.begin_transaction()
        producer.produce("accounts", b"v")
        assert producer.flush(SECONDS) == 0
        producer.abort_transaction(SECONDS)
        assert log.gauges()["aborted_transactions"] == 1
    log.until(lambda now: now["group_members"] == before["group_members"])
    log.delete("accounts")
    log.until(lambda now: now["aborted_transactions"] == 0 and now["offsets_committed"] == before["offsets_committed"])


def test_members_that_wait_for_a_rebalance_are_counted(log: Watched) -> None:
    log.create("joined")
    consumer = Consumer({"bootstrap.servers": log.process.bootstrap, "group.id": "joiners"})
    with closing(consumer):
        consumer.subscribe(["joined"])
        log.until(lambda now: consumer.poll(0) or now["group_requests_waiting"] > 0)
        log.until(lambda now: consumer.poll(0) or now["group_requests_waiting"] == 0)


def test_clients_of_quotas_and_acls_are_counted(log: Watched) -> None:
    log.create("slowly")
    producer = log.producer(client_id="slow")
    for _ in range(3):
        producer.produce("slowly", bytes(10_000))
        producer.poll(0.01)
    log.until(lambda now: producer.poll(0) or now["connections_throttled"] > 0)
    assert log.gauges()["quota_clients"] > 0
    assert log.gauges()["acl_answers"] > 0
    assert producer.flush(SECONDS) == 0
    log.until(lambda now: now["connections_throttled"] == 0)


def test_the_memory_of_the_process_is_what_the_system_says(log: Watched) -> None:
    now = log.gauges()
    seen = psutil.Process(log.process.pid).memory_info().rss
    assert now["memory:resident"] == pytest.approx(seen, rel=0.1)
    if heap_usage() is not None:
        assert 0 < now["memory:heap_used"] < now["memory:resident"]


def test_buffers_of_clients_that_hang_up_are_returned_to_the_system(log: Watched) -> None:
    """They once stayed until Python looked for cycles, and then in the heap_usage of the C library: 240 MB."""
    before = log.gauges()["memory:resident"]
    clients = [Client(log.process.port, None) for _ in range(400)]
    for client in clients:
        client.socket.sendall(struct.pack(">i", MIB) + bytes(100_000))
    log.until(lambda now: now["memory:resident"] > before + 40 * MIB)
    for client in clients:
        client.close()
    log.until(lambda now: now["memory:resident"] < before + 12 * MIB)


@pytest.mark.slow
def test_what_recompression_took_is_returned_to_the_system(log: Watched) -> None:
    """The C library did not return the heaps of ended threads: 100 MB."""
    log.create("repacked", compression_type="zstd", max_message_bytes=str(30 * MIB))
    log.until(lambda now: now["bytes:recompress"] == 0)
    before = log.gauges()["memory:resident"]
    log.send("repacked", os.urandom(MIB) * 12, count=2, compression_type="lz4")
    log.until(lambda now: now["memory:resident"] < before + 12 * MIB)


def test_the_keys_of_a_compaction_are_counted_meanwhile(tmp_path: Path) -> None:
    broker = Broker(tmp_path, sync="none")
    topic = broker.store.create_topic("compacted", 1, {"cleanup.policy": "compact", "segment.bytes": "1024"})
    partition = broker.store.partition("compacted", 0)
    for number in range(10):
        broker.append(partition, build_batch([Record(b"k%d" % number, bytes(600))]))
    broker.when_durable(partition, lambda _: None)
    plan = plan_compaction(partition, topic, broker.clock(), force=True)
    assert plan is not None
    seen: list[int] = []
    compact(plan, lambda: seen.append(COMPACTION_KEYS.value))
    assert max(seen) > 5
    assert COMPACTION_KEYS.value == 0
    broker.store.close()


def test_every_gauge_is_documented(tmp_path: Path) -> None:
    text = (Path(__file__).parents[3] / "docs" / "reference" / "log.md").read_text()
    broker = Broker(tmp_path, sync="none")
    named = [*buffer_bytes(broker), *object_counts(broker), *memory_bytes()]
    broker.store.close()
    assert [name for name in named if f"`{name}`" not in text] == []
