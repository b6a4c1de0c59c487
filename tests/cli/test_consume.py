"""`penstock consume`, on Penstock's own log and on Apache Kafka."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer

Penstock = Callable[..., Any]
ours_alone = pytest.mark.parametrize("broker", ["penstock"], indirect=True)


@pytest.fixture
def ten(send: Penstock, topic: str) -> str:
    """A topic with 0 to 9, the even numbers in partition 0."""
    for partition in (0, 1):
        send(topic, *range(partition, 10, 2), partition=partition)
    return topic


def raw(log: Penstock, topic: str, *options: object) -> list[int]:
    said = log("consume", topic, "--format", "raw", *options)
    assert said.code == 0, said.err
    return sorted(map(int, said.out.split()))


def running(broker: str, *arguments: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "penstock.cli", "consume", *arguments, "--broker", broker]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_it_stops_at_the_end_that_was_there(log: Penstock, ten: str) -> None:
    assert raw(log, ten) == list(range(10))
    assert raw(log, ten, "--from", "beginning", "--partition", 1) == [1, 3, 5, 7, 9]
    assert raw(log, ten, "--from", "end") == []
    assert len(raw(log, ten, "--max", 3)) == 3


def test_it_begins_at_an_offset_that_the_partition_has(log: Penstock, ten: str) -> None:
    assert raw(log, ten, "--from", 3, "--partition", 0) == [6, 8]
    assert raw(log, ten, "--from", 5, "--partition", 0) == []
    said = log("consume", ten, "--from", 6)
    hint = "available offsets are 0 to 5; --partition P chooses one partition"
    assert (said.code, said.err) == (2, f"UnknownSetting: partition 0 of '{ten}' has no offset 6\n  {hint}\n")
    alone = log("consume", ten, "--from", 6, "--partition", 0)
    assert alone.err.endswith("\n  available offsets are 0 to 5\n")


def test_it_begins_at_a_time(log: Penstock, broker: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": broker})
    for number, time in enumerate([1_000, 2_000, 3_000]):
        producer.produce(topic, str(number), partition=0, timestamp=1_767_225_600_000 + time)
    producer.flush()
    assert raw(log, topic, "--from", "2026-01-01T00:00:02Z") == [1, 2]
    assert raw(log, topic, "--from", "2026-01-01T01:00:02.000001+01:00") == [2]
    assert raw(log, topic, "--from", "2026-01-02T00:00:00Z") == []


@ours_alone
@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        ("2026-01-01T10:00:00", 'did you mean "2026-01-01T10:00:00Z"?'),
        ("yesterday", "write beginning, end, an offset such as 42"),
    ],
)
def test_a_place_that_cannot_be_meant_is_refused(log: Penstock, topic: str, wrong: str, expected: str) -> None:
    said = log("consume", topic, "--from", wrong)
    assert said.code == 2
    assert expected in said.err


def test_json_tells_all_of_a_record(log: Penstock, broker: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": broker})
    sent = {"headers": [("h", b"\xff"), ("h", None)], "timestamp": 1_767_225_600_007, "partition": 1}
    producer.produce(topic, "grüß\n".encode(), b"k", **sent)
    producer.produce(topic, None, b"\xfe", partition=1)
    producer.produce(topic, b"\x80", partition=1)
    producer.flush()
    first, tombstone, binary = (json.loads(line) for line in log("consume", topic).out.splitlines())
    assert first == {
        "topic": topic,
        "partition": 1,
        "offset": 0,
        "timestamp": "2026-01-01T00:00:00.007Z",
        "key": "k",
        "value": "grüß\n",
        "headers": [{"key": "h", "value_base64": "/w=="}, {"key": "h", "value": None}],
    }
    assert (base64.b64decode(tombstone["key_base64"]), tombstone["value"]) == (b"\xfe", None)
    assert binary["value_base64"] == "gA=="


@ours_alone
def test_raw_is_the_value_byte_for_byte(broker: str, log: Penstock, topic: str) -> None:
    value = bytes(range(256)).replace(b"\n", b"")
    log("produce", topic, lines=value)
    with running(broker, topic, "--format", "raw") as process:
        out, err = process.communicate(timeout=60)
    assert (out, err) == (value + b"\n", b"")


def test_a_group_goes_on_where_it_stopped_printing(log: Penstock, ten: str) -> None:
    first = raw(log, ten, "--group", f"of-{ten}", "--max", 4)
    rest = raw(log, ten, "--group", f"of-{ten}")
    assert sorted(first + rest) == list(range(10))
    assert raw(log, ten, "--group", f"of-{ten}") == []
    assert raw(log, ten, "--group", f"of-{ten}", "--from", "beginning") == list(range(10))


def test_a_group_can_read_one_partition_alone(log: Penstock, ten: str) -> None:
    assert raw(log, ten, "--group", f"one-{ten}", "--partition", 1) == [1, 3, 5, 7, 9]
    assert raw(log, ten, "--group", f"one-{ten}") == [0, 2, 4, 6, 8]


def test_aborted_records_are_hidden_unless_asked_for(log: Penstock, broker: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": broker, "transactional.id": topic})
    producer.init_transactions()
    for value, end in [("1", producer.commit_transaction), ("2", producer.abort_transaction)]:
        producer.begin_transaction()
        producer.produce(topic, value, partition=0)
        producer.flush()
        end()
    assert raw(log, topic) == [1]
    assert raw(log, topic, "--uncommitted") == [1, 2]
    assert raw(log, topic, "--group", f"tx-{topic}") == [1]
    assert json.loads(log("group", "describe", f"tx-{topic}", "--json").out)["partitions"][0]["lag"] == 0


@pytest.mark.parametrize("group", [[], ["--group", "follower"]])
def test_follow_waits_for_more_and_ctrl_c_ends_it_well(
    log: Penstock, send: Penstock, broker: str, topic: str, group: list[str]
) -> None:
    send(topic, "first")
    with running(broker, topic, "--follow", "--format", "raw", *group) as process:
        assert process.stdout
        assert process.stdout.readline() == b"first\n"
        send(topic, "second")
        assert process.stdout.readline() == b"second\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (0, b"", b"")
    if group:
        assert log("consume", topic, *group).out == "", "what was printed is committed"


def test_a_reader_that_has_enough_ends_it_quietly(send: Penstock, broker: str, topic: str) -> None:
    send(topic, "x" * 100_000, "y" * 100_000)
    with running(broker, topic, "--follow") as process:
        assert process.stdout
        os.read(process.stdout.fileno(), 10)
        process.stdout.close()
        assert process.stderr
        assert process.stderr.read() == b""
    assert process.returncode == 0
