"""Promise: a topic's `compression.type` is what its batches are compressed with, and nothing else of them changes."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.kafka.batches import BatchHeader, header_at, write_header
from penstock.kafka.compression import CODECS, GZIP, LZ4, SNAPPY, ZSTD, Codec, compress, decompress
from penstock.kafka.records import Record, build_batch
from penstock.log.errors import ErrorCode, InvalidRecordsError, LogError
from penstock.log.storage.compaction import compact, plan_compaction, swap_in
from penstock.log.storage.topics import Topic
from tests.log.storage.logs import (
    NOW,
    TRANSACTIONAL,
    append,
    consumed,
    fetched,
    keyed,
    opened,
    quick_folder,
    repacked,
    state,
)

SOURCES = [0, GZIP, SNAPPY, LZ4, ZSTD]
TARGETS = sorted(CODECS)
RECORDS = [Record(b"k%d" % at, b"v" * 50, (("h", b"x"), ("n", None)), NOW + at % 3) for at in range(20)]


def sent(codec: int, records: list[Record] = RECORDS, **fields: int) -> bytearray:
    """A batch as a producer of this codec sends it."""
    attributes = fields.pop("attributes", 0)
    data = build_batch(records, attributes=attributes | codec, **fields)
    return repacked(data, codec) if codec else data


def without_size(batch: BatchHeader) -> BatchHeader:
    return batch._replace(length=0, crc=0, attributes=batch.attributes & ~0x07)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("stamps", [False, True])
def test_a_batch_is_recompressed_and_keeps_all_the_rest(tmp_path: Path, source: int, target: str, stamps: bool) -> None:
    codec, fields = CODECS[target], {"producer_id": 7, "producer_epoch": 2, "base_sequence": 40}
    partition = opened(tmp_path, codec=Codec(codec), log_append_time=stamps)
    plain_one = opened(tmp_path / "plain", log_append_time=stamps)
    append(partition, sent(source, attributes=TRANSACTIONAL, **fields), NOW + 5)
    append(plain_one, sent(source, attributes=TRANSACTIONAL, **fields), NOW + 5)
    (batch,), (as_sent,) = fetched(partition, 0), fetched(plain_one, 0)
    assert batch.compression == codec
    assert without_size(batch) == without_size(as_sent)
    assert consumed(partition) == consumed(plain_one)
    assert state(partition) == state(plain_one)
    assert consumed(opened(tmp_path)) == consumed(plain_one)


@pytest.mark.parametrize("codec", SOURCES[1:])
def test_a_batch_of_the_right_codec_stays_as_it_came(tmp_path: Path, codec: int) -> None:
    partition = opened(tmp_path, codec=Codec(codec, 1 if codec != SNAPPY else None))
    data = sent(codec)
    append(partition, bytearray(data))
    found = partition.read(0, 1 << 20, limit=partition.high_watermark)
    assert found is not None
    assert found.handle.read(found.position, found.size)[17:] == data[17:]


@pytest.mark.parametrize("codec", [GZIP, LZ4, ZSTD])
def test_a_higher_level_compresses_more(codec: int) -> None:
    data = b"".join(b"%d,%d,%d;" % (at, at * at % 977, at % 31) for at in range(20_000))
    low, high = (compress(codec, data, level) for level in (1, {GZIP: 9, LZ4: 12, ZSTD: 19}[codec]))
    assert len(high) < len(low)
    assert decompress(codec, low) == decompress(codec, high) == data


def test_a_producer_that_sends_again_gets_the_offset_of_the_first_time(tmp_path: Path) -> None:
    partition = opened(tmp_path, codec=Codec(ZSTD))
    fields = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    assert append(partition, sent(GZIP, **fields)) == 0
    again = partition.append(sent(GZIP, **fields), NOW)
    assert (again.base_offset, again.duplicate, partition.end) == (0, True, 20)
    with pytest.raises(LogError) as failure:
        partition.append(sent(LZ4, **{**fields, "base_sequence": 77}), NOW)
    assert failure.value.code is ErrorCode.out_of_order_sequence_number


def test_what_is_too_large_once_it_is_decompressed_is_refused_whole(tmp_path: Path) -> None:
    partition = opened(tmp_path, codec=Codec(0), max_message_bytes=1000)
    with pytest.raises(LogError) as failure:
        partition.append(sent(GZIP, [Record(b"k", bytes(5000))]), NOW)
    assert (failure.value.code, partition.end) == (ErrorCode.message_too_large, 0)


def test_what_cannot_be_decompressed_is_refused(tmp_path: Path) -> None:
    data = sent(GZIP)
    data[70:80] = bytes(10)
    write_header(data, header_at(data))
    with pytest.raises(LogError) as failure:
        opened(tmp_path, codec=Codec(ZSTD)).append(data, NOW)
    assert failure.value.code is ErrorCode.corrupt_message


@pytest.mark.parametrize("target", TARGETS)
def test_a_compacted_topic_recompresses_too(tmp_path: Path, target: str) -> None:
    partition = opened(tmp_path, compacted=True, codec=Codec(CODECS[target]))
    for at, codec in enumerate(SOURCES * 4):
        append(partition, keyed([("a", str(at)), (f"b{at % 3}", "x" * 50)], codec=codec))
    last = partition.end
    partition.roll(NOW)
    topic = Topic("t", None, 1, {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"})  # type: ignore[arg-type]
    plan = plan_compaction(partition, topic, NOW)
    assert plan is not None
    assert swap_in(partition, compact(plan))
    partition.advance_high_watermark(partition.end)
    left = {record.key: record.offset for record in consumed(partition)}
    assert sorted(left) == [b"a", b"b0", b"b1", b"b2"]
    assert left[b"a"] == last - 2
    assert {batch.compression for batch in fetched(partition, 0) if batch.record_count} == {CODECS[target]}


@pytest.mark.parametrize("codec", SOURCES)
@pytest.mark.parametrize("target", [None, Codec(LZ4)])
def test_records_without_key_are_named_and_nothing_is_written(tmp_path: Path, codec: int, target: Codec | None) -> None:
    partition = opened(tmp_path, compacted=True, codec=target)
    mixed = [Record(key, b"v", timestamp=NOW) for key in (b"a", None, b"", None)]
    with pytest.raises(InvalidRecordsError) as failure:
        partition.append(sent(codec, mixed), NOW)
    assert failure.value.code is ErrorCode.invalid_record
    assert [index for index, _ in failure.value.records] == [1, 3]
    assert all("without a key" in (why or "") for _, why in failure.value.records)
    assert partition.end == 0


def test_no_more_records_are_read_than_are_named(tmp_path: Path) -> None:
    partition = opened(tmp_path, compacted=True)
    data = sent(0, [Record(None, b"v", timestamp=NOW)] * 1500)
    # What follows the first thousand is not even records.
    spoiled = data[:-4] + b"\xff" * 4
    write_header(spoiled, header_at(data))
    with pytest.raises(InvalidRecordsError, match="1000 or more invalid records") as failure:
        partition.append(spoiled, NOW)
    assert [index for index, _ in failure.value.records] == list(range(1000))
    assert sum(why is not None for _, why in failure.value.records) == 100


def test_records_of_wrong_times_are_named(tmp_path: Path) -> None:
    partition = opened(tmp_path, before_ms=1000, after_ms=500)
    times = [NOW, NOW - 1001, NOW - 1000, NOW + 500, NOW + 501, -1]
    with pytest.raises(InvalidRecordsError) as failure:
        partition.append(sent(GZIP, [Record(b"k", b"v", timestamp=each) for each in times]), NOW)
    assert failure.value.code is ErrorCode.invalid_timestamp
    assert [index for index, _ in failure.value.records] == [1, 4]
    append(partition, sent(0, [Record(b"k", b"v", timestamp=each) for each in (NOW, -1, NOW - 1000)]))
    assert partition.end == 3


def test_a_topic_that_log_append_time_takes_records_of_all_times(tmp_path: Path) -> None:
    partition = opened(tmp_path, before_ms=1, after_ms=1, log_append_time=True)
    append(partition, sent(0, [Record(b"k", b"v", timestamp=NOW + 10**9)]))
    assert [record.timestamp for record in consumed(partition)] == [NOW]


records = st.builds(
    Record,
    st.none() | st.binary(max_size=5),
    st.none() | st.binary(max_size=300),
    st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=2).map(tuple),
    st.integers(NOW - 10**6, NOW),
)


@given(st.lists(records, min_size=1, max_size=20), st.sampled_from(SOURCES), st.sampled_from(TARGETS))
def test_any_records_come_back_from_any_codec(each: list[Record], source: int, target: str) -> None:
    with quick_folder() as folder:
        partition = opened(Path(folder), codec=Codec(CODECS[target]))
        append(partition, sent(source, each))
        found = consumed(partition)
        assert [(one.key, one.value, one.headers, one.timestamp) for one in found] == [
            (one.key, one.value, one.headers, one.timestamp) for one in each
        ]
