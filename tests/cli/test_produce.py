"""`penstock produce`, on Penstock's own log and on Apache Kafka."""

from __future__ import annotations

import json
import random
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
        "RowRejected: line 3 has no separator ':'\n"
        "  2 records acknowledged before it; it and the following lines were not sent\n"
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


@pytest.fixture
def small(make: Callable[..., str], topic: str) -> str:
    """A topic whose batches take up to 2,000 bytes."""
    return make(f"{topic}-small", "--config", "max.message.bytes=2000")


def test_a_line_that_is_too_large_stops_it_and_nothing_after_it_is_sent(log: Penstock, small: str) -> None:
    said = log("produce", small, lines=b"fits\n" + b"x" * 5_000 + b"\nafter\n")
    assert (said.code, said.err) == (
        1,
        "RowRejected: line 2 is too large: its record takes 5,070 bytes, max.message.bytes of the topic is 2,000\n"
        "  1 record acknowledged before it; it and the following lines were not sent\n",
    )
    assert [each["value"] for each in records(log, small)] == ["fits"]


def test_the_largest_record_that_fits_is_sent_and_one_byte_more_is_refused(log: Penstock, small: str) -> None:
    options = ["--key-sep", ":", "--header", "name=value"]
    # A batch's head, the record's length, its attributes, time and offset, the key, the value's length, the headers.
    size = 2_000 - 61 - 2 - 3 - len(b"1k") - 2 - len(b"1" + b"4name" + b"5value")
    fits = log("produce", small, *options, lines=b"k:" + b"x" * size)
    assert (fits.code, fits.out) == (0, "1 record acknowledged\n"), fits.err
    said = log("produce", small, *options, lines=b"k:" + b"x" * (size + 1))
    assert "line 1 is too large: its record takes 2,001 bytes" in said.err


def test_many_lines_go_into_a_topic_that_takes_small_batches(log: Penstock, small: str) -> None:
    said = log("produce", small, lines=b"a line that is not so short\n" * 1_000)
    assert said.out == "1,000 records acknowledged\n", said.err


def test_a_large_line_is_sent_if_it_is_small_when_compressed(log: Penstock, small: str) -> None:
    noise = random.Random(4).randbytes(5_000).hex().encode()
    said = log("produce", small, "--compression", "gzip", lines=b"x" * 5_000 + b"\n" + noise + b"\nafter\n")
    assert said.code == 1
    assert said.err.startswith("RowRejected: line 2 is too large: its record takes 10,072 bytes, ")
    assert said.err.endswith("\n  1 record acknowledged before it; it and the following lines were not sent\n")
    assert [each["value"] for each in records(log, small)] == ["x" * 5_000]


@ours_alone
def test_a_partition_that_is_not_there_is_refused(log: Penstock, topic: str) -> None:
    said = log("produce", topic, "--partition", 7, lines=b"x\n")
    assert (said.code, said.err) == (2, f"UnknownTopic: topic '{topic}' has no partition 7\n  partitions: 0, 1\n")
