"""One manager at a time: leases, their tokens, and the fence that keeps an older manager from writing."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from penstock.control.store.repositories.jobs import Job
from penstock.control.store.repositories.leases import MANAGER
from penstock.control.store.store import Store
from penstock.errors import Fenced


def test_a_lease_has_one_holder(store: Store) -> None:
    assert store.leases.find(MANAGER) is None
    assert store.leases.acquire(MANAGER, "first", 60) == 1
    assert store.leases.acquire(MANAGER, "second", 60) is None
    assert store.leases.acquire(MANAGER, "first", 60) is None
    assert store.leases.acquire("other", "second", 60) == 1
    lease = store.leases.find(MANAGER)
    assert lease is not None
    assert (lease.holder, lease.token) == ("first", 1)
    assert 50 < lease.remaining <= 60


def test_an_expired_lease_is_taken_with_a_larger_token(store: Store) -> None:
    assert store.leases.acquire(MANAGER, "first", 0) == 1
    assert store.leases.acquire(MANAGER, "second", 60) == 2
    assert not store.leases.renew(MANAGER, 1, 60)
    assert not store.leases.release(MANAGER, 1)
    assert store.leases.renew(MANAGER, 2, 60)


def test_a_holder_that_was_late_keeps_a_lease_that_nobody_took(store: Store) -> None:
    assert store.leases.acquire(MANAGER, "first", 0) == 1
    assert store.leases.renew(MANAGER, 1, 60)
    assert store.leases.acquire(MANAGER, "second", 60) is None


def test_the_token_of_a_released_lease_goes_on(store: Store) -> None:
    assert store.leases.acquire(MANAGER, "first", 60) == 1
    assert store.leases.release(MANAGER, 1)
    assert store.leases.acquire(MANAGER, "second", 60) == 2


def test_the_lease_of_a_dead_holder_is_taken_before_it_expires(store: Store) -> None:
    assert store.leases.acquire(MANAGER, "first", 60) == 1
    assert store.leases.acquire(MANAGER, "second", 60, replaces=1) == 2
    assert store.leases.acquire(MANAGER, "third", 60, replaces=1) is None


def test_of_many_managers_one_gets_the_lease(store: Store) -> None:
    """Every round the lease is free, and 8 threads want it."""
    with ThreadPoolExecutor(8) as threads:
        for round_ in range(1, 6):
            barrier = Barrier(8)

            def acquire(number: int, barrier: Barrier = barrier) -> int | None:
                barrier.wait()
                return store.leases.acquire(MANAGER, f"manager {number}", 60)

            tokens = [token for token in threads.map(acquire, range(8)) if token is not None]
            assert tokens == [round_]
            store.leases.release(MANAGER, round_)


def test_a_manager_writes_with_its_token(store: Store) -> None:
    token = store.leases.acquire(MANAGER, "first", 60)
    with store.begin(token) as write:
        write.jobs.create(Job(id="a", name="first"))
        write.transitions.add("a", None, "CREATED", "submitted")
    assert store.jobs.get("a").state == "CREATED"


def test_a_manager_whose_lease_was_taken_writes_nothing(store: Store) -> None:
    old = store.leases.acquire(MANAGER, "first", 0)
    new = store.leases.acquire(MANAGER, "second", 60)
    store.jobs.create(Job(id="a", name="first"))
    with pytest.raises(Fenced, match="token 1 is old"), store.begin(old) as write:
        write.jobs.update("a", state="FAILED")
    assert store.jobs.get("a").state == "CREATED"
    with store.begin(new) as write:
        write.jobs.update("a", state="RUNNING")
    assert store.jobs.get("a").state == "RUNNING"


def test_a_token_that_nobody_ever_had_is_fenced(store: Store) -> None:
    with pytest.raises(Fenced), store.begin(1):
        pass


def test_a_lease_is_not_taken_while_its_holder_writes(store_url: str, store: Store) -> None:
    """Otherwise the old manager's writes could become visible after the new one has read."""
    old = store.leases.acquire(MANAGER, "first", 0)
    store.jobs.create(Job(id="a", name="first"))
    with Store(store_url) as other, ThreadPoolExecutor(1) as thread:
        with store.begin(old) as write:
            write.jobs.update("a", state="RUNNING")
            taking = thread.submit(other.leases.acquire, MANAGER, "second", 60)
            with pytest.raises(TimeoutError):
                taking.result(timeout=0.2)
        assert taking.result(timeout=30) == 2
        assert other.jobs.get("a").state == "RUNNING"


def test_what_a_transaction_wrote_is_gone_after_an_error(store: Store) -> None:
    store.jobs.create(Job(id="a", name="first"))

    def interrupted() -> None:
        with store.begin() as write:
            write.jobs.update("a", state="RUNNING")
            write.commands.add("a", "stop")
            assert write.jobs.get("a").state == "RUNNING"
            raise InterruptedError

    with pytest.raises(InterruptedError):
        interrupted()
    assert store.jobs.get("a").state == "CREATED"
    assert store.commands.open() == []


def test_writers_in_many_threads_wait_for_each_other(store: Store) -> None:
    store.jobs.create(Job(id="a", name="first"))

    def add(number: int) -> None:
        with store.begin() as write:
            write.jobs.update("a", restarts=number)
            write.commands.add("a", "stop", {"number": number})

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(add, range(40)))
    assert {command.arguments["number"] for command in store.commands.open()} == set(range(40))
