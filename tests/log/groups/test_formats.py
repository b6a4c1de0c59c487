"""What is written to `__consumer_offsets` is what Apache Kafka would write there."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.log.groups.classic.events import MemberSnapshot, Snapshot
from penstock.log.groups.formats import (
    Committed,
    GroupKey,
    OffsetKey,
    decode_group,
    decode_key,
    decode_offset,
    encode_group,
    encode_key,
    encode_offset,
)

int32s, int64s = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
members = st.builds(
    MemberSnapshot,
    texts,
    st.none() | texts,
    texts,
    texts,
    st.integers(0, 2**31 - 1),
    int32s,
    st.binary(max_size=9),
    st.binary(max_size=9),
)
groups = st.builds(Snapshot, texts, int32s, st.none() | texts, st.none() | texts, int64s, st.tuples(members, members))


def test_keys_are_kafkas_bytes() -> None:
    key = encode_key(OffsetKey("g", "trades", 3))
    assert key == bytes.fromhex("0001 0001 67 0006 747261646573 00000003")
    assert encode_key(GroupKey("g")) == bytes.fromhex("0002 0001 67")


def test_an_offset_is_kafkas_bytes() -> None:
    assert encode_offset(Committed(5, 2, "m", 9)) == bytes.fromhex(
        "0003 0000000000000005 00000002 0001 6d 0000000000000009"
    )
    assert encode_offset(Committed(5, 2, "m", 9, expires=16)) == bytes.fromhex(
        "0001 0000000000000005 0001 6d 0000000000000009 0000000000000010"
    )


def test_a_group_is_kafkas_bytes() -> None:
    member = MemberSnapshot("m", None, "c", "h", 7, 6, b"s", b"a")
    group = Snapshot("consumer", 4, "range", "m", 8, (member,))
    assert encode_group(group) == bytes.fromhex(
        "0003 0008 636f6e73756d6572 00000004 0005 72616e6765 0001 6d 0000000000000008 00000001"
        "0001 6d ffff 0001 63 0001 68 00000007 00000006 00000001 73 00000001 61"
    )


def test_a_key_of_a_later_kind_is_passed_over() -> None:
    assert decode_key(bytes.fromhex("0003 0001 67")) is None


@given(group=texts, topic=texts, partition=int32s)
def test_keys_are_read_as_they_were_written(group: str, topic: str, partition: int) -> None:
    for key in (OffsetKey(group, topic, partition), GroupKey(group)):
        assert decode_key(encode_key(key)) == key


@given(offset=int64s, metadata=texts, timestamp=int64s, epoch=int32s)
def test_offsets_are_read_as_they_were_written(offset: int, metadata: str, timestamp: int, epoch: int) -> None:
    value = Committed(offset, epoch, metadata, timestamp, position=42)
    assert decode_offset(encode_offset(value), 42) == value


@given(groups)
def test_groups_are_read_as_they_were_written(group: Snapshot) -> None:
    assert decode_group(encode_group(group)) == group
