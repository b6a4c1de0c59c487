"""The coordinator over a real store: what is durable when, and what happens in time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from penstock.errors import SettingsError
from penstock.log.errors import ErrorCode, LogError
from penstock.log.groups.formats import Committed
from penstock.log.transactions.coordinator import ProducerIds
from penstock.log.transactions.state_machine import EXPIRY_MS, Producer, State
from tests.log.transactions.brokers import Filmed, Still, committed, produce, running

ORDERS, PAYMENTS, OFFSETS = ("orders", 0), ("payments", 1), ("__consumer_offsets", 0)
TIMEOUT = 60_000
Story = Callable[[Still], Awaitable[None]]


@pytest.fixture
def play(tmp_path: Path) -> Callable[[Story], None]:
    """Run a story on a broker with two topics; a second one finds what the first has left."""

    def run(story: Story) -> None:
        async def whole() -> None:
            async with running(Still(tmp_path)) as broker:
                create_topics(broker)
                await story(broker)

        asyncio.run(whole())

    return run


def create_topics(broker: Still) -> None:
    for topic in ("orders", "payments"):
        if topic not in broker.store.topics:
            broker.store.create_topic(topic, 2, {})


async def begin(broker: Still, *places: tuple[str, int]) -> Producer:
    """A producer with an open transaction that has written record 0 to each place."""
    producer = await broker.transactions.init_producer_id("t", TIMEOUT)
    await broker.transactions.add_partitions("t", producer, places)
    for place in places:
        produce(broker, "t", producer, place, 0)
    return producer


async def refusal(request: Awaitable[object]) -> ErrorCode:
    with pytest.raises(LogError) as caught:
        await request
    return caught.value.code


def state(broker: Still) -> State:
    found = broker.transactions.find("t")
    assert found is not None
    return found.state


def test_a_commit_shows_the_records_of_all_partitions_and_an_abort_none(play: Callable[[Story], None]) -> None:
    async def story(broker: Still) -> None:
        producer = await begin(broker, ORDERS, PAYMENTS)
        await broker.transactions.end("t", producer, commit=True)
        await broker.transactions.add_partitions("t", producer, [ORDERS])
        produce(broker, "t", producer, ORDERS, 1)
        await broker.transactions.end("t", producer, commit=False)
        assert committed(broker, ORDERS) == committed(broker, PAYMENTS) == [0]

    play(story)


def test_offsets_of_a_group_count_from_the_commit_on(play: Callable[[Story], None]) -> None:
    async def story(broker: Still) -> None:
        for epoch, commit in enumerate([False, True]):
            producer = await begin(broker, ORDERS)
            await broker.transactions.add_offsets("t", producer)
            await broker.groups.begin_offsets(*producer, "readers", {PAYMENTS: Committed(40 + epoch)})
            assert broker.groups.offsets.of("readers") == {}
            await broker.transactions.end("t", producer, commit)
        assert broker.groups.offsets.of("readers")[PAYMENTS].offset == 41

    play(story)


def test_a_second_producer_of_the_same_id_fences_the_first_and_aborts_its_transaction(
    play: Callable[[Story], None],
) -> None:
    async def story(broker: Still) -> None:
        first = await begin(broker, ORDERS)
        second = await broker.transactions.init_producer_id("t", TIMEOUT)
        assert second.id == first.id
        assert second.epoch > first.epoch
        assert await refusal(broker.transactions.end("t", first, commit=True)) is ErrorCode.producer_fenced
        with pytest.raises(LogError):
            produce(broker, "t", first, ORDERS, 1)
        assert committed(broker, ORDERS) == []

    play(story)


def test_an_unknown_transactional_id_has_no_producer(play: Callable[[Story], None]) -> None:
    async def story(broker: Still) -> None:
        request = broker.transactions.add_partitions("nobody", Producer(1, 0), [ORDERS])
        assert await refusal(request) is ErrorCode.invalid_producer_id_mapping
        assert broker.transactions.verify("nobody", 1, 0, *ORDERS) is ErrorCode.invalid_producer_id_mapping

    play(story)


def test_a_transaction_left_open_is_aborted_in_time(play: Callable[[Story], None]) -> None:
    async def story(broker: Still) -> None:
        producer = await begin(broker, ORDERS)
        await broker.advance(TIMEOUT - 1)
        assert state(broker) is State.ONGOING
        await broker.advance(1000)
        assert state(broker) is State.COMPLETE_ABORT
        assert committed(broker, ORDERS) == []
        assert await refusal(broker.transactions.end("t", producer, commit=True)) is ErrorCode.producer_fenced

    play(story)


def test_a_transaction_left_open_is_aborted_in_time_after_a_restart_too(play: Callable[[Story], None]) -> None:
    async def left_open(broker: Still) -> None:
        await begin(broker, ORDERS)

    async def story(broker: Still) -> None:
        assert state(broker) is State.ONGOING
        await broker.advance(TIMEOUT)
        assert committed(broker, ORDERS) == []

    play(left_open)
    play(story)


def test_a_producer_goes_on_after_a_restart_in_the_middle_of_its_transaction(play: Callable[[Story], None]) -> None:
    producers: list[Producer] = []

    async def before(broker: Still) -> None:
        producers.append(await begin(broker, ORDERS, PAYMENTS))

    async def after(broker: Still) -> None:
        produce(broker, "t", producers[0], ORDERS, 1)
        await broker.transactions.end("t", producers[0], commit=True)
        assert committed(broker, ORDERS) == [0, 1]
        assert committed(broker, PAYMENTS) == [0]

    play(before)
    play(after)


def test_a_topic_that_was_deleted_meanwhile_does_not_hold_up_the_others(play: Callable[[Story], None]) -> None:
    async def story(broker: Still) -> None:
        producer = await begin(broker, ORDERS, PAYMENTS)
        broker.store.delete_topic("payments")
        await broker.transactions.end("t", producer, commit=True)
        assert state(broker) is State.COMPLETE_COMMIT
        assert committed(broker, ORDERS) == [0]

    play(story)


def test_a_decision_stands_when_a_partition_cannot_be_written_and_is_told_later(play: Callable[[Story], None]) -> None:
    async def story(broker: Still) -> None:
        producer = await begin(broker, ORDERS, PAYMENTS)
        broker.refuses = {PAYMENTS}
        await broker.transactions.end("t", producer, commit=True)
        assert state(broker) is State.PREPARE_COMMIT
        request = broker.transactions.init_producer_id("t", TIMEOUT)
        assert await refusal(request) is ErrorCode.concurrent_transactions
        await broker.advance(1000)
        broker.refuses = set()
        await broker.advance(1000)
        assert state(broker) is State.COMPLETE_COMMIT
        assert committed(broker, ORDERS) == committed(broker, PAYMENTS) == [0]

    play(story)


def test_a_decision_that_cannot_be_saved_is_an_error_and_can_be_asked_for_again(play: Callable[[Story], None]) -> None:
    async def story(broker: Still) -> None:
        producer = await begin(broker, ORDERS)
        broker.refuses = {("__transaction_state", 0)}
        request = broker.transactions.end("t", producer, commit=True)
        assert await refusal(request) is ErrorCode.coordinator_not_available
        broker.refuses = set()
        await broker.transactions.end("t", producer, commit=True)
        assert committed(broker, ORDERS) == [0]

    play(story)


def test_a_timeout_that_cannot_be_saved_is_tried_again(play: Callable[[Story], None]) -> None:
    async def story(broker: Still) -> None:
        await begin(broker, ORDERS)
        broker.refuses = {("__transaction_state", 0)}
        await broker.advance(TIMEOUT)
        broker.refuses = set()
        await broker.advance(1000)
        assert committed(broker, ORDERS) == []

    play(story)


def test_a_request_is_carried_out_when_its_client_hangs_up(play: Callable[[Story], None]) -> None:
    async def story(broker: Still) -> None:
        producer = await begin(broker, ORDERS)
        request = asyncio.ensure_future(broker.transactions.end("t", producer, commit=True))
        await asyncio.sleep(0)
        request.cancel()
        await broker.advance(0)
        assert state(broker) is State.COMPLETE_COMMIT

    play(story)


def test_an_id_unused_for_a_week_is_forgotten_for_good(play: Callable[[Story], None]) -> None:
    async def unused(broker: Still) -> None:
        await broker.transactions.init_producer_id("t", TIMEOUT)
        await broker.advance(EXPIRY_MS)
        assert broker.transactions.all() == []

    async def later(broker: Still) -> None:
        assert broker.transactions.find("t") is None

    play(unused)
    play(later)


def test_ids_are_never_given_twice_also_after_a_crash(tmp_path: Path) -> None:
    given = []
    for _ in range(3):
        ids = ProducerIds(tmp_path / "producer-ids")
        given += [ids.take() for _ in range(1500)]
    assert len(set(given)) == 4500


def test_a_damaged_file_of_ids_is_named(tmp_path: Path) -> None:
    (tmp_path / "producer-ids").write_text("oops")
    with pytest.raises(SettingsError, match="producer-ids"):
        ProducerIds(tmp_path / "producer-ids")


def test_all_or_nothing_wherever_the_broker_is_killed(tmp_path: Path) -> None:
    """Promise: a transaction over two topics and a group's offsets, cut at every write, shows all of it or nothing."""
    filmed = Filmed(tmp_path / "data", tmp_path / "film")

    async def transact() -> None:
        async with running(filmed):
            create_topics(filmed)
            producer = await begin(filmed, ORDERS, PAYMENTS)
            await filmed.transactions.add_offsets("t", producer)
            await filmed.groups.begin_offsets(*producer, "readers", {ORDERS: Committed(7)})
            await filmed.transactions.end("t", producer, commit=True)
            filmed.shoot()

    async def outcome(frame: Path) -> bool:
        async with running(Still(frame)) as broker:
            create_topics(broker)
            await broker.transactions.init_producer_id("t", TIMEOUT)
            seen = {place: committed(broker, place) == [0] for place in (ORDERS, PAYMENTS)}
            seen[OFFSETS] = bool(broker.groups.offsets.of("readers"))
            assert len(set(seen.values())) == 1, seen
            return seen[ORDERS]

    asyncio.run(transact())
    outcomes = [asyncio.run(outcome(frame)) for frame in filmed.frames]
    assert outcomes == sorted(outcomes), "once committed, always committed"
    assert not outcomes[0]
    assert outcomes[-1]
