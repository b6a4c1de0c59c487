"""Requests that arrive share a bounded memory, and somebody can always go on."""

from __future__ import annotations

from itertools import pairwise

from penstock.log.network.limits import RequestMemory


class Client:
    """One whose request arrives."""

    def __init__(self, memory: RequestMemory) -> None:
        self._memory = memory
        self.waits = False

    def hold(self, size: int) -> bool:
        self.waits = self._memory.reserve(self._go_on, size)
        return self.waits

    def _go_on(self) -> None:
        self.waits = False


def test_below_the_bound_nobody_waits() -> None:
    memory = RequestMemory(100)
    assert [Client(memory).hold(50) for _ in range(2)] == [False, False]


def test_who_exceeds_the_bound_waits_until_another_is_done() -> None:
    memory = RequestMemory(100)
    first, second = Client(memory), Client(memory)
    assert not first.hold(60)
    assert second.hold(60)
    first.hold(0)
    assert not second.waits
    assert memory.reserved == 60


def test_whose_request_began_first_goes_on_when_all_others_wait() -> None:
    memory = RequestMemory(100)
    clients = [Client(memory) for _ in range(3)]
    assert [client.hold(40) for client in clients] == [False, False, True]
    assert [client.hold(80) for client in clients] == [False, True, True]
    for done, following in pairwise(clients):
        done.hold(0)
        assert not following.waits


def test_one_who_hangs_up_while_waiting_is_forgotten() -> None:
    memory = RequestMemory(100)
    first, second, third = (Client(memory) for _ in range(3))
    assert [first.hold(90), second.hold(90), third.hold(90)] == [False, True, True]
    second.hold(0)
    assert third.waits
    first.hold(0)
    assert not third.waits
    assert memory.reserved == 90
