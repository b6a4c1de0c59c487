"""One transactional id, event by event."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from penstock.log.errors import ErrorCode, LogError
from penstock.log.transactions.state_machine import (
    EXPIRY_MS,
    MAX_TIMEOUT_MS,
    Producer,
    Save,
    State,
    Transaction,
    TransactionMachine,
    WriteMarkers,
)

ORDERS, PAYMENTS = ("orders", 0), ("payments", 1)
TIMEOUT = 60_000


class Driven:
    """A machine whose instructions are carried out at once; `marks` are the outcomes that partitions were told."""

    def __init__(self) -> None:
        ids = itertools.count(100)
        self.new_id: Callable[[], int] = lambda: next(ids)
        self.machine = TransactionMachine(Transaction("t", Producer(self.new_id(), -1)))
        self.marks: list[WriteMarkers] = []

    @property
    def state(self) -> State:
        return self.machine.current.state

    def run(self, save: Save | None) -> None:
        while save is not None:
            mark = self.machine.saved()
            self.marks += [mark] if mark else []
            save = self.machine.markers_written(0) if mark else None

    def init(self, claim: Producer | None = None) -> Producer:
        save = self.machine.init(claim, TIMEOUT, 0, self.new_id)
        self.run(save)
        return save.transaction.producer if save.transaction.state is State.EMPTY else self.init(claim)

    def add(self, producer: Producer, *partitions: tuple[str, int], now: int = 0) -> None:
        self.run(self.machine.add(producer, partitions, now))

    def end(self, producer: Producer, commit: bool = True) -> None:
        self.run(self.machine.end(producer, commit, 0))


@pytest.fixture
def driven() -> Driven:
    return Driven()


@contextmanager
def refused(code: ErrorCode) -> Iterator[None]:
    with pytest.raises(LogError) as caught:
        yield
    assert caught.value.code is code


def test_a_new_producer_starts_with_epoch_zero(driven: Driven) -> None:
    assert driven.init() == Producer(100, 0)
    assert driven.state is State.EMPTY


def test_each_init_raises_the_epoch_and_fences_the_producer_before(driven: Driven) -> None:
    old, new = driven.init(), driven.init()
    assert new == Producer(old.id, old.epoch + 1)
    with refused(ErrorCode.producer_fenced):
        driven.add(old, ORDERS)


@pytest.mark.parametrize("timeout", [0, -1, MAX_TIMEOUT_MS + 1])
def test_a_timeout_out_of_range_is_refused(driven: Driven, timeout: int) -> None:
    with refused(ErrorCode.invalid_transaction_timeout):
        driven.machine.init(None, timeout, 0, driven.new_id)


def test_a_commit_is_told_to_every_partition_that_was_added(driven: Driven) -> None:
    producer = driven.init()
    driven.add(producer, ORDERS)
    driven.add(producer, PAYMENTS)
    driven.end(producer)
    assert driven.marks == [WriteMarkers(producer, frozenset({ORDERS, PAYMENTS}), commit=True)]
    assert driven.state is State.COMPLETE_COMMIT


def test_adding_a_partition_again_writes_nothing(driven: Driven) -> None:
    producer = driven.init()
    driven.add(producer, ORDERS, PAYMENTS)
    assert driven.machine.add(producer, [PAYMENTS], 1) is None


def test_the_same_end_again_is_answered_and_the_other_one_refused(driven: Driven) -> None:
    producer = driven.init()
    driven.add(producer, ORDERS)
    driven.end(producer, commit=False)
    assert driven.machine.end(producer, False, 0) is None
    with refused(ErrorCode.invalid_txn_state):
        driven.end(producer, commit=True)


def test_nothing_begun_cannot_be_ended(driven: Driven) -> None:
    with refused(ErrorCode.invalid_txn_state):
        driven.end(driven.init())


def test_requests_are_refused_while_the_markers_are_written(driven: Driven) -> None:
    producer = driven.init()
    driven.add(producer, ORDERS)
    driven.machine.end(producer, True, 0)
    driven.machine.saved()
    for request in (driven.add, driven.end):
        with refused(ErrorCode.concurrent_transactions):
            request(producer)
    with refused(ErrorCode.concurrent_transactions):
        driven.init()
    with refused(ErrorCode.invalid_txn_state):
        driven.end(producer, commit=False)


def test_a_new_producer_aborts_what_the_old_one_left_open_with_an_epoch_between_them(driven: Driven) -> None:
    old = driven.init()
    driven.add(old, ORDERS)
    new = driven.init()
    assert driven.marks == [WriteMarkers(Producer(old.id, old.epoch + 1), frozenset({ORDERS}), commit=False)]
    assert new == Producer(old.id, old.epoch + 2)


def test_a_transaction_that_takes_too_long_is_aborted_and_its_producer_fenced(driven: Driven) -> None:
    producer = driven.init()
    driven.add(producer, ORDERS, now=1000)
    assert driven.machine.time_out(1000 + TIMEOUT - 1) is None
    driven.run(driven.machine.time_out(1000 + TIMEOUT))
    assert driven.state is State.COMPLETE_ABORT
    with refused(ErrorCode.producer_fenced):
        driven.end(producer)


def test_adding_partitions_later_does_not_move_the_deadline(driven: Driven) -> None:
    producer = driven.init()
    driven.add(producer, ORDERS, now=1000)
    driven.add(producer, PAYMENTS, now=50_000)
    assert driven.machine.current.deadline == 1000 + TIMEOUT


def test_a_producer_that_recovers_keeps_its_id_with_a_new_epoch(driven: Driven) -> None:
    producer = driven.init()
    assert driven.init(claim=producer) == Producer(producer.id, producer.epoch + 1)


def test_a_recovery_whose_answer_was_lost_is_answered_the_same_again(driven: Driven) -> None:
    producer = driven.init()
    assert driven.init(claim=producer) == driven.init(claim=producer)


def test_a_recovery_is_fenced_once_another_producer_came(driven: Driven) -> None:
    producer = driven.init()
    driven.init()
    with refused(ErrorCode.producer_fenced):
        driven.init(claim=producer)


def test_a_repeated_recovery_is_fenced_once_the_new_epoch_is_in_use(driven: Driven) -> None:
    producer = driven.init()
    driven.add(driven.init(claim=producer), ORDERS)
    with refused(ErrorCode.producer_fenced):
        driven.init(claim=producer)
    assert driven.state is State.ONGOING


def test_a_fenced_recovery_does_not_abort_what_the_new_producer_does(driven: Driven) -> None:
    old = driven.init()
    driven.add(driven.init(), ORDERS)
    with refused(ErrorCode.producer_fenced):
        driven.init(claim=old)
    assert driven.state is State.ONGOING


def test_a_producer_whose_id_expired_may_recover_with_a_new_id(driven: Driven) -> None:
    assert driven.init(claim=Producer(7, 3)) == Producer(100, 0)


def test_after_the_last_epoch_comes_a_new_producer_id(driven: Driven) -> None:
    last = Producer(5, 0x7FFE)
    driven.machine.current = replace(driven.machine.current, producer=last)
    new = driven.init(claim=last)
    assert new == Producer(101, 0)
    assert driven.init(claim=last) == new
    with refused(ErrorCode.invalid_producer_id_mapping):
        driven.add(last, ORDERS)


def test_the_last_epoch_can_still_be_fenced(driven: Driven) -> None:
    last = Producer(5, 0x7FFE)
    driven.machine.current = replace(driven.machine.current, producer=last)
    driven.add(last, ORDERS)
    assert driven.init() == Producer(101, 0)
    assert driven.marks[0].producer == Producer(5, 0x7FFF)


def test_only_partitions_that_were_added_may_be_written(driven: Driven) -> None:
    producer = driven.init()
    driven.add(producer, ORDERS)
    verify = driven.machine.verify
    assert verify(producer, ORDERS) is None
    assert verify(producer, PAYMENTS) is ErrorCode.invalid_txn_state
    assert verify(Producer(producer.id, 9), ORDERS) is ErrorCode.invalid_producer_epoch
    assert verify(Producer(9, 0), ORDERS) is ErrorCode.invalid_producer_id_mapping


def test_nothing_may_be_written_from_the_moment_of_the_decision(driven: Driven) -> None:
    producer = driven.init()
    driven.add(producer, ORDERS)
    driven.machine.end(producer, True, 0)
    assert driven.machine.verify(producer, ORDERS) is ErrorCode.invalid_txn_state


def test_a_change_that_could_not_be_saved_did_not_happen(driven: Driven) -> None:
    producer = driven.init()
    driven.add(producer, ORDERS)
    driven.machine.end(producer, True, 0)
    driven.machine.failed()
    assert driven.machine.verify(producer, ORDERS) is None
    driven.end(producer, commit=False)
    assert driven.state is State.COMPLETE_ABORT


def test_a_decision_found_after_a_crash_is_carried_out(driven: Driven) -> None:
    producer = driven.init()
    driven.add(producer, ORDERS)
    driven.machine.end(producer, True, 0)
    driven.machine.saved()
    driven.machine = TransactionMachine(driven.machine.current)
    driven.run(driven.machine.resume())
    assert driven.marks == [WriteMarkers(producer, frozenset({ORDERS}), commit=True)]
    assert driven.state is State.COMPLETE_COMMIT


def test_an_id_that_nobody_used_for_a_week_is_forgotten_but_never_an_open_transaction(driven: Driven) -> None:
    producer = driven.init()
    assert driven.machine.expire(EXPIRY_MS - 1) is None
    save = driven.machine.expire(EXPIRY_MS)
    assert save is not None
    assert save.transaction.state is State.DEAD
    driven.machine.failed()
    driven.add(producer, ORDERS)
    assert driven.machine.expire(2 * EXPIRY_MS) is None
