"""Appending and reading: what went in comes out, wherever a reader begins and however little it takes at a time."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.kafka.batches import HEADER_SIZE, header_at, write_header
from penstock.kafka.compression import GZIP, LZ4, SNAPPY, ZSTD, compress, decompress
from penstock.kafka.records import ABORT, COMMIT, Record, build_batch, decode_batch
from penstock.log.errors import ErrorCode, LogError
from tests.log.storage.logs import (
    NOW,
    TRANSACTIONAL,
    append,
    consumed,
    fetched,
    first_since,
    keyed,
    marker,
    opened,
    plain,
    played,
    quick_folder,
)

SHAPES = st.lists(st.tuples(st.integers(1, 5), st.integers(0, 3000), st.integers(-50, 50)), min_size=1, max_size=25)


@settings(max_examples=40, deadline=None)
@given(SHAPES, st.integers(1024, 20_000), st.integers(1, 8000))
def test_reading_from_every_offset_gives_exactly_the_batches(
    shapes: list[tuple[int, int, int]], segment_bytes: int, max_bytes: int
) -> None:
    with quick_folder() as folder:
        partition = opened(Path(folder) / "t-0", segment_bytes)
        written: list[Record] = []
        for mark, (count, size, shift) in enumerate(shapes):
            data = plain(count, size, NOW + shift, mark=mark)
            base = append(partition, data)
            written += [record for record in decode_batch(data) if record.offset >= base]
        assert [record.offset for record in written] == list(range(partition.end))
        for offset in range(partition.end):
            batches = fetched(partition, offset, max_bytes)
            assert batches[0].base_offset <= offset <= batches[0].last_offset
            assert len(batches) == 1 or sum(batch.size for batch in batches) <= max_bytes
        assert consumed(partition, 0, max_bytes) == written
        again = opened(Path(folder) / "t-0", segment_bytes)
        assert consumed(again, partition.end // 2, max_bytes) == written[partition.end // 2 :]


@settings(max_examples=40, deadline=None)
@given(SHAPES, st.integers(1024, 20_000), st.integers(-60, 60), st.booleans(), st.sampled_from([0, 1000, 1 << 20]))
def test_an_offset_by_time_is_that_of_a_naive_scan(
    shapes: list[tuple[int, int, int]], segment_bytes: int, shift: int, reopen: bool, step: int
) -> None:
    with quick_folder() as folder:
        partition = opened(Path(folder) / "t-0", segment_bytes)
        for count, size, at in shapes:
            append(partition, plain(count, size, NOW + at))
        partition.truncate_before(partition.end // 3)
        if reopen:
            partition = opened(Path(folder) / "t-0", segment_bytes)
        kept = [(record.timestamp, record.offset) for record in consumed(partition)]
        expected = next((each for each in kept if each[0] >= NOW + shift), None)
        with patch("penstock.log.storage.time_search._MOST_BYTES", step):
            assert first_since(partition, NOW + shift) == expected
        newest = max((time for time, _ in kept), default=None)
        if newest is not None and newest == partition.largest_timestamp:
            assert first_since(partition, newest) == next(each for each in kept if each[0] == newest)


def test_a_search_by_time_goes_on_after_batches_whose_headers_promise_too_much(tmp_path: Path) -> None:
    partition = opened(tmp_path / "t-0", 1024)
    for _ in range(20):
        data = plain(1, 100, NOW)
        write_header(data, header_at(data)._replace(max_timestamp=NOW + 9))
        append(partition, data)
    append(partition, plain(1, 100, NOW + 5))
    assert first_since(partition, NOW + 5) == (NOW + 5, 20)
    assert first_since(partition, NOW + 6) is None


def test_records_get_the_time_of_their_arrival_where_the_topic_says_so(tmp_path: Path) -> None:
    partition = opened(tmp_path / "t-0", log_append_time=True)
    append(partition, plain(3, timestamp=NOW - 10_000), NOW)
    append(partition, plain(1, timestamp=NOW + 99_000), NOW + 5)
    assert [record.timestamp for record in consumed(partition)] == [NOW, NOW, NOW, NOW + 5]
    assert first_since(partition, NOW + 1) == (NOW + 5, 3)
    assert partition.active.largest_timestamp == NOW + 5
    again = opened(tmp_path / "t-0", log_append_time=True)
    assert again.active.largest_timestamp == NOW + 5


def test_a_segment_is_closed_when_it_is_full_or_old(tmp_path: Path) -> None:
    partition = opened(tmp_path / "t-0", 1024, segment_ms=1000)
    for _ in range(3):
        append(partition, plain(1, 600))
    assert [segment.base for segment in partition.segments] == [0, 1, 2]
    append(partition, plain(1, 10), NOW + 500)
    append(partition, plain(1, 10), NOW + 1001)
    assert [segment.base for segment in partition.segments] == [0, 1, 2, 4]


def test_a_slow_reader_keeps_its_bytes_while_the_segment_goes(tmp_path: Path) -> None:
    partition = opened(tmp_path / "t-0", 1024)
    for mark in range(10):
        append(partition, plain(1, 600, mark=mark))
    found = partition.read(0, 1 << 20, limit=partition.high_watermark)
    assert found is not None
    partition.truncate_before(9)
    assert not list(tmp_path.glob("t-0/00000000000000000000.*"))
    assert header_at(found.handle.read(found.position, found.size)).base_offset == 0
    with pytest.raises(LogError) as refused:
        partition.read(8, 1024, limit=partition.high_watermark)
    assert refused.value.code is ErrorCode.offset_out_of_range


def test_a_reader_is_told_only_of_transactions_that_were_aborted_in_what_it_reads(tmp_path: Path) -> None:
    partition = opened(tmp_path, segment_bytes=1024)
    overlapping = [step for one in range(1, 60) for step in (("transact", one), ("transact", one + 1), ("abort", one))]
    played(partition, overlapping)
    assert len(partition.segments) > 5
    for segment in partition.segments[:-1]:
        records = partition.read(segment.base, 1 << 20, limit=partition.high_watermark)
        assert records is not None
        assert records.end == segment.end
        told = partition.aborted_between(segment.base, records.end)
        assert told == [one for one in partition.aborted if one.last >= segment.base and one.first < segment.end]
        assert 0 < len(told) < 59


def test_readers_of_committed_records_stop_at_an_open_transaction_and_learn_what_was_aborted(tmp_path: Path) -> None:
    partition = opened(tmp_path / "t-0", 1024)
    for producer in (1, 2):
        data = keyed([("k", "v")], attributes=TRANSACTIONAL, producer_id=producer, producer_epoch=0, base_sequence=0)
        append(partition, data)
    append(partition, marker(ABORT, 2))
    assert partition.last_stable_offset == 0
    assert fetched(partition, 0, limit=partition.last_stable_offset) == []
    append(partition, marker(COMMIT, 1))
    assert partition.last_stable_offset == partition.end == 4
    assert [entry[:3] for entry in partition.aborted_between(0, 4)] == [(2, 1, 2)]
    assert partition.aborted_between(3, 4) == []


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_what_is_compressed_is_read_again(codec: int) -> None:
    for data in (b"", b"x", b"abc" * 50_000):
        assert decompress(codec, compress(codec, data)) == data
    records = list(decode_batch(keyed([("a", "1"), ("b", None)], codec=codec)))
    assert [(record.key, record.value) for record in records] == [(b"a", b"1"), (b"b", None)]


@pytest.mark.parametrize("codec", [GZIP, LZ4, ZSTD])
def test_a_small_batch_that_would_fill_the_memory_is_refused(codec: int) -> None:
    with pytest.raises(LogError):
        decompress(codec, compress(codec, bytes(257 << 20)))


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200), st.integers(0, 7), st.integers(0, 2**31 - 1))
def test_bytes_that_are_no_records_are_refused_and_nothing_worse(body: bytes, codec: int, count: int) -> None:
    lying = bytearray(HEADER_SIZE) + body
    write_header(lying, header_at(build_batch([Record(b"k", b"v")], attributes=codec))._replace(record_count=count))
    with suppress(LogError):
        list(decode_batch(lying))
