"""Retention: closed segments go when they are old or too many, never what readers or transactions still need."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest

from penstock.log.storage import partition as partitions
from penstock.log.storage.partition import Partition
from penstock.log.storage.retention import retain
from penstock.log.storage.topics import Topic
from tests.log.storage.logs import NOW, append, consumed, keyed, opened, plain


def topic(**config: str) -> Topic:
    return Topic("t", uuid4(), 1, {name.replace("_", "."): value for name, value in config.items()})


def six_segments(folder: Path) -> Partition:
    partition = opened(folder, 1024)
    for at in range(6):
        append(partition, plain(1, 600, NOW + at * 100))
    assert len(partition.segments) == 6
    return partition


def test_segments_go_when_their_youngest_record_is_old(tmp_path: Path) -> None:
    partition = six_segments(tmp_path / "t-0")
    retain(partition, topic(retention_ms="1000"), NOW + 1201)
    assert partition.log_start == 3
    assert [record.offset for record in consumed(partition)] == [3, 4, 5]
    assert len(list(partition.folder.glob("*.log"))) == 3
    assert opened(partition.folder).log_start == 3


def test_segments_go_when_they_are_too_many(tmp_path: Path) -> None:
    partition = six_segments(tmp_path / "t-0")
    size = partition.size
    retain(partition, topic(retention_bytes=str(size // 2 + 100), retention_ms="-1"), NOW)
    assert partition.log_start == 2
    retain(partition, topic(retention_bytes=str(size // 2), retention_ms="-1"), NOW)
    assert partition.log_start == 3


def test_an_old_segment_that_still_grows_is_closed_and_goes_the_next_time(tmp_path: Path) -> None:
    partition = six_segments(tmp_path / "t-0")
    retain(partition, topic(retention_ms="10"), NOW + 10_000)
    assert (partition.log_start, partition.end, len(partition.segments)) == (5, 6, 2)
    retain(partition, topic(retention_ms="10"), NOW + 10_000)
    assert (partition.log_start, partition.end, partition.size) == (6, 6, 0)
    retain(partition, topic(retention_ms="10"), NOW + 20_000)
    assert len(partition.segments) == 1
    again = opened(partition.folder)
    assert (again.log_start, again.end) == (6, 6)
    assert append(again, plain(1)) == 6


def test_a_compacted_topic_keeps_old_records_and_still_closes_segments(tmp_path: Path) -> None:
    partition = opened(tmp_path / "t-0", segment_ms=1000)
    append(partition, plain(1), NOW)
    retain(partition, topic(cleanup_policy="compact", retention_ms="10"), NOW + 1001)
    assert (partition.log_start, len(partition.segments)) == (0, 2)


def test_nothing_of_an_open_transaction_goes_nor_what_nobody_can_read_yet(tmp_path: Path) -> None:
    partition = six_segments(tmp_path / "t-0")
    partition.high_watermark = 4
    partition.producers.open[1] = 2
    retain(partition, topic(retention_ms="10"), NOW + 10_000)
    assert partition.log_start == 2
    partition.producers.open.clear()
    retain(partition, topic(retention_ms="10"), NOW + 10_000)
    assert partition.log_start == 4


def test_what_producers_wrote_is_known_when_all_their_records_are_gone(tmp_path: Path) -> None:
    partition = opened(tmp_path / "t-0")
    known = {"producer_id": 1, "producer_epoch": 0, "base_sequence": 0}
    append(partition, keyed([("k", "v")], **known))
    for _ in range(2):
        retain(partition, topic(retention_ms="10"), NOW + 10_000)
    again = opened(partition.folder)
    assert again.log_start == 1
    assert again.append(keyed([("k", "v")], **known), NOW).duplicate


def test_on_a_full_disk_where_not_even_the_start_can_be_noted_deleting_helps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = six_segments(tmp_path / "t-0")

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(partitions, "write_atomically", full)
        retain(partition, topic(retention_ms="1000"), NOW + 1201)
    assert partition.log_start == opened(partition.folder).log_start == 3
