"""Topics keep the same promises on Penstock's own log and on Apache Kafka."""

from __future__ import annotations

import json
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.connectors.catalog import source_from_spec
from penstock.connectors.topics.offsets import Range, TopicMetadata, clipped, cut, ranges, share_rows
from penstock.connectors.topics.sink import TopicSink
from penstock.connectors.topics.source import TopicSource
from penstock.contracts import ROW_KEY, Epoch, Rejected
from penstock.errors import BadValue, SettingsError, SourceFailed, UnknownTopic
from penstock.schema import Schema
from penstock.settings import Settings
from penstock.testing import check_source
from tests.connectors.kafka_topics import Topic, fresh, until
from tests.log.server import LogProcess

NUMBERS = Schema("n bigint")


@pytest.fixture
def topic(broker) -> Topic:
    return fresh(broker)


def documents(*numbers):
    return [b'{"n":%d}' % n for n in numbers]


def source(topic, folder=None, **options):
    made = TopicSource(topic.name, options.pop("schema", NUMBERS), connection=topic.bootstrap, **options)
    made.configure("job", Settings())
    if folder is not None:
        made.open(str(folder))
    return made


def rows(made, start, end=None, parallelism=2):
    end = made.latest(start, None) if end is None else end
    found = [item for split in made.splits(start, end, parallelism) for item in made.read_split(split)]
    good = [row for item in found if isinstance(item, pa.RecordBatch) for row in item.to_pylist()]
    return good, [item for item in found if isinstance(item, Rejected)]


def numbers(made, start, end=None):
    return sorted(row["n"] for row in rows(made, start, end)[0])


# --- reading ------------------------------------------------------------------------------------


def test_a_topic_keeps_the_contract_of_sources(topic):
    topic.create().produce(documents(1, 2, 3))
    topic.produce([*documents(4), b"{"], partition=1)
    check_source(lambda: source(topic))


def test_a_big_partition_is_read_by_every_task(topic):
    topic.create(1).produce(documents(*range(20_000)))
    made = source(topic)
    splits = made.splits(made.initial(), made.latest(made.initial(), None), 2)
    assert len(splits) == 2
    assert numbers(made, made.initial()) == list(range(20_000))


def test_an_epoch_takes_its_share_of_each_partition(topic):
    topic.create().produce(documents(*range(90)))
    topic.produce(documents(*range(10)), partition=1)
    made = source(topic)
    end = made.latest(made.initial(), 10)
    assert (end["0"], end["1"]) == (9, 1)
    assert made.lag(end) == 90
    assert not made.ended(end)
    assert made.ended(made.latest(end, None))


def test_what_a_record_has_beside_its_payload_can_be_asked_for(topic):
    topic.create().produce(
        documents(7), partition=1, key=b"k", headers=[("h", b"1"), ("h", None)], timestamp=1_767_225_600_000
    )
    made = source(topic, include=("key", "headers", "partition", "offset", "timestamp"))
    assert rows(made, made.initial())[0] == [
        {
            "n": 7,
            "_key": b"k",
            "_headers": [{"key": "h", "value": b"1"}, {"key": "h", "value": None}],
            "_partition": 1,
            "_offset": 0,
            "_timestamp": datetime(2026, 1, 1, tzinfo=UTC),
        }
    ]


def test_a_payload_that_does_not_parse_is_rejected_with_its_place(topic):
    topic.create().produce([*documents(1), b"{", None, *documents(2)])
    made = source(topic)
    good, bad = rows(made, made.initial())
    assert [row["n"] for row in good] == [1, 2]
    assert [item.position for item in bad] == [f"{topic.name}/0@1", f"{topic.name}/0@2"]


def test_a_topic_is_read_from_its_end_or_from_a_time(topic, tmp_path):
    topic.create(1).produce(documents(1), timestamp=1_767_225_600_000)
    topic.produce(documents(2), timestamp=1_767_225_700_000)
    late = source(topic, tmp_path, start="latest")
    begin = late.initial()
    since = source(topic, start="2026-01-01T00:01:00Z")
    assert numbers(since, since.initial()) == [2]
    topic.produce(documents(3))
    assert numbers(late, begin) == [3]
    again = source(topic, tmp_path, start="latest")
    assert again.initial() == begin, "a restarted job begins where it first began"


def test_only_committed_records_are_read_whatever_gaps_they_leave(topic):
    topic.create(1).produce(documents(1))
    topic.produce(documents(2), transaction="aborted")
    topic.produce(documents(3, 4), transaction="committed")
    made = source(topic)
    assert numbers(made, made.initial()) == [1, 3, 4]
    pieces, at, end = [], made.initial(), made.latest(made.initial(), None)
    while at != end:
        upto = made.latest(at, 1)
        pieces += numbers(made, at, upto)
        at = upto
    assert pieces == [1, 3, 4]


def test_progress_is_committed_to_the_group_of_the_job(topic):
    topic.create().produce(documents(1, 2))
    made = source(topic)
    made.commit(made.latest(made.initial(), None))
    assert topic.committed("penstock-job") == {0: 2, 1: 0}


# --- loss ---------------------------------------------------------------------------------------


def test_a_partition_that_is_added_is_read_from_its_beginning(topic):
    topic.create(1).produce(documents(1))
    made = source(topic, start="latest")
    start = made.initial()
    topic.grow(2)
    topic.produce(documents(2), partition=1)
    assert numbers(source(topic), start) == [2]


def test_offsets_that_were_removed_stop_the_job_or_are_counted(topic):
    topic.create(1).produce(documents(*range(10)))
    made = source(topic)
    start, end = made.initial(), made.latest(made.initial(), None)
    topic.forget(0, 4)
    with pytest.raises(SourceFailed, match="/0: offsets 0 to 3 are no longer there") as caught:
        made.latest(start, None)
    assert 'on_loss="continue"' in str(caught.value)
    with pytest.raises(SourceFailed, match="offsets 0 to 3"):
        made.splits(start, end, 2)
    good, bad = rows(source(topic, on_loss="continue"), start, end)
    assert [row["n"] for row in good] == list(range(4, 10))
    assert [(item.reason, item.position) for item in bad] == [
        ("offsets 0 to 3 are no longer there: retention removed them", f"{topic.name}/0@4")
    ]


def test_offsets_that_are_removed_after_planning_are_noticed_by_the_task(topic):
    topic.create(1).produce(documents(*range(10)))
    made = source(topic, on_loss="continue")
    topic.forget(0, 4)
    good = [row["n"] for item in made.read("0", 0, 10) if not isinstance(item, Rejected) for row in item.to_pylist()]
    assert good == list(range(4, 10))
    with pytest.raises(SourceFailed, match="offsets 0 to 3"):
        list(source(topic).read("0", 0, 10))


def test_a_topic_that_is_made_anew_stops_the_job_or_is_read_from_its_beginning(topic):
    topic.create(1).produce(documents(1, 2))
    made = source(topic)
    start = made.latest(made.initial(), None)
    topic.delete().create(1).produce(documents(3, 4, 5))
    with pytest.raises(SourceFailed, match="deleted and recreated"):
        made.latest(start, None)
    going_on = source(topic, on_loss="continue")
    good, bad = rows(going_on, start)
    assert [row["n"] for row in good] == [3, 4, 5]
    assert len(bad) == 1


def test_a_topic_that_is_deleted_stops_the_job_or_is_waited_for(topic, caplog):
    topic.create(1).produce(documents(1))
    made = source(topic)
    start = made.latest(made.initial(), None)
    topic.delete()
    made.commit(start)
    assert not caplog.records, "that it is gone is said once"
    with pytest.raises(
        SourceFailed, match="deleted while the job ran: its rows from offset 1 of partition 0"
    ) as caught:
        made.latest(start, None)
    assert 'new --checkpoint folder, or read_topic(..., on_loss="continue")' in str(caught.value)
    assert source(topic, on_loss="continue").latest(start, None) == start


# --- writing ------------------------------------------------------------------------------------


def written(topic, batch, **options):
    sink = TopicSink(topic.name, connection=topic.bootstrap, **options)
    sink.configure("job", Settings())
    sink.check()
    sink.open(Schema("n bigint, b binary"), ())
    epoch = Epoch("l", topic.name, 0)
    sink.commit(epoch, [sink.prepare(epoch, 0, [batch])])
    return topic.consume()


def test_a_missing_topic_is_made_and_every_row_is_a_record(topic):
    batch = pa.table({"n": [1, 2], "b": [b"\xff", None]}).to_batches()[0]
    found = written(topic, batch)
    assert sorted(message.value() for message in found) == [b'{"n": 1, "b": "/w=="}', b'{"n": 2, "b": null}']
    assert {message.key() for message in found} == {None}


def test_the_key_is_no_part_of_the_payload(topic):
    batch = pa.table({"n": [1, 2, 3], ROW_KEY: pa.array([b"a", b"b", b"a"])}).to_batches()[0]
    topic.create(4)
    found = written(topic, batch, key="symbol")
    assert sorted((message.key(), json.loads(message.value())["n"]) for message in found) == [
        (b"a", 1),
        (b"a", 3),
        (b"b", 2),
    ]
    assert len({message.partition() for message in found if message.key() == b"a"}) == 1


# --- without a broker ---------------------------------------------------------------------------


def test_an_unknown_topic_lists_those_that_exist(topic):
    topic.create()
    wrong = TopicSource(topic.name[:-1], NUMBERS, connection=topic.bootstrap)
    with pytest.raises(UnknownTopic, match=f"did you mean '{topic.name}'"):
        wrong.check()


def test_nobody_at_the_address_is_a_settings_error_with_a_hint():
    lonely = TopicSource("t", NUMBERS, connection="127.0.0.1:1")
    with pytest.raises(SettingsError, match="penstock log serve"):
        lonely.check()


def test_a_connection_is_the_log_a_name_or_an_address():
    settings = Settings(log="a:1", connections={"prod": "kafka://ada:pw@b:2,c?mechanism=SCRAM-SHA-512&tls=true"})
    made = TopicSource("t", NUMBERS)
    made.configure("job", settings)
    assert made.cluster.connection.config()["bootstrap.servers"] == "a:1"
    made = TopicSource("t", NUMBERS, connection="prod")
    made.configure("job", settings)
    config = made.cluster.connection.config()
    assert config["bootstrap.servers"] == "b:2,c:9092"
    assert (config["security.protocol"], config["sasl.mechanism"]) == ("SASL_SSL", "SCRAM-SHA-512")
    with pytest.raises(SettingsError, match="did you mean 'prod'"):
        TopicSource("t", NUMBERS, connection="prd").configure("job", settings)


def test_a_password_shows_nowhere():
    url = "kafka://ada:pa/ss@w0rd@127.0.0.1:1?tls=true"
    made = TopicSource("t", NUMBERS, connection=url)
    made.configure("job", Settings(connections={"x": url}))
    shown = [json.dumps(made.spec()), repr(made.cluster.connection), repr(Settings(log=url, connections={"x": url}))]
    with pytest.raises(SettingsError) as caught:
        made.check()
    with pytest.raises(BadValue) as wrong:
        TopicSource("t", NUMBERS, connection=f"{url}&tsl=1").configure("job", Settings())
    assert not any("w0rd" in text for text in [*shown, str(caught.value), str(wrong.value)])
    assert made.cluster.connection.config()["sasl.password"] == "pa/ss@w0rd"
    with pytest.raises(SettingsError, match="not kept in plans"):
        source_from_spec(made.spec())


def test_a_source_and_a_sink_are_rebuilt_from_json():
    made = TopicSource("t", NUMBERS, "csv", start="2026-01-01T00:00Z", include=("key",), on_loss="continue")
    assert TopicSource.from_spec(json.loads(json.dumps(made.spec()))) == made
    sink = TopicSink("t", "a || b", "csv", "prod", "at_least_once")
    assert TopicSink.from_spec(json.loads(json.dumps(sink.spec()))) == sink


def test_what_a_topic_cannot_be_is_refused():
    with pytest.raises(BadValue, match="cannot be a topic's name"):
        TopicSource("a b", NUMBERS)
    with pytest.raises(BadValue, match="did you mean 'continue'"):
        TopicSource("t", NUMBERS, on_loss="contineu")
    with pytest.raises(BadValue, match="has no time zone"):
        TopicSource("t", NUMBERS, start="2026-01-01T00:00")
    with pytest.raises(BadValue, match="did you mean 'exactly_once'"):
        TopicSink("t", guarantee="exactly_one")


def test_a_log_that_lost_its_end_is_noticed():
    (found,) = ranges({"0": 9}, {"0": 5}, TopicMetadata("", {0: 0}, {0: 5}))
    assert found == Range(0, 5, 5, "the partition ends at offset 5, and had more before")


def test_cuts_hold_every_offset_once():
    whole = [Range(0, 3, 12_000), Range(1, 0, 1), Range(2, 5, 5, "lost"), Range(3, 0, 9_000)]
    for pieces in range(1, 6):
        found = [one for piece in clipped(cut(whole, pieces), whole) for one in piece]
        for one in whole:
            mine = sorted(piece for piece in found if piece.partition == one.partition)
            assert [n for piece in mine for n in range(piece.first, piece.last)] == list(range(one.first, one.last))
            assert [piece.lost for piece in mine if piece.lost] == ([one.lost] if one.lost else [])
    assert sum(share_rows(whole, 10).values()) - sum(one.first for one in whole) in range(10, 14)


def test_a_broker_that_dies_while_it_is_asked_gives_no_offset_and_no_end(tmp_path):
    with LogProcess(tmp_path) as broker, ThreadPoolExecutor() as pool:
        topic = fresh(broker.bootstrap).create()
        topic.produce(documents(1, 2, 3))
        made = source(topic)
        assert made.cluster.ends(topic.name, [0, 1]) == {0: 3, 1: 0}
        os.kill(broker.pid, signal.SIGSTOP)
        asked = pool.submit(made.cluster.ends, topic.name, [0, 1])
        until(lambda: _is_asked(broker.port))
        broker.kill()
        broker.start()
        assert asked.result() == {0: 3, 1: 0}


def test_a_topic_that_is_not_there_has_no_end(topic):
    made = source(topic.create(), on_loss="continue")
    start = made.latest(made.initial(), None)
    assert made.ended(start)
    topic.delete()
    assert not source(topic, on_loss="continue").ended(start)


def _is_asked(port: int) -> bool:
    """Say whether a stopped server has bytes to read."""
    sockets = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return any(one[1].endswith(f":{port:04X}") and one[4].split(":")[1] != "00000000" for one in sockets)
