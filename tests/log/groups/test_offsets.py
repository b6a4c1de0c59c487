"""Offsets follow the log: what a restart reads from it is what was there before."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.kafka.records import ABORT, COMMIT, build_control_batch
from penstock.log.errors import LogError
from penstock.log.groups.formats import OffsetKey
from penstock.log.groups.journal import TOPIC
from penstock.log.storage.compaction import compact, plan_compaction, swap_in
from tests.log.groups.broker_fixture import TRADES, Still, let_it_work, number, offset, play
from tests.log.transactions.brokers import running

KEY = OffsetKey("g", *TRADES)


async def end(broker: Still, producer_id: int, committed: bool) -> None:
    """Do as the transaction coordinator does: first the marker, then the word."""
    if TOPIC in broker.store.topics:
        await broker.write(TOPIC, 0, build_control_batch(COMMIT if committed else ABORT, producer_id, 0, broker.now))
    broker.groups.end_offsets(producer_id, committed)


def test_committed_offsets_survive_a_restart_with_all_that_belongs_to_them(tmp_path: Path) -> None:
    async def before(broker: Still) -> None:
        await broker.groups.commit("g", {TRADES: offset(5)._replace(metadata="by hand", leader_epoch=3, timestamp=77)})

    async def after(broker: Still) -> None:
        found = broker.groups.offsets.of("g")[TRADES]
        assert (found.offset, found.metadata, found.leader_epoch, found.timestamp) == (5, "by hand", 3, 77)
        assert broker.groups.groups["g"].state == "Empty"

    play(tmp_path, before, after)


def test_the_latest_commit_counts_even_if_it_goes_back(tmp_path: Path) -> None:
    async def before(broker: Still) -> None:
        for each in (5, 9, 2):
            await broker.groups.commit("g", {TRADES: offset(each)})
        assert number(broker) == 2

    async def after(broker: Still) -> None:
        assert number(broker) == 2

    play(tmp_path, before, after)


def test_deleted_offsets_stay_deleted(tmp_path: Path) -> None:
    async def before(broker: Still) -> None:
        await broker.groups.commit("g", {TRADES: offset(5), ("trades", 1): offset(6)})
        await broker.groups.delete_offsets("g", [TRADES, ("trades", 3)])

    async def after(broker: Still) -> None:
        assert (number(broker), number(broker, "g", ("trades", 1))) == (None, 6)

    play(tmp_path, before, after)


@pytest.mark.parametrize(("committed", "left"), [(True, 8), (False, 5)])
def test_offsets_of_a_transaction_wait_for_its_end(tmp_path: Path, committed: bool, left: int) -> None:
    async def before(broker: Still) -> None:
        await broker.groups.commit("g", {TRADES: offset(5)})
        await broker.groups.begin_offsets(7, 0, "g", {TRADES: offset(8)})
        assert (number(broker), broker.groups.offsets.is_pending(KEY)) == (5, True)

    async def between(broker: Still) -> None:
        assert (number(broker), broker.groups.offsets.is_pending(KEY)) == (5, True)
        await end(broker, 7, committed)
        assert (number(broker), broker.groups.offsets.is_pending(KEY)) == (left, False)

    async def after(broker: Still) -> None:
        assert (number(broker), broker.groups.offsets.is_pending(KEY)) == (left, False)

    play(tmp_path, before, between, after)


def test_a_plain_commit_after_that_of_an_open_transaction_is_the_younger_one(tmp_path: Path) -> None:
    async def before(broker: Still) -> None:
        await broker.groups.begin_offsets(7, 0, "g", {TRADES: offset(8)})
        await broker.groups.commit("g", {TRADES: offset(3)})
        await end(broker, 7, True)
        assert number(broker) == 3

    async def after(broker: Still) -> None:
        assert number(broker) == 3

    play(tmp_path, before, after)


def test_a_deletion_after_that_of_an_open_transaction_is_the_younger_one(tmp_path: Path) -> None:
    async def before(broker: Still) -> None:
        await broker.groups.commit("g", {TRADES: offset(3)})
        await broker.groups.begin_offsets(7, 0, "g", {TRADES: offset(8)})
        await broker.groups.delete_offsets("g", [TRADES])
        await end(broker, 7, True)
        assert number(broker) is None

    async def after(broker: Still) -> None:
        assert number(broker) is None

    play(tmp_path, before, after)


def test_a_transaction_may_commit_offsets_of_a_group_that_is_new(tmp_path: Path) -> None:
    async def story(broker: Still) -> None:
        await broker.groups.begin_offsets(7, 0, "g", {TRADES: offset(8)})
        assert "g" not in broker.groups.groups
        await end(broker, 7, True)
        assert number(broker) == 8
        assert "g" in broker.groups.groups

    play(tmp_path, story)


def test_a_transaction_may_commit_the_same_offsets_twice(tmp_path: Path) -> None:
    async def before(broker: Still) -> None:
        for each in (8, 9):
            await broker.groups.begin_offsets(7, 0, "g", {TRADES: offset(each)})
        await end(broker, 7, True)
        assert number(broker) == 9

    async def after(broker: Still) -> None:
        assert number(broker) == 9

    play(tmp_path, before, after)


def test_offsets_that_the_disk_refuses_are_neither_committed_nor_pending(tmp_path: Path) -> None:
    async def story(broker: Still) -> None:
        broker.refuses = {(TOPIC, 0)}
        for work in (
            broker.groups.commit("g", {TRADES: offset(5)}),
            broker.groups.begin_offsets(7, 0, "g", {TRADES: offset(8)}),
        ):
            with pytest.raises(LogError):
                await work
        assert (number(broker), broker.groups.offsets.is_pending(KEY)) == (None, False)

    play(tmp_path, story)


def test_a_commit_is_carried_out_though_the_client_hangs_up(tmp_path: Path) -> None:
    async def story(broker: Still) -> None:
        work = asyncio.create_task(broker.groups.commit("g", {TRADES: offset(5)}))
        await asyncio.sleep(0)
        work.cancel()
        await let_it_work()
        assert number(broker) == 5

    play(tmp_path, story)


_groups, _places = st.sampled_from(["g", "h"]), st.sampled_from([("trades", 0), ("trades", 1)])
_producers, _offsets = st.sampled_from([1, 2, 3]), st.integers(0, 99)
_steps = st.one_of(
    st.tuples(st.just("commit"), _groups, _places, _offsets),
    st.tuples(st.just("begin"), _producers, _groups, _places, _offsets),
    st.tuples(st.just("end"), _producers, st.booleans()),
    st.tuples(st.just("delete_offsets"), _groups, _places),
    st.tuples(st.just("delete"), _groups),
    st.tuples(st.just("compact")),
)


async def take(broker: Still, name: str, *given: Any) -> None:
    if name == "commit":
        await broker.groups.commit(given[0], {given[1]: offset(given[2])})
    elif name == "begin":
        await broker.groups.begin_offsets(given[0], 0, given[1], {given[2]: offset(given[3])})
    elif name == "end":
        await end(broker, *given)
    elif name == "delete_offsets":
        await broker.groups.delete_offsets(given[0], [given[1]])
    elif name == "delete":
        await broker.groups.delete(given[0])
    elif TOPIC in broker.store.topics:
        compact_all(broker)


def compact_all(broker: Still) -> None:
    partition = broker.store.partition(TOPIC, 0)
    partition.roll(broker.now)
    plan = plan_compaction(partition, broker.store.topic(TOPIC), broker.now, force=True)
    if plan is not None:
        assert swap_in(partition, compact(plan))


def everything(broker: Still) -> object:
    table = broker.groups.offsets
    keys = [OffsetKey(group, "trades", partition) for group in "gh" for partition in (0, 1)]
    pending = {key for key in keys if table.is_pending(key)}
    assert set(table.groups()) <= broker.groups.groups.keys()
    return {group: dict(table.of(group)) for group in table.groups()}, pending


@given(st.lists(_steps, max_size=25))
@settings(max_examples=40, deadline=None)
def test_whatever_was_done_and_compacted_a_restart_finds_the_same(steps: list[tuple[Any, ...]]) -> None:
    async def whole(folder: Path) -> None:
        async with running(Still(folder)) as before:
            before.store.create_topic("trades", 2, {})
            for step in steps:
                await take(before, *step)
            expected = everything(before)
        async with running(Still(folder)) as after:
            assert everything(after) == expected

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(whole(Path(folder)))
