"""The requests of transactional producers and of tools, asked through their bytes as a connection does."""

from __future__ import annotations

import asyncio
import typing
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from kio.index import load_request_schema

from penstock.kafka.records import Record, build_batch
from penstock.log.errors import ErrorCode, LogError
from penstock.log.handlers import HOT
from penstock.log.handlers.transactions import HANDLERS
from penstock.log.network.connection import Connection
from penstock.log.protocol.apis import BY_NAME
from penstock.log.protocol.messages import error_reply, read_request, write_reply
from penstock.log.request_context import Call
from penstock.log.security.setup import open_security
from penstock.log.transactions.state_machine import Producer
from tests.log.requests import decoded_reply, encoded
from tests.log.transactions.brokers import TRANSACTIONAL, Still, produce, running

MINUTE = timedelta(minutes=1)
Ask = Callable[..., Awaitable[Any]]
Story = Callable[[Still, Ask], Awaitable[None]]


def client(broker: Still, principal: str | None = None) -> Ask:
    """Return what asks a broker, in the name of someone."""
    connection = Connection(broker, "10.0.0.1", broker.security.authentication(principal))

    async def ask(name: str, version: int, **fields: Any) -> Any:
        api = BY_NAME[name]
        body = encoded(_built(load_request_schema(api.key, version), fields))
        call = Call(connection, api, version, "test", lambda _: None)
        try:
            reply = write_reply(api, version, await HANDLERS[name](call, read_request(api, version, body)))
        except LogError as error:
            reply = error_reply(api, version, error) or b""
        return decoded_reply(api, version, reply)

    return ask


def _built(schema: Any, fields: dict[str, Any]) -> Any:
    """Make a request of those fields that its version has."""
    hints = typing.get_type_hints(schema)
    known = {name: value for name, value in fields.items() if name in hints}
    for name, value in known.items():
        if isinstance(value, list) and isinstance(value[0], dict):
            known[name] = tuple(_built(typing.get_args(hints[name])[0], item) for item in value)
        elif isinstance(value, list):
            known[name] = tuple(value)
    return schema(**known)


@pytest.fixture
def play(tmp_path: Path) -> Callable[[Story], None]:
    """Run a story on a broker with the topic orders."""

    def run(story: Story) -> None:
        async def whole() -> None:
            async with running(Still(tmp_path)) as broker:
                broker.store.create_topic("orders", 2, {})
                await story(broker, client(broker))

        asyncio.run(whole())

    return run


async def init(ask: Ask, version: int = 4, **fields: Any) -> Any:
    asked = {"transactional_id": "t", "transaction_timeout": MINUTE, **fields}
    return await ask("init_producer_id", version, **asked)


async def add(ask: Ask, version: int, producer: Producer, *places: tuple[str, int]) -> dict[tuple[str, int], ErrorCode]:
    reply = await ask(
        "add_partitions_to_txn",
        version,
        v3_and_below_transactional_id="t",
        v3_and_below_producer_id=producer.id,
        v3_and_below_producer_epoch=producer.epoch,
        v3_and_below_topics=[{"name": topic, "partitions": (index,)} for topic, index in places],
    )
    results = [
        (topic.name, each) for topic in reply.results_by_topic_v3_and_below for each in topic.results_by_partition
    ]
    return {(name, each.partition_index): each.partition_error_code for name, each in results}


def of(producer: Producer, **more: Any) -> dict[str, Any]:
    return {"transactional_id": "t", "producer_id": producer.id, "producer_epoch": producer.epoch, **more}


def offsets(producer: Producer) -> dict[str, Any]:
    partition = {"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}
    return of(producer, group_id="readers", topics=[{"name": "orders", "partitions": [partition]}])


@pytest.mark.parametrize("version", range(4))
def test_a_transaction_in_every_version(play: Callable[[Story], None], version: int) -> None:
    async def story(broker: Still, ask: Ask) -> None:
        reply = await init(ask, version)
        producer = Producer(reply.producer_id, reply.producer_epoch)
        assert await add(ask, version, producer, ("orders", 0)) == {("orders", 0): ErrorCode.none}
        added = await ask("add_offsets_to_txn", version, **of(producer, group_id="readers"))
        assert added.error_code is ErrorCode.none
        kept = await ask("txn_offset_commit", version, **offsets(producer))
        assert kept.topics[0].partitions[0].error_code is ErrorCode.none
        ended = await ask("end_txn", version, **of(producer, committed=True))
        assert ended.error_code is ErrorCode.none
        assert broker.groups.offsets.of("readers")["orders", 0].offset == 5

    play(story)


def test_idempotent_producers_get_an_id_each(play: Callable[[Story], None]) -> None:
    async def story(_: Still, ask: Ask) -> None:
        replies = [await init(ask, version, transactional_id=None) for version in range(5)]
        assert len({reply.producer_id for reply in replies}) == 5
        assert {reply.producer_epoch for reply in replies} == {0}

    play(story)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"transactional_id": ""}, ErrorCode.invalid_request),
        ({"transactional_id": "x" * 40_000}, ErrorCode.invalid_request),
        ({"producer_id": 5}, ErrorCode.invalid_request),
        ({"transaction_timeout": timedelta(minutes=16)}, ErrorCode.invalid_transaction_timeout),
        ({"transaction_timeout": timedelta()}, ErrorCode.invalid_transaction_timeout),
    ],
)
def test_an_init_that_makes_no_sense_is_refused(
    play: Callable[[Story], None], fields: dict[str, Any], code: ErrorCode
) -> None:
    async def story(broker: Still, ask: Ask) -> None:
        assert (await init(ask, **fields)).error_code is code
        assert broker.transactions.all() == []

    play(story)


@pytest.mark.parametrize(("version", "code"), [(1, ErrorCode.invalid_producer_epoch), (2, ErrorCode.producer_fenced)])
def test_a_fenced_producer_is_told_in_the_words_of_its_version(
    play: Callable[[Story], None], version: int, code: ErrorCode
) -> None:
    async def story(_: Still, ask: Ask) -> None:
        first = await init(ask)
        old = Producer(first.producer_id, first.producer_epoch)
        await init(ask)
        assert await add(ask, version, old, ("orders", 0)) == {("orders", 0): code}
        for request in ("add_offsets_to_txn", "end_txn"):
            reply = await ask(request, version, **of(old, group_id="readers", committed=True))
            assert reply.error_code is code
        claims = {"producer_id": old.id, "producer_epoch": old.epoch}
        assert (await init(ask, 3, **claims)).error_code is ErrorCode.invalid_producer_epoch
        assert (await init(ask, 4, **claims)).error_code is ErrorCode.producer_fenced

    play(story)


def test_partitions_are_added_all_or_none(play: Callable[[Story], None]) -> None:
    async def story(broker: Still, ask: Ask) -> None:
        reply = await init(ask)
        producer = Producer(reply.producer_id, reply.producer_epoch)
        codes = await add(ask, 3, producer, ("orders", 0), ("orders", 9), ("nowhere", 0), ("__transaction_state", 0))
        assert codes == {
            ("orders", 0): ErrorCode.operation_not_attempted,
            ("orders", 9): ErrorCode.unknown_topic_or_partition,
            ("nowhere", 0): ErrorCode.unknown_topic_or_partition,
            ("__transaction_state", 0): ErrorCode.invalid_topic_exception,
        }
        assert broker.transactions.verify("t", *producer, "orders", 0) is ErrorCode.invalid_txn_state

    play(story)


def test_offsets_outside_the_transaction_are_refused(play: Callable[[Story], None]) -> None:
    async def story(broker: Still, ask: Ask) -> None:
        reply = await init(ask)
        producer = Producer(reply.producer_id, reply.producer_epoch)
        kept = await ask("txn_offset_commit", 3, **offsets(producer))
        assert kept.topics[0].partitions[0].error_code is ErrorCode.invalid_txn_state
        assert not broker.groups.offsets.has_pending("readers")

    play(story)


def sent(broker: Still, transactional_id: str | None, *batches: bytearray) -> ErrorCode:
    """Send batches for orders 0 in one produce request."""
    api, replies = BY_NAME["produce"], list[Any]()
    data = [{"name": "orders", "partition_data": [{"index": 0, "records": b"".join(batches)}]}]
    fields = {"transactional_id": transactional_id, "acks": -1, "timeout": MINUTE, "topic_data": data}
    body = encoded(_built(load_request_schema(api.key, 9), fields))
    call = Call(Connection(broker, "10.0.0.1", None), api, 9, "test", replies.extend)
    HOT["produce"](call, memoryview(bytearray(body)), 0)
    code: ErrorCode = decoded_reply(api, 9, bytes(replies[0])).responses[0].partition_responses[0].error_code
    return code


def batch(producer: Producer, sequence: int = 0, attributes: int = TRANSACTIONAL) -> bytearray:
    record = Record(None, b"x", timestamp=1)
    named = {"producer_id": producer.id, "producer_epoch": producer.epoch, "base_sequence": sequence}
    return build_batch([record], attributes=attributes, **named)


def test_a_transactional_batch_is_taken_only_inside_its_transaction(play: Callable[[Story], None]) -> None:
    async def story(broker: Still, ask: Ask) -> None:
        reply = await init(ask)
        producer = Producer(reply.producer_id, reply.producer_epoch)
        plain = batch(Producer(-1, -1), -1, 0)
        assert sent(broker, "t", batch(producer)) is ErrorCode.invalid_txn_state
        assert sent(broker, None, batch(producer)) is ErrorCode.transactional_id_authorization_failed
        assert sent(broker, None, plain, batch(producer)) is ErrorCode.invalid_record
        await add(ask, 3, producer, ("orders", 0))
        assert sent(broker, "t", batch(producer)) is ErrorCode.none
        assert sent(broker, "t", batch(producer)) is ErrorCode.none, "the same again is answered"
        assert sent(broker, "other", batch(producer, 1)) is ErrorCode.invalid_producer_id_mapping
        await init(ask)
        assert sent(broker, "t", batch(producer, 1)) is ErrorCode.invalid_producer_epoch

    play(story)


def test_tools_see_transactions_and_producers(play: Callable[[Story], None]) -> None:
    async def story(broker: Still, ask: Ask) -> None:
        reply = await init(ask)
        producer = Producer(reply.producer_id, reply.producer_epoch)
        await add(ask, 3, producer, ("orders", 1))
        produce(broker, "t", producer, ("orders", 1), 0)
        known, unknown = (await ask("describe_transactions", 0, transactional_ids=["t", "u"])).transaction_states
        assert (known.transaction_state, known.transaction_timeout) == ("Ongoing", MINUTE)
        assert [(topic.topic, topic.partitions) for topic in known.topics] == [("orders", (1,))]
        assert unknown.error_code is ErrorCode.transactional_id_not_found
        asked = {"topics": [{"name": "orders", "partition_indexes": (1, 7)}]}
        active, missing = (await ask("describe_producers", 0, **asked)).topics[0].partitions
        assert (active.active_producers[0].producer_id, active.active_producers[0].last_sequence) == (producer.id, 0)
        assert active.active_producers[0].current_txn_start_offset == 0
        assert missing.error_code is ErrorCode.unknown_topic_or_partition

    play(story)


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ({}, ["t"]),
        ({"state_filters": ["Ongoing"]}, []),
        ({"state_filters": ["Empty", "Sleeping"]}, ["t"]),
        ({"producer_id_filters": [12345]}, []),
    ],
)
def test_transactions_are_listed_by_state_and_producer(
    play: Callable[[Story], None], filters: dict[str, Any], found: list[str]
) -> None:
    async def story(_: Still, ask: Ask) -> None:
        await init(ask)
        reply = await ask("list_transactions", 1, **filters)
        assert [each.transactional_id for each in reply.transaction_states] == found
        assert reply.unknown_state_filters == (("Sleeping",) if "Sleeping" in str(filters) else ())

    play(story)


def test_who_has_no_rights_is_refused_everything(tmp_path: Path) -> None:
    open_security(tmp_path).users.add("mallory", "secret")

    async def story() -> None:
        async with running(Still(tmp_path, open_security(tmp_path, login=True))) as broker:
            broker.store.create_topic("orders", 2, {})
            ask, who = client(broker, "User:mallory"), Producer(1, 0)
            assert (await init(ask)).error_code is ErrorCode.transactional_id_authorization_failed
            assert (await init(ask, transactional_id=None)).error_code is ErrorCode.cluster_authorization_failed
            codes = await add(ask, 3, who, ("orders", 0))
            assert codes == {("orders", 0): ErrorCode.topic_authorization_failed}
            for request in ("add_offsets_to_txn", "end_txn"):
                reply = await ask(request, 3, **of(who, group_id="readers", committed=True))
                assert reply.error_code is ErrorCode.transactional_id_authorization_failed
            described = await ask("describe_transactions", 0, transactional_ids=["t"])
            refused = described.transaction_states[0].error_code
            assert refused is ErrorCode.transactional_id_authorization_failed
            assert (await ask("list_transactions", 1)).transaction_states == ()

    asyncio.run(story())
