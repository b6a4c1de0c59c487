"""The newest versions of requests: the same ranges as Kafka 4.2, and what is new in them."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from penstock.kafka.records import Record, build_batch
from penstock.log.errors import ErrorCode
from penstock.log.protocol.apis import APIS
from penstock.log.storage.time_search import first_record
from penstock.log.transactions.state_machine import Producer
from tests.log.groups.broker_fixture import Still, let_it_work, play
from tests.log.groups.test_handlers import client
from tests.log.storage.logs import NOW, append, plain

# What Apache Kafka 4.2.0 offers; Produce there starts at 0, for an old client, and is served from 3 on.
KAFKA = {0: (3, 13), 1: (4, 18), 2: (1, 11), 3: (0, 13), 8: (2, 10), 9: (1, 10), 10: (0, 6), 11: (0, 9), 12: (0, 4)}
KAFKA |= {13: (0, 5), 14: (0, 5), 15: (0, 6), 16: (0, 5), 17: (0, 1), 18: (0, 4), 19: (2, 7), 20: (1, 6), 21: (0, 2)}
KAFKA |= {22: (0, 5), 23: (2, 4), 24: (0, 5), 25: (0, 4), 26: (0, 5), 28: (0, 5), 29: (1, 3), 30: (1, 3), 31: (1, 3)}
KAFKA |= {32: (1, 4), 33: (0, 2), 35: (1, 4), 36: (0, 2), 37: (0, 3), 42: (0, 2), 44: (0, 1), 46: (0, 0), 47: (0, 0)}
KAFKA |= {48: (0, 1), 49: (0, 1), 50: (0, 0), 51: (0, 0), 60: (0, 2), 61: (0, 0), 65: (0, 0), 66: (0, 2)}
SECOND_TRANSACTIONS = {26: (0, 4), 28: (0, 4)}


def test_every_request_is_served_in_the_versions_of_kafka() -> None:
    served = {key: (api.oldest, api.newest) for key, api in APIS.items() if key in KAFKA}
    assert served == KAFKA | SECOND_TRANSACTIONS


def test_produce_is_offered_from_version_0_on_so_that_old_clients_compress(tmp_path: Path) -> None:
    """KAFKA-18659: librdkafka before 2.8 (kcat of Debian 12) sent everything uncompressed, and said nothing."""

    async def story(broker: Still) -> None:
        found = await client(broker)("api_versions", 4, client_software_name="x", client_software_version="1")
        assert {each.api_key: (each.min_version, each.max_version) for each in found.api_keys}[0] == (0, 13)
        assert [(each.name, each.max_version) for each in found.supported_features] == [
            ("group.version", 1),
            ("transaction.version", 1),
        ]
        assert [each.max_version_level for each in found.finalized_features] == [1, 1]
        older = await client(broker)("api_versions", 3, client_software_name="x", client_software_version="1")
        assert older.supported_features == ()

    play(tmp_path, story)


async def positions(ask: Any, version: int, timestamp: int, **more: Any) -> tuple[ErrorCode, int, int, int]:
    part = {"partition_index": 0, "timestamp": timestamp, "current_leader_epoch": -1, **more}
    (topic,) = (await ask("list_offsets", version, topics=[{"name": "trades", "partitions": [part]}])).topics
    (found,) = topic.partitions
    return found.error_code, found.timestamp, found.offset, getattr(found, "leader_epoch", -1)


def test_offsets_of_special_times_are_those_of_a_log_without_tiers(tmp_path: Path) -> None:
    async def story(broker: Still) -> None:
        ask, partition = client(broker), broker.store.partition("trades", 0)
        for at, time in enumerate((5, 9, 7)):
            broker.append(partition, build_batch([Record(b"k", b"%d" % at, timestamp=time)]))
        partition.advance_high_watermark(partition.end)
        partition.truncate_before(1)
        first, last, largest = (ErrorCode.none, -1, 1, 0), (ErrorCode.none, -1, 3, 0), (ErrorCode.none, 9, 1, 0)
        nothing, unsupported = (ErrorCode.none, -1, -1, -1), (ErrorCode.unsupported_version, -1, -1, -1)
        since = {-1: (1, last), -2: (1, first), -3: (7, largest), -4: (8, first), -5: (9, nothing), -6: (11, nothing)}
        for version in range(1, 12):
            for timestamp, (oldest, expected) in {**since, -7: (99, nothing)}.items():
                wanted = expected if version >= oldest else unsupported
                got = await positions(ask, version, timestamp)
                assert got[:3] == wanted[:3], (version, timestamp)
                assert version < 4 or got == wanted

    play(tmp_path, story)


def test_offsets_are_not_told_to_who_knows_another_leader_epoch(tmp_path: Path) -> None:
    async def story(broker: Still) -> None:
        ask = client(broker)
        code, *_ = await positions(ask, 11, -1, current_leader_epoch=5)
        assert code is ErrorCode.unknown_leader_epoch
        parts = [{"partition_index": 0, "timestamp": -1}, {"partition_index": 0, "timestamp": -2}]
        (topic,) = (await ask("list_offsets", 11, topics=[{"name": "trades", "partitions": parts}])).topics
        assert [one.error_code for one in topic.partitions] == [ErrorCode.invalid_request]

    play(tmp_path, story)


def test_offsets_of_a_topic_id_that_is_not_there_are_an_error_of_its_partitions(tmp_path: Path) -> None:
    async def story(broker: Still) -> None:
        ask, topic_id, other = client(broker), broker.store.topic("trades").id, uuid4()
        part = {"partition_index": 0, "committed_offset": 3, "committed_metadata": ""}
        topics = [{"topic_id": each, "partitions": [part]} for each in (topic_id, other)]
        nobody = {"generation_id_or_member_epoch": -1, "member_id": ""}
        done = await ask("offset_commit", 10, group_id="g", topics=topics, **nobody)
        codes = {each.topic_id: each.partitions[0].error_code for each in done.topics}
        assert codes == {topic_id: ErrorCode.none, other: ErrorCode.unknown_topic_id}
        wanted = [{"topic_id": each, "partition_indexes": [0]} for each in (topic_id, other)]
        (group,) = (await ask("offset_fetch", 10, groups=[{"group_id": "g", "topics": wanted}])).groups
        found = {
            each.topic_id: (each.partitions[0].error_code, each.partitions[0].committed_offset) for each in group.topics
        }
        assert found == {topic_id: (ErrorCode.none, 3), other: (ErrorCode.unknown_topic_id, -1)}
        (group,) = (await ask("offset_fetch", 10, groups=[{"group_id": "g", "topics": None}])).groups
        assert [each.topic_id for each in group.topics] == [topic_id]

    play(tmp_path, story)


@pytest.mark.parametrize(("version", "code"), [(5, ErrorCode.none), (6, ErrorCode.group_id_not_found)])
def test_a_group_that_is_not_there_is_dead_and_since_version_6_an_error(
    tmp_path: Path, version: int, code: ErrorCode
) -> None:
    async def story(broker: Still) -> None:
        (group,) = (await client(broker)("describe_groups", version, groups=["missing"])).groups
        assert (group.error_code, group.group_state) == (code, "Dead")

    play(tmp_path, story)


def test_the_cluster_is_described_to_those_who_ask_for_brokers(tmp_path: Path) -> None:
    async def story(broker: Still) -> None:
        ask = client(broker)
        found = await ask("describe_cluster", 2, endpoint_type=1, include_fenced_brokers=True)
        assert [(each.broker_id, each.is_fenced) for each in found.brokers] == [(1, False)]
        for kind, code in ((2, ErrorCode.mismatched_endpoint_type), (9, ErrorCode.unsupported_endpoint_type)):
            assert (await ask("describe_cluster", 2, endpoint_type=kind)).error_code is code

    play(tmp_path, story)


def test_transactions_are_listed_by_a_pattern(tmp_path: Path) -> None:
    async def story(broker: Still) -> None:
        ask = client(broker)
        for name in ("orders-1", "orders-22", "prices"):
            await broker.transactions.init_producer_id(name, 1000)
        found = await ask("list_transactions", 2, transactional_id_pattern=r"orders-\d+", duration_filter=-1)
        assert sorted(each.transactional_id for each in found.transaction_states) == ["orders-1", "orders-22"]
        found = await ask("list_transactions", 2, transactional_id_pattern=None, duration_filter=-1)
        assert len(found.transaction_states) == 3
        wrong = await ask("list_transactions", 2, transactional_id_pattern="[", duration_filter=-1)
        assert wrong.error_code is ErrorCode.invalid_regular_expression

    play(tmp_path, story)


def test_others_are_served_while_records_are_decoded_to_find_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started, go_on = threading.Event(), threading.Event()

    def slow(*asked: Any) -> Any:
        started.set()
        assert go_on.wait(20)
        return first_record(*asked)

    monkeypatch.setattr("penstock.log.handlers.list_offsets.first_record", slow)

    async def story(broker: Still) -> None:
        ask = client(broker)
        append(broker.store.partition("trades", 0), plain(3, timestamp=NOW))
        search = asyncio.create_task(positions(ask, 7, NOW + 1))
        await let_it_work()
        described = await ask("metadata", 9, topics=None)
        assert described.topics
        assert not search.done()
        go_on.set()
        assert (await search)[:3] == (ErrorCode.none, NOW + 1, 1)

    play(tmp_path, story)
    assert started.is_set()


@pytest.mark.parametrize("version", [4, 5])
def test_partitions_are_added_to_several_transactions_or_only_verified(tmp_path: Path, version: int) -> None:
    async def story(broker: Still) -> None:
        ask = client(broker)
        producer = await broker.transactions.init_producer_id("tx", 1000)

        async def add(who: Producer, verify_only: bool) -> ErrorCode:
            topics = [{"name": "trades", "partitions": [0]}]
            asked = {"transactional_id": "tx", "producer_id": who.id, "producer_epoch": who.epoch, "topics": topics}
            reply = await ask("add_partitions_to_txn", version, transactions=[{**asked, "verify_only": verify_only}])
            (result,) = reply.results_by_transaction
            code: ErrorCode = result.topic_results[0].results_by_partition[0].partition_error_code
            return code

        assert await add(producer, True) is ErrorCode.invalid_txn_state
        assert await add(producer, False) is ErrorCode.none
        assert await add(producer, True) is ErrorCode.none
        assert await add(producer._replace(epoch=9), False) is ErrorCode.producer_fenced

    play(tmp_path, story)


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize(
    ("topic", "index", "code"),
    [
        ("missing", 0, ErrorCode.unknown_topic_or_partition),
        ("trades", 2000, ErrorCode.unknown_topic_or_partition),
        ("__transaction_state", 0, ErrorCode.invalid_topic_exception),
        ("__consumer_offsets", 0, ErrorCode.invalid_topic_exception),
    ],
)
def test_only_partitions_that_clients_write_to_are_added_to_several_transactions(
    tmp_path: Path, version: int, topic: str, index: int, code: ErrorCode
) -> None:
    async def story(broker: Still) -> None:
        producer = await broker.transactions.init_producer_id("tx", 1000)
        topics = [{"name": "trades", "partitions": [0]}, {"name": topic, "partitions": [index]}]
        asked = {"transactional_id": "tx", "producer_id": producer.id, "producer_epoch": producer.epoch}
        transactions = [{**asked, "verify_only": False, "topics": topics}]
        reply = await client(broker)("add_partitions_to_txn", version, transactions=transactions)
        (result,) = reply.results_by_transaction
        codes = {one.partition_error_code for each in result.topic_results for one in each.results_by_partition}
        assert codes == {ErrorCode.operation_not_attempted, code}
        added = broker.transactions.find("tx")
        assert added is not None
        assert not added.partitions

    play(tmp_path, story)
