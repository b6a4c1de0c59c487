"""Produce as a connection serves it: refused records are named, and what is opened in a thread stays in order."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from kio.index import load_request_schema

from penstock.kafka.compression import GZIP, LZ4, ZSTD
from penstock.kafka.records import Record, build_batch
from penstock.log.broker import Broker
from penstock.log.errors import ErrorCode
from penstock.log.handlers import HOT
from penstock.log.network.connection import Connection
from penstock.log.protocol.apis import BY_NAME
from penstock.log.protocol.messages import _builder
from penstock.log.request_context import Call
from tests.log.requests import decoded_reply, encoded
from tests.log.storage.logs import NOW, TRANSACTIONAL, consumed, repacked

Story = Callable[[Broker], Awaitable[None]]


def play(folder: Path, story: Story) -> None:
    async def whole() -> None:
        broker = Broker(folder, sync="none", clock=lambda: NOW)
        await broker.start()
        try:
            await story(broker)
        finally:
            await broker.stop()

    asyncio.run(whole())


def ask(broker: Broker, name: str, version: int, **fields: Any) -> asyncio.Future[Any]:
    """Hand a request to its handler; the future is the answer. The frame is overwritten at once, as in a connection."""
    api, answer = BY_NAME[name], asyncio.get_running_loop().create_future()
    frame = bytearray(encoded(_builder(load_request_schema(api.key, version))(fields)))
    connection = Connection(broker, "10.0.0.1", None)

    def reply(pieces: list[Any]) -> None:
        body = b"".join(one if isinstance(one, bytes) else one.handle.read(one.position, one.size) for one in pieces)
        answer.set_result(decoded_reply(api, version, body))

    HOT[name](Call(connection, api, version, "test", reply), memoryview(frame), 0)
    frame[:] = bytes(len(frame))
    return answer


class Frame(bytearray):
    """A receive buffer that can be found to be gone."""


def send(broker: Broker, batch: bytearray, topic: str = "t", version: int = 9, **more: Any) -> asyncio.Future[Any]:
    data = {"name": topic, "partition_data": [{"index": 0, "records": bytes(batch)}]}
    return ask(broker, "produce", version, acks=-1, topic_data=[data], **more)


async def sent(broker: Broker, batch: bytearray, **more: Any) -> Any:
    async with asyncio.timeout(20):
        return (await send(broker, batch, **more)).responses[0].partition_responses[0]


def numbered(number: int, codec: int = 0, size: int = 30_000, **fields: int) -> bytearray:
    """A batch whose record says which one it is; large enough for a thread unless it is said otherwise."""
    record = Record(b"k", b"%d " % number + bytes(size), timestamp=NOW)
    data = build_batch([record], attributes=fields.pop("attributes", 0) | codec, **fields)
    return repacked(data, codec) if codec else data


def numbers(broker: Broker) -> list[int]:
    return [int((record.value or b"").split()[0]) for record in consumed(broker.store.partition("t", 0))]


MIXED = [Record(key, b"v", timestamp=NOW) for key in (b"a", None, b"b", None)]


@pytest.mark.parametrize("version", [8, 9, 11, 12])
@pytest.mark.parametrize("codec", [0, GZIP, ZSTD])
def test_records_without_key_are_named_by_their_indexes(tmp_path: Path, version: int, codec: int) -> None:
    async def story(broker: Broker) -> None:
        broker.store.create_topic("t", 1, {"cleanup.policy": "compact"})
        batch = build_batch(MIXED, attributes=codec)
        answer = await sent(broker, repacked(batch, codec) if codec else batch, version=version)
        assert (answer.error_code, answer.base_offset) == (ErrorCode.invalid_record, -1)
        assert [each.batch_index for each in answer.record_errors] == [1, 3]
        assert "without a key" in answer.record_errors[0].batch_index_error_message
        assert "2 invalid records" in answer.error_message
        assert broker.store.partition("t", 0).end == 0

    play(tmp_path, story)


@pytest.mark.parametrize("codec", [0, ZSTD], ids=["on the event loop", "in a thread"])
def test_a_request_names_a_thousand_records_however_many_partitions_it_has(tmp_path: Path, codec: int) -> None:
    async def story(broker: Broker) -> None:
        broker.store.create_topic("t", 3, {"cleanup.policy": "compact"})
        batch = build_batch([Record(None, b"v", timestamp=NOW)] * 600, attributes=codec)
        records = bytes(repacked(batch, codec) if codec else batch)
        data = {"name": "t", "partition_data": [{"index": at, "records": records} for at in range(3)]}
        async with asyncio.timeout(20):
            reply = await ask(broker, "produce", 9, acks=-1, topic_data=[data])
        refused = reply.responses[0].partition_responses
        assert [one.error_code for one in refused] == [ErrorCode.invalid_record] * 3
        assert sorted(len(one.record_errors) for one in refused) == [0, 400, 600]

    play(tmp_path, story)


@pytest.mark.parametrize(
    ("records", "code"),
    [(b"", ErrorCode.invalid_record), (b"x" * 80, ErrorCode.corrupt_message), (b"x", ErrorCode.corrupt_message)],
)
def test_what_is_no_batch_is_refused_as_in_kafka(tmp_path: Path, records: bytes, code: ErrorCode) -> None:
    async def story(broker: Broker) -> None:
        broker.store.create_topic("t", 1, {})
        answer = await sent(broker, bytearray(records))
        assert (answer.error_code, answer.base_offset) == (code, -1)
        assert broker.store.partition("t", 0).end == 0

    play(tmp_path, story)


def test_older_versions_hear_only_the_code(tmp_path: Path) -> None:
    async def story(broker: Broker) -> None:
        broker.store.create_topic("t", 1, {"cleanup.policy": "compact"})
        assert (await sent(broker, build_batch(MIXED), version=7)).error_code is ErrorCode.invalid_record

    play(tmp_path, story)


def test_records_more_than_an_hour_ahead_are_refused_as_in_kafka(tmp_path: Path) -> None:
    async def story(broker: Broker) -> None:
        broker.store.create_topic("t", 1, {})
        times = [NOW, NOW + 3_600_000, NOW + 3_600_001]
        answer = await sent(broker, build_batch([Record(b"k", b"v", timestamp=each) for each in times]))
        assert answer.error_code is ErrorCode.invalid_timestamp
        assert [each.batch_index for each in answer.record_errors] == [2]
        broker.store.configure("t", {"message.timestamp.after.max.ms": str(2**63 - 1)})
        answer = await sent(broker, build_batch([Record(b"k", b"v", timestamp=NOW + 10**10)]))
        assert answer.error_code is ErrorCode.none

    play(tmp_path, story)


def test_requests_are_written_in_the_order_in_which_they_came(tmp_path: Path) -> None:
    async def story(broker: Broker) -> None:
        broker.store.create_topic("t", 1, {"compression.type": "zstd"})
        fields = [{"producer_id": 7, "producer_epoch": 0, "base_sequence": number} for number in range(30)]
        # Large and small, of other codecs and of the right one: some need a thread, the others wait behind them.
        codecs, sizes = [0, ZSTD, GZIP, LZ4], [30_000, 10, 200_000]
        waiting = [
            send(broker, numbered(number, codecs[number % 4], sizes[number % 3], **each))
            for number, each in enumerate(fields)
        ]
        async with asyncio.timeout(60):
            answers = [(await each).responses[0].partition_responses[0] for each in waiting]
        assert [answer.error_code for answer in answers] == [ErrorCode.none] * 30
        assert [answer.base_offset for answer in answers] == list(range(30))
        assert numbers(broker) == list(range(30))
        partition = broker.store.partition("t", 0)
        assert {batch.compression for batch, _ in partition.batches()} == {ZSTD}
        assert (partition.validating, broker.validation_pool.queued_bytes, broker.memory.reserved) == (0, 0, 0)

    play(tmp_path, story)


@pytest.mark.parametrize("config", [{}, {"compression.type": "zstd"}], ids=["as it came", "validated in a thread"])
def test_a_request_that_waits_for_the_disk_does_not_hold_its_records(tmp_path: Path, config: dict[str, str]) -> None:
    async def story(broker: Broker) -> None:
        broker.store.create_topic("t", 1, config)
        waiting: list[Callable[[OSError | None], None]] = []
        broker.when_durable = lambda _, then: waiting.append(then)  # type: ignore[method-assign]
        records = bytes(numbered(1))
        partition = {"index": 0, "records": records}
        refused = {"index": 9, "records": records}
        fields = _builder(load_request_schema(0, 9))(
            {"acks": -1, "topic_data": [{"name": "t", "partition_data": [partition, refused]}]}
        )
        frame = Frame(encoded(fields))
        left, answers = weakref.ref(frame), []
        connection = Connection(broker, "10.0.0.1", None)
        HOT["produce"](Call(connection, BY_NAME["produce"], 9, "test", answers.append), memoryview(frame), 0)
        del frame
        async with asyncio.timeout(20):
            while not waiting:
                await asyncio.sleep(0)
        gc.collect()
        assert left() is None
        assert not answers
        waiting.pop()(None)
        assert answers

    play(tmp_path, story)


def test_a_topic_that_is_deleted_meanwhile_gets_nothing(tmp_path: Path) -> None:
    async def story(broker: Broker) -> None:
        broker.store.create_topic("t", 1, {"compression.type": "gzip"})
        waiting = send(broker, numbered(1, size=500_000))
        broker.store.delete_topic("t")
        broker.store.create_topic("t", 1, {})
        async with asyncio.timeout(20):
            answer = (await waiting).responses[0].partition_responses[0]
        assert answer.error_code is ErrorCode.unknown_topic_or_partition
        assert broker.store.partition("t", 0).end == 0

    play(tmp_path, story)


@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_that_has_ended_meanwhile_gets_no_more(tmp_path: Path, commit: bool) -> None:
    async def story(broker: Broker) -> None:
        broker.store.create_topic("t", 1, {"compression.type": "gzip"})
        producer = await broker.transactions.init_producer_id("tx", 60_000)
        await broker.transactions.add_partitions("tx", producer, [("t", 0)])
        fields = {"producer_id": producer.id, "producer_epoch": producer.epoch, "attributes": TRANSACTIONAL}
        answer = await sent(broker, numbered(1, base_sequence=0, **fields), transactional_id="tx")
        assert answer.error_code is ErrorCode.none
        late = send(broker, numbered(2, size=500_000, base_sequence=1, **fields), transactional_id="tx")
        await broker.transactions.end("tx", producer, commit)
        async with asyncio.timeout(20):
            answer = (await late).responses[0].partition_responses[0]
        partition = broker.store.partition("t", 0)
        if answer.error_code is not ErrorCode.none:  # it may have been faster
            assert answer.error_code is ErrorCode.invalid_txn_state
            assert partition.end == 2
        assert partition.last_stable_offset == partition.end

    play(tmp_path, story)


def test_a_partition_is_not_held_up_by_others_that_are_prepared(tmp_path: Path) -> None:
    async def story(broker: Broker) -> None:
        broker.store.create_topic("t", 1, {"compression.type": "gzip"})
        broker.store.create_topic("plain", 1, {})
        slow = send(broker, numbered(1, size=900_000))
        fast = send(broker, numbered(2), topic="plain")
        assert fast.done()
        assert not slow.done()
        async with asyncio.timeout(20):
            await slow

    play(tmp_path, story)


def test_a_request_for_many_topics_is_answered_in_its_order(tmp_path: Path) -> None:
    async def story(broker: Broker) -> None:
        broker.store.create_topic("t", 1, {"compression.type": "gzip"})
        broker.store.create_topic("plain", 1, {})
        names = ["t", "missing", "plain", "t"]
        data = [{"name": name, "partition_data": [{"index": 0, "records": bytes(numbered(1))}]} for name in names]
        async with asyncio.timeout(20):
            reply = await ask(broker, "produce", 9, acks=-1, topic_data=data)
        codes = [one.error_code for topic in reply.responses for one in topic.partition_responses]
        assert codes == [ErrorCode.none, ErrorCode.unknown_topic_or_partition, ErrorCode.none, ErrorCode.none]
        assert [topic.name for topic in reply.responses] == names

    play(tmp_path, story)


def test_zstd_needs_versions_whose_clients_know_it(tmp_path: Path) -> None:
    async def story(broker: Broker) -> None:
        broker.store.create_topic("t", 1, {"compression.type": "zstd"})
        answer = await sent(broker, numbered(1, ZSTD), version=6)
        assert answer.error_code is ErrorCode.unsupported_compression_type
        assert (await sent(broker, numbered(1, ZSTD), version=7)).error_code is ErrorCode.none
        part = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
        wanted = {"max_bytes": 1 << 20, "min_bytes": 1, "topics": [{"topic": "t", "partitions": [part]}]}
        for version, code in ((9, ErrorCode.unsupported_compression_type), (10, ErrorCode.none)):
            reply = await ask(broker, "fetch", version, session_epoch=-1, **wanted)
            assert reply.responses[0].partitions[0].error_code is code

    play(tmp_path, story)


@pytest.mark.parametrize("size", [1000, 40_000], ids=["on the event loop", "in a thread"])
@pytest.mark.parametrize("codec", [0, GZIP])
@pytest.mark.parametrize("version", [3, 6, 7])
def test_a_topic_in_zstd_takes_other_codecs_from_clients_that_do_not_know_it(
    tmp_path: Path, version: int, codec: int, size: int
) -> None:
    async def story(broker: Broker) -> None:
        broker.store.create_topic("t", 1, {"compression.type": "zstd"})
        answer = await sent(broker, numbered(1, codec, size), version=version)
        assert (answer.error_code, answer.base_offset) == (ErrorCode.none, 0)
        assert numbers(broker) == [1]
        assert {batch.compression for batch, _ in broker.store.partition("t", 0).batches()} == {ZSTD}

    play(tmp_path, story)


def test_topics_are_named_by_their_ids_in_the_newest_versions(tmp_path: Path) -> None:
    async def story(broker: Broker) -> None:
        topic = broker.store.create_topic("t", 1, {})
        gone = broker.store.create_topic("gone", 1, {})
        broker.store.delete_topic("gone")
        data = [
            {"topic_id": each.id, "partition_data": [{"index": 0, "records": bytes(numbered(1))}]}
            for each in (topic, gone)
        ]
        reply = await ask(broker, "produce", 13, acks=-1, topic_data=data)
        answers = [(one.topic_id, one.partition_responses[0].error_code) for one in reply.responses]
        assert answers == [(topic.id, ErrorCode.none), (gone.id, ErrorCode.unknown_topic_id)]
        part = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
        wanted = [{"topic_id": each.id, "partitions": [part]} for each in (topic, gone)]
        for version in range(13, 19):
            reply = await ask(broker, "fetch", version, max_bytes=1 << 20, session_epoch=-1, topics=wanted)
            answers = [(one.topic_id, one.partitions[0].error_code) for one in reply.responses]
            assert answers == [(topic.id, ErrorCode.none), (gone.id, ErrorCode.unknown_topic_id)]
            assert bytes(reply.responses[0].partitions[0].records)

    play(tmp_path, story)
