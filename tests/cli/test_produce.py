"""`penstock produce`, on Penstock's own log and on Apache Kafka."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Penstock = Callable[..., Any]
ours_alone = pytest.mark.parametrize("broker", ["penstock"], indirect=True)


def records(log: Penstock, topic: str, *options: object) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log("consume", topic, *options).out.splitlines()]


def test_each_line_is_a_record(log: Penstock, topic: str) -> None:
    said = log("produce", topic, "--partition", 1, lines=b"one\n\n two \r\nlast")
    assert (said.code, said.out) == (0, "4 records acknowledged\n"), said.err
    assert [each["value"] for each in records(log, topic, "--partition", 1)] == ["one", "", " two \r", "last"]
    assert records(log, topic, "--partition", 0) == []


@ours_alone
def test_nothing_in_is_nothing_sent(log: Penstock, topic: str) -> None:
    assert log("produce", topic).out == "0 records acknowledged\n"


def test_a_separator_divides_key_and_value_and_a_key_stays_in_its_partition(log: Penstock, topic: str) -> None:
    assert log("produce", topic, "--key-sep", r"\t", lines=b"a\t1\nb\t2\na\t3:\t4\n").code == 0
    found = records(log, topic)
    assert sorted((each["key"], each["value"]) for each in found) == [("a", "1"), ("a", "3:\t4"), ("b", "2")]
    assert len({each["partition"] for each in found if each["key"] == "a"}) == 1


def test_a_line_without_the_separator_stops_it_and_says_what_was_sent(log: Penstock, topic: str) -> None:
    said = log("produce", topic, "--key-sep", ":", lines=b"a:1\nb:2\noops\nc:3\n")
    assert said.code == 1
    assert said.err == (
        "RowRejected: line 3 has no separator ':'\n  2 records acknowledged before it; nothing from it on was sent\n"
    )
    assert sorted(each["value"] for each in records(log, topic)) == ["1", "2"]


def test_a_file_with_headers_is_sent(log: Penstock, topic: str, tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b"v\n")
    said = log("produce", topic, "--file", tmp_path / "in", "--header", "a=1", "--header", "b=x=y")
    assert said.code == 0, said.err
    assert records(log, topic)[0]["headers"] == [{"key": "a", "value": "1"}, {"key": "b", "value": "x=y"}]
    assert log("produce", topic, "--file", tmp_path / "nowhere").code == 2


@ours_alone
@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_batches_arrive_whole(log: Penstock, topic: str, codec: str) -> None:
    lines = b"".join(b"line %d\n" % number for number in range(20_000))
    said = log("produce", topic, "--compression", codec, "--partition", 0, lines=lines)
    assert said.out == "20,000 records acknowledged\n", said.err
    assert log("consume", topic, "--format", "raw").out.encode() == lines


def test_records_that_the_broker_refuses_are_counted(log: Penstock, topic: str) -> None:
    name = f"{topic}-small"
    log("topic", "create", name, "--config", "max.message.bytes=2000")
    said = log("produce", name, lines=b"fits\n" + b"x" * 5_000 + b"\n")
    assert said.code == 1
    refused, kept = said.err.splitlines()
    assert refused.startswith(("SinkFailed: 1 record not acknowledged: ", "SinkFailed: 2 records not acknowledged: "))
    acknowledged = int(kept.split()[0])
    assert acknowledged == len(records(log, name))


@ours_alone
def test_a_partition_that_is_not_there_is_refused(log: Penstock, topic: str) -> None:
    said = log("produce", topic, "--partition", 7, lines=b"x\n")
    assert (said.code, said.err) == (2, f"UnknownTopic: topic '{topic}' has no partition 7\n  partitions: 0, 1\n")
