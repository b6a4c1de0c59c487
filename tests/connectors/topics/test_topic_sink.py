"""Promise: readers at read_committed see each row of an epoch once, on Penstock's log and on Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import IsolationLevel

from penstock.connectors.topics.connection import Connection
from penstock.connectors.topics.ledger import Entry, SinkPartition
from penstock.connectors.topics.producers import TransactionalWriter
from penstock.connectors.topics.sink import TopicSink
from penstock.contracts import Epoch
from penstock.errors import LedgerAhead, SinkFailed
from penstock.schema import Schema
from penstock.settings import Settings
from tests.connectors.kafka_topics import Topic, fresh
from tests.log.server import LogProcess


@pytest.fixture
def topic(broker: str) -> Topic:
    return fresh(broker).create(2)


def opened(topic: Topic, lineage: str = "line", cores: int = 2) -> TopicSink:
    sink = TopicSink(topic.name, format="raw", connection=topic.bootstrap)
    sink.configure("job", Settings(parallelism=cores))
    sink.open(Schema("value string"), ())
    sink.bind_lineage(lineage, topic.name)
    return sink


def batches(*values: str) -> Iterator[pa.RecordBatch]:
    for value in values:
        yield pa.RecordBatch.from_pydict({"value": [value]})


def epoch(topic: Topic, number: int, lineage: str = "line") -> Epoch:
    return Epoch(lineage, topic.name, number)


def place(topic: Topic) -> SinkPartition:
    return SinkPartition.of(Connection.parse(topic.bootstrap), topic.name, "line", topic.name, 0)


def written(topic: Topic) -> list[bytes]:
    for partition in topic.partitions:
        topic.settle(partition)
    return sorted(message.value() for message in topic.consume())


def test_an_epoch_that_the_ledger_has_is_not_written_again_and_others_are(topic: Topic) -> None:
    assert opened(topic).prepare(epoch(topic, 3), 0, batches("a", "b")) == 2
    assert opened(topic).prepare(epoch(topic, 3), 0, batches("a", "b")) == 0
    assert opened(topic).prepare(epoch(topic, 2), 0, batches("a", "b")) == 0
    assert opened(topic).prepare(epoch(topic, 3), 1, batches("c")) == 1
    assert opened(topic, "fork").prepare(epoch(topic, 0, "fork"), 0, batches("d")) == 1
    assert written(topic) == [b"a", b"b", b"c", b"d"]


def test_an_epoch_that_comes_again_with_other_input_is_not_taken_for_written(topic: Topic) -> None:
    first = replace(epoch(topic, 3), bounds="aa")
    assert opened(topic).prepare(first, 0, batches("a")) == 1
    assert opened(topic).prepare(replace(first, bounds="aabb"), 0, batches("a")) == 0
    with pytest.raises(LedgerAhead, match="its ledger has epoch 3 with other input than it has now"):
        opened(topic).prepare(replace(first, bounds="ab"), 0, batches("b"))
    assert written(topic) == [b"a"]


def test_nothing_of_an_epoch_is_seen_before_all_of_it_is(topic: Topic) -> None:
    seen = []

    def rows() -> Iterator[pa.RecordBatch]:
        yield from batches(*map(str, range(10)))
        seen.append(sum(topic.end(part, IsolationLevel.READ_COMMITTED) for part in topic.partitions))

    opened(topic).prepare(epoch(topic, 0), 0, rows())
    assert seen == [0]
    assert len(written(topic)) == 10


def test_a_task_given_up_for_dead_writes_nothing_after_its_successor(topic: Topic) -> None:
    entry = Entry(0, 1)
    old = TransactionalWriter(place(topic))
    assert old.begin(entry)

    def rows() -> Iterator[tuple[list[None], list[bytes]]]:
        yield [None], [b"a"]
        new = TransactionalWriter(place(topic))
        assert new.begin(entry)
        new.write(entry, [([None], [b"a"])])
        yield [None], [b"b"]

    with pytest.raises(SinkFailed, match="another task took over") as failed:
        old.write(entry, rows())
    assert failed.value.transient
    assert written(topic) == [b"a"]


def test_a_worker_whose_place_was_taken_goes_on_with_the_next_epoch(topic: Topic) -> None:
    sink = opened(topic)
    sink.prepare(epoch(topic, 0), 0, batches("a"))
    elsewhere = TransactionalWriter(place(topic))
    assert elsewhere.begin(Entry(1, 2))
    elsewhere.write(Entry(1, 2), [([None], [b"b"])])
    assert sink.prepare(epoch(topic, 1), 0, batches("b")) == 0
    assert sink.prepare(epoch(topic, 2), 0, batches("c")) == 1
    assert written(topic) == [b"a", b"b", b"c"]


def test_rows_are_cut_as_the_ledger_has_it(topic: Topic) -> None:
    assert opened(topic, cores=2).partitions == 2
    assert opened(topic, cores=5).partitions == 2
    assert opened(topic, "fork", cores=5).partitions == 5
    sink = opened(topic)
    sink.prepare(epoch(topic, 0), 0, batches("a"))
    sink.partitions = 3
    with pytest.raises(SinkFailed, match="knows 2 partitions of these rows, and they come in 3"):
        sink.prepare(epoch(topic, 1), 0, batches("b"))


def test_a_topic_may_grow_and_may_be_made_anew(topic: Topic) -> None:
    opened(topic).prepare(epoch(topic, 0), 0, batches("a"))
    topic.grow(3)
    opened(topic).prepare(epoch(topic, 1), 0, batches("b"))
    assert written(topic) == [b"a", b"b"]
    topic.delete().create(5)
    opened(topic).prepare(epoch(topic, 2), 0, batches("c"))
    assert written(topic) == [b"c"]


def test_a_log_that_is_killed_in_the_middle_of_an_epoch_has_it_once(tmp_path: Path) -> None:
    with LogProcess(tmp_path) as log:
        topic = fresh(log.bootstrap).create(2)

        def rows() -> Iterator[pa.RecordBatch]:
            yield from batches(*map(str, range(500)))
            log.kill()
            log.start()
            yield from batches(*map(str, range(500, 1000)))

        tries = iter([rows(), batches(*map(str, range(1000)))])
        try:
            opened(topic).prepare(epoch(topic, 0), 0, next(tries))
        except SinkFailed as error:
            if not error.transient:
                raise
            # As Spark does with a task that failed.
            opened(topic).prepare(epoch(topic, 0), 0, next(tries))
        assert sorted(map(int, written(topic))) == [*range(1000)]


def test_a_sink_that_begins_anew_knows_that_its_topic_was_written(topic: Topic) -> None:
    sink = opened(topic)
    assert not sink.used_before(topic.name)
    sink.prepare(epoch(topic, 0), 1, batches("a"))
    assert opened(topic, "another").used_before(topic.name)
    assert not sink.used_before("other")
