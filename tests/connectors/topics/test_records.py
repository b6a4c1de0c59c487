"""Record batches become Arrow arrays exactly as they were written, and what is damaged is never taken for records."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta

import cramjam
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.connectors.topics.payloads import RECORDS
from penstock.connectors.topics.record_arrays import decoded, inside
from penstock.connectors.topics.record_batches import Damaged, OldFormat, batches, next_offset
from penstock.kafka.batches import HEADER_SIZE, header_at, write_header
from penstock.kafka.compression import compress
from penstock.kafka.records import ABORT, COMMIT, Record, build_batch, build_control_batch
from tests.log.storage.logs import repacked

CODECS = range(5)
TRANSACTIONAL, LOG_TIME = 0x10, 0x08
NOW = 1_700_000_000_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
blobs = st.one_of(st.none(), st.binary(max_size=20), st.integers(60, 20_000).map(lambda size: b"x" * size))
headers = st.lists(st.tuples(st.text(max_size=5), st.one_of(st.none(), st.binary(max_size=5))), max_size=3).map(tuple)
records = st.builds(
    Record, blobs, blobs, headers, st.one_of(st.integers(0, 2**42), st.integers(NOW, NOW + 100)), st.just(-1)
)
gaps = st.one_of(st.just(0), st.integers(0, 200))


def read(data: bytes, first: int = 0, last: int = 1 << 40, aborted: tuple[tuple[int, int], ...] = ()) -> list[dict]:
    found = list(batches(memoryview(data), first, last, aborted))
    return inside(decoded(found, 3, RECORDS.names), first, last).to_pylist() if found else []


def as_read(record: Record) -> dict:
    pairs = [{"key": name, "value": value} for name, value in record.headers]
    time = EPOCH + timedelta(milliseconds=record.timestamp)
    plain = {"offset": record.offset, "value": record.value, "key": record.key}
    return plain | {"partition": 3, "timestamp": time, "headers": pairs or None}


def packed(items: list[Record], codec: int = 0, **fields: int) -> bytearray:
    data = build_batch(items, base_offset=items[0].offset, attributes=codec | fields.pop("attributes", 0), **fields)
    return repacked(data, codec) if codec else data


def changed(data: bytearray, body: bytes, **fields: int) -> bytearray:
    """A batch with other records, whose checksum fits."""
    made = bytearray(HEADER_SIZE) + body
    write_header(made, header_at(data)._replace(**fields))
    return made


@settings(deadline=None, max_examples=60)
@given(
    st.lists(
        st.tuples(st.lists(st.tuples(gaps, records), min_size=1, max_size=6), st.sampled_from(CODECS)),
        min_size=1,
        max_size=4,
    ),
    st.data(),
)
def test_records_are_read_as_they_were_written_whatever_gaps_and_codecs(written, data):
    at, log, whole = 0, b"", []
    for pairs, codec in written:
        items = []
        for gap, record in pairs:
            items.append(Record(record.key, record.value, record.headers, record.timestamp, at + gap))
            at += gap + 1
        log += packed(items, codec)
        whole += items
    assert next_offset(memoryview(log), 0, at) == at
    first = data.draw(st.integers(0, at))
    last = data.draw(st.integers(first, at))
    cut_off = log + packed([Record(b"", b"", offset=at)])[: data.draw(st.integers(0, 60))]
    expected = [as_read(one) for one in whole if first <= one.offset < last]
    assert read(cut_off, first, last) == expected


def test_only_what_is_asked_for_is_decoded_and_of_its_type():
    found = list(batches(memoryview(packed([Record(b"k", b"v", offset=7)])), 0, 9, ()))
    assert decoded(found, 0, ["value"]).schema == pa.schema([RECORDS.field("value")])


def test_a_time_that_the_broker_sets_is_the_time_of_all():
    first = packed([Record(None, b"a", timestamp=NOW, offset=0), Record(None, b"b", timestamp=NOW + 5, offset=1)])
    second = packed([Record(None, b"c", timestamp=NOW + n, offset=2 + n) for n in range(3)], attributes=LOG_TIME)
    times = [row["timestamp"] for row in read(first + second)]
    assert [round((time - EPOCH) / timedelta(milliseconds=1)) - NOW for time in times] == [0, 5, 2, 2, 2]


def test_a_record_without_time_has_none_and_one_beyond_microseconds_is_no_record():
    assert read(packed([Record(None, b"a", timestamp=-1, offset=0)]))[0]["timestamp"] is None
    with pytest.raises(Damaged, match="out of the range of microseconds"):
        read(packed([Record(None, b"a", timestamp=2**60, offset=0)]))


def test_names_of_headers_that_are_no_text_are_replaced_as_kafka_does():
    data = packed([Record(None, b"v", (("abc", b"x"),), NOW, 0)])
    data = changed(data, bytes(data[HEADER_SIZE:]).replace(b"abc", b"a\xffc"))
    assert read(data)[0]["headers"] == [{"key": "a\ufffdc", "value": b"x"}]


def test_records_of_aborted_transactions_and_markers_are_left_out():
    def of(producer: int, offset: int, value: bytes) -> bytearray:
        return packed([Record(None, value, offset=offset)], producer_id=producer, attributes=TRANSACTIONAL)

    def end(producer: int, offset: int, outcome: int) -> bytearray:
        made = build_control_batch(outcome, producer, 0, NOW)
        made[:8] = offset.to_bytes(8)
        return made

    log = b"".join(
        [
            *(packed([Record(None, b"plain", offset=0)]), of(1, 1, b"no"), of(2, 2, b"yes"), of(1, 3, b"no")),
            *(end(1, 4, ABORT), end(2, 5, COMMIT), of(1, 6, b"again"), end(1, 7, COMMIT), of(2, 8, b"not now")),
            *(end(2, 9, ABORT), packed([Record(None, b"last", offset=10)])),
        ]
    )
    aborted = ((2, 8), (1, 1))
    assert [row["value"] for row in read(log, aborted=aborted)] == [b"plain", b"yes", b"again", b"last"]
    assert [row["value"] for row in read(log, 3, aborted=aborted)] == [b"again", b"last"]


def test_a_batch_that_compaction_emptied_is_passed_over():
    emptied = changed(packed([Record(None, b"a", offset=0), Record(None, b"b", offset=1)]), b"", record_count=0)
    assert [row["offset"] for row in read(emptied + packed([Record(None, b"c", offset=2)]))] == [2]


def test_snappy_is_read_in_both_of_its_framings():
    plain = packed([Record(None, b"abc" * 50, offset=n) for n in range(3)], 0, attributes=2)
    framed, raw = repacked(plain, 2), changed(plain, bytes(cramjam.snappy.compress_raw(plain[HEADER_SIZE:])))
    assert bytes(framed) != bytes(raw)
    assert read(framed) == read(raw) == read(packed([Record(None, b"abc" * 50, offset=n) for n in range(3)]))


# --- damage -------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", CODECS)
@settings(deadline=None, max_examples=30)
@given(data=st.data())
def test_a_flipped_bit_is_noticed(codec, data):
    good = packed([Record(b"k%d" % n, b"value %d" % n, (("h", b"1"),), NOW, 5 + n) for n in range(3)], codec)
    behind = packed([Record(None, b"later", offset=8)])
    # The offset, the length and the leader's epoch before it are the broker's to write, and not under the checksum.
    bit = data.draw(st.integers(16 * 8, len(good) * 8 - 1))
    good[bit // 8] ^= 1 << bit % 8
    with pytest.raises((Damaged, OldFormat)) as caught:
        read(bytes(good + behind), 5)
    if isinstance(caught.value, Damaged):
        assert (caught.value.first, caught.value.next) == (5, 8)


@settings(deadline=None, max_examples=100)
@given(st.data())
def test_records_that_are_no_records_are_noticed_whatever_the_checksum_says(data):
    good = packed([Record(b"k", b"value", (("h", b"1"),), NOW, n) for n in range(3)])
    body = bytearray(good[HEADER_SIZE:])
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    with suppress(Damaged):
        assert len(read(changed(good, bytes(body)))) == 3


@pytest.mark.parametrize(
    ("spoiled", "why"),
    [
        (lambda good: changed(good, bytes(good[HEADER_SIZE:]), record_count=4), "a record is cut off"),
        (lambda good: changed(good, bytes(good[HEADER_SIZE:-1])), "do not fit"),
        *(
            (lambda good, c=c: changed(good, b"nonsense" * 9, attributes=c), "cannot be decompressed")
            for c in (1, 2, 3, 4)
        ),
        (lambda good: changed(good, bytes(good[HEADER_SIZE:]), attributes=6), "unknown compression codec 6"),
        (lambda good: good[:40], "not a record batch"),
        (lambda good: good[:8] + b"\xff" * 4 + good[12:], "checksum"),
        (lambda good: good + good, "not a record batch"),
    ],
)
def test_what_is_damaged_says_how(spoiled, why):
    with pytest.raises(Damaged, match=why):
        read(bytes(spoiled(packed([Record(b"k", b"v", offset=n) for n in range(3)]))))


@pytest.mark.parametrize("codec", [2, 4])
def test_a_small_batch_that_would_unpack_to_gigabytes_is_refused(codec):
    bomb = changed(packed([Record(None, b"a", offset=0)]), compress(codec, bytes(300 << 20)), attributes=codec)
    with pytest.raises(Damaged, match=r"cannot be decompressed|more than"):
        read(bytes(bomb))


@pytest.mark.parametrize("magic", [0, 1])
def test_records_of_old_formats_are_named_so(magic):
    old = bytearray(packed([Record(None, b"a", offset=0)])[:40])
    old[16] = magic
    with pytest.raises(OldFormat, match=f"format {magic}"):
        read(bytes(old))
