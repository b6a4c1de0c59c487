"""What is fetched in bulk is what librdkafka reads, on both brokers, also from a log that is damaged or dies."""

from __future__ import annotations

import itertools
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.connectors.topics.cluster import Cluster, fetch_end_offsets, fetch_topic_metadata
from penstock.connectors.topics.connection import Connection
from penstock.connectors.topics.fetch import fetch, fetch_by_message
from penstock.connectors.topics.partition_reader import FetchRange, read
from penstock.connectors.topics.payloads import RECORDS
from penstock.connectors.topics.source import TopicSource
from penstock.contracts import Rejected
from penstock.errors import SourceFailed
from penstock.schema import Schema
from tests.connectors.kafka_topics import SECONDS, fresh
from tests.log.server import LogProcess

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
# One that only librdkafka knows.
OPTION = "?socket.keepalive.enable=true"
blobs = st.one_of(st.none(), st.binary(max_size=9), st.integers(60, 70_000).map(lambda size: bytes(size)))
headers = st.lists(st.tuples(st.text(max_size=3), st.one_of(st.none(), st.binary(max_size=3))), max_size=3)
records = st.fixed_dictionaries(
    {"value": blobs, "key": blobs, "headers": headers, "timestamp": st.integers(0, 1_750_000_000_000)}
)
numbers = itertools.count()


def produce(topic, written, codec, outcome):
    config = {"bootstrap.servers": topic.bootstrap, "compression.type": codec, "linger.ms": 20}
    producer = Producer(config | ({"transactional.id": f"{topic.name}-{next(numbers)}"} if outcome else {}))
    if outcome:
        producer.init_transactions(SECONDS)
        producer.begin_transaction()
    for record in written:
        producer.produce(topic.name, partition=0, **record)
    assert producer.flush(SECONDS) == 0
    if outcome:
        getattr(producer, f"{outcome}_transaction")(SECONDS)


def rows(found) -> list[dict]:
    return [row for batch in found for row in batch.to_pylist()]


@settings(deadline=None, max_examples=6, suppress_health_check=list(HealthCheck))
@given(
    st.lists(
        st.tuples(
            st.lists(records, min_size=1, max_size=30),
            st.sampled_from(CODECS),
            st.sampled_from(["", "", "commit", "abort"]),
        ),
        min_size=1,
        max_size=2,
    ),
    st.floats(0, 1),
    st.floats(0, 1),
)
def test_every_range_is_read_as_librdkafka_reads_it(broker, written, low, high):
    # Times are of the last century too: retention would take them at once.
    topic, connection = fresh(broker).create(1, retention_ms="-1"), Connection.parse(broker)
    for part in written:
        produce(topic, *part)
    topic.settle()
    first, last = sorted(round(edge * topic.end()) for edge in (low, high))
    for place in (FetchRange(topic.name, 0, 0, topic.end()), FetchRange(topic.name, 0, first, last)):
        found = rows(read(connection, place, RECORDS.names))
        assert found == rows(fetch_by_message(connection, "test", place, RECORDS.names)), place


def test_what_librdkafka_alone_can_do_is_left_to_it(broker):
    topic = fresh(broker).create(1)
    topic.produce([b"1", b"2"])
    place = FetchRange(topic.name, 0, 0, 2)
    found = rows(fetch(Connection.parse(broker + OPTION), "test", place, ["offset", "value"]))
    assert found == rows(fetch(Connection.parse(broker), "test", place, ["offset", "value"]))
    assert [row["value"] for row in found] == [b"1", b"2"]


def test_a_look_sees_what_librdkafka_sees(broker):
    topic = fresh(broker)
    ours, other = (Cluster(Connection.parse(broker + option)) for option in ("", OPTION))
    assert fetch_topic_metadata(ours, topic.name) is fetch_topic_metadata(other, topic.name) is None
    topic.create(3).produce([b"1", b"2", b"3"], partition=1)
    topic.produce([b"4"], partition=2, transaction="aborted")
    topic.forget(1, 2)
    seen = fetch_topic_metadata(ours, topic.name)
    assert seen == fetch_topic_metadata(other, topic.name)
    assert (seen.starts, seen.ends) == ({0: 0, 1: 2, 2: 0}, {0: 0, 1: 3, 2: 2})
    assert fetch_end_offsets(ours, topic.name, seen) == fetch_end_offsets(other, topic.name, seen) == seen.ends


# --- a log that is damaged, or dies -------------------------------------------------------------


@pytest.fixture
def log(tmp_path):
    with LogProcess(tmp_path, sync="none") as process:
        yield process


def source(log, name, **options):
    return TopicSource(name, Schema("n bigint"), connection=log.bootstrap, **options)


def numbered(topic, first, count):
    topic.produce(b'{"n":%d}' % n for n in range(first, first + count))


def spoil(log, name, text: bytes) -> None:
    """Change a byte of the one file that holds a text."""
    (path,) = [path for path in Path(log.data).rglob("*.log") if name in str(path) and text in path.read_bytes()]
    at = path.read_bytes().index(text)
    with path.open("r+b") as file:
        file.seek(at)
        file.write(bytes([text[0] ^ 1]))


def test_a_damaged_batch_stops_the_job_or_is_counted_and_the_others_are_read(log):
    topic = fresh(log.bootstrap).create(1)
    for first in (0, 10, 20):
        numbered(topic, first, 10)
    spoil(log, topic.name, b'{"n":15}')
    strict, going_on = source(log, topic.name), source(log, topic.name, on_loss="continue")
    with pytest.raises(SourceFailed, match=f"{topic.name}/0@10: offsets 10 to 19 are in a damaged batch") as caught:
        list(strict.read("0", 0, 30))
    assert "restore its files" in caught.value.hint
    found = list(going_on.read("0", 0, 30))
    good = [row["n"] for item in found if isinstance(item, pa.RecordBatch) for row in item.to_pylist()]
    assert good == [*range(10), *range(20, 30)]
    (bad,) = [item for item in found if isinstance(item, Rejected)]
    assert (bad.position, bad.reason) == (
        f"{topic.name}/0@10",
        "offsets 10 to 19 are in a damaged batch: its checksum does not match",
    )
    halves = [item for cut in ((0, 15), (15, 30)) for item in going_on.read("0", *cut)]
    reasons = [item.reason for item in halves if isinstance(item, Rejected)]
    assert [reason.split(" are")[0] for reason in reasons] == ["offsets 10 to 14", "offsets 15 to 19"]


def test_a_log_that_is_killed_and_started_again_is_read_on(log):
    topic = fresh(log.bootstrap).create(1)
    big = [b"%06d" % n + bytes(100_000) for n in range(120)]
    topic.produce(big[:60])
    topic.produce(big[60:])
    place, found = FetchRange(topic.name, 0, 0, 120), []
    for batch in read(Connection.parse(log.bootstrap), place, ["offset", "value"]):
        if not found:
            log.stop()
            log.start()
        found += batch.to_pylist()
    assert [row["value"] for row in found] == big


def test_a_log_that_stays_away_is_named(log, monkeypatch):
    topic = fresh(log.bootstrap).create(1)
    topic.produce([b"1"])
    monkeypatch.setattr("penstock.connectors.topics.partition_reader.SECONDS", 0.2)
    place = FetchRange(topic.name, 0, 0, 1)
    list(read(Connection.parse(log.bootstrap), place, ["offset"]))
    log.stop()
    with pytest.raises(SourceFailed, match=f"{log.bootstrap} does not answer") as caught:
        list(read(Connection.parse(log.bootstrap), place, ["offset"]))
    assert caught.value.transient
