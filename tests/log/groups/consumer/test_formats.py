"""What is written of consumer groups to `__consumer_offsets` is what Apache Kafka would write there."""

from __future__ import annotations

from uuid import UUID

from penstock.log.groups.consumer.formats import (
    ConsumerKey,
    Kind,
    decode_key,
    encode_epoch,
    encode_key,
    encode_member,
    encode_progress,
    encode_target,
)
from penstock.log.groups.consumer.state import Member, MemberState

TOPIC = UUID(int=0x0102)
MEMBER = Member(
    id="m",
    instance_id="i",
    client_id="c",
    client_host="/h",
    rebalance_timeout=300_000,
    topics=frozenset({"b", "a"}),
    assignor="range",
    epoch=5,
    previous_epoch=4,
    state=MemberState.UNREVOKED,
    assigned=frozenset({(TOPIC, 1), (TOPIC, 0)}),
    revoking=frozenset({(TOPIC, 2)}),
)


def test_keys_are_those_of_kafkas_record_types() -> None:
    assert encode_key(ConsumerKey(Kind.EPOCH, "g")) == bytes.fromhex("0003 0001 67")
    assert encode_key(ConsumerKey(Kind.MEMBER, "g", "m")) == bytes.fromhex("0005 0001 67 0001 6d")
    for key in (ConsumerKey(Kind.TARGET_EPOCH, "g"), ConsumerKey(Kind.PROGRESS, "größe", "m")):
        assert decode_key(encode_key(key)) == key
    assert decode_key(bytes.fromhex("0010 0001 67 0001 6d")) is None


def test_values_are_flexible_messages_behind_their_version() -> None:
    assert encode_epoch(7) == bytes.fromhex("0000 00000007 00")
    assert encode_epoch(7, 1) == bytes.fromhex("0000 00000007 01 00 08 0000000000000001")
    topics, timeout = "03 02 61 02 62", "000493e0"
    text = f"0000 02 69 00 02 63 03 2f 68 {topics} 01 {timeout} 06 72 61 6e 67 65 00"
    assert encode_member(MEMBER) == bytes.fromhex(text)


def test_partitions_are_grouped_by_topic_id() -> None:
    id = TOPIC.bytes.hex()
    assert encode_target(MEMBER.assigned) == bytes.fromhex(f"0000 02 {id} 03 00000000 00000001 00 00")
    progress = f"0000 00000005 00000004 01 02 {id} 03 00000000 00000001 00 02 {id} 02 00000002 00 00"
    assert encode_progress(MEMBER) == bytes.fromhex(progress)
