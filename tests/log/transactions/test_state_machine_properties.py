"""Promise: whatever two producers do at once and wherever the broker dies, a transaction ends one way, everywhere."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.log.errors import LogError
from penstock.log.transactions.state_machine import Producer, Save, State, Transaction, TransactionMachine, WriteMarkers

PARTITIONS = [("orders", 0), ("orders", 1), ("payments", 0)]
FAR = 10**9
MANY = 20  # more than any request needs
AGES = st.sampled_from([0, 0, 1, 2])
SETS = st.sets(st.sampled_from(PARTITIONS), min_size=1)
STEPS = st.one_of(st.just(MANY), st.integers(0, 6))


class Coordinator(RuleBasedStateMachine):
    """The machine, a disk that keeps what was saved, and partitions that keep data and markers of each round.

    A round is one transaction: it ends with the record that says so.
    """

    def __init__(self) -> None:
        super().__init__()
        self.ids = count(1)
        self.machine = TransactionMachine(Transaction("t", Producer(next(self.ids), -1)))
        self.disk = self.machine.current
        self.save: Save | None = None
        self.mark: WriteMarkers | None = None
        self.untold: list[tuple[str, int]] = []
        self.answer: Callable[[], None] = lambda: None
        self.issued: list[Producer] = []
        self.round = 0
        self.outcomes: dict[int, bool] = {}
        self.logs: dict[tuple[str, int], list[tuple[str, int, Any]]] = {each: [] for each in PARTITIONS}

    # what producers ask, the newest one or one before it; the broker then does the next few things it has to do

    @initialize()
    def begin(self) -> None:
        self.init(claims=False, age=0, steps=MANY)

    @rule(claims=st.booleans(), age=AGES, steps=STEPS)
    def init(self, claims: bool, age: int, steps: int) -> None:
        claim = self.holder(age) if claims else None
        self.ask(lambda: self.machine.init(claim, 60_000, 0, lambda: next(self.ids)), steps, self.give)

    @rule(age=AGES, partitions=SETS, steps=STEPS)
    def add(self, age: int, partitions: set[tuple[str, int]], steps: int) -> None:
        self.ask(lambda: self.machine.add(self.holder(age), partitions, 0), steps)

    @rule(age=AGES)
    def write_wherever_allowed(self, age: int) -> None:
        for partition, log in self.logs.items():
            if self.machine.verify(self.holder(age), partition) is None:
                log.append(("data", self.round, self.holder(age)))

    @rule(age=AGES, commit=st.booleans(), steps=STEPS)
    def end(self, age: int, commit: bool, steps: int) -> None:
        self.ask(lambda: self.machine.end(self.holder(age), commit, 0), steps)

    @rule(partitions=SETS, commit=st.booleans(), steps=STEPS)
    def transact(self, partitions: set[tuple[str, int]], commit: bool, steps: int) -> None:
        self.add(0, partitions, MANY)
        self.write_wherever_allowed(0)
        self.end(0, commit, steps)

    @rule(steps=STEPS)
    def time_out(self, steps: int) -> None:
        self.ask(lambda: self.machine.time_out(FAR), steps)

    def ask(self, request: Callable[[], Save | None], steps: int, answer: Callable[[], None] = lambda: None) -> None:
        with suppress(LogError):
            save = request()
            if save is not None:
                assert self.save is None, "a second change while one is being written"
                self.save, self.answer = save, answer
        self.go_on(steps)

    def holder(self, age: int) -> Producer:
        return self.issued[-1 - min(age, len(self.issued) - 1)]

    def give(self) -> None:
        if self.machine.current.state is State.EMPTY:
            self.issued.append(self.machine.current.producer)

    # what the broker does, one instruction at a time

    @rule(steps=STEPS)
    def go_on(self, steps: int) -> None:
        for _ in range(steps):
            if self.save:
                self.written()
            elif self.mark and self.untold:
                self.logs[self.untold.pop()].append(("marker", self.round, self.mark.commit))
            elif self.mark:
                self.save, self.mark = self.machine.markers_written(0), None
            else:
                self.save = self.machine.resume()

    def written(self) -> None:
        assert self.save is not None
        self.store(self.save.transaction)
        self.save, self.mark = None, self.machine.saved()
        self.untold = sorted(self.mark.partitions) if self.mark else []
        self.answer()
        self.answer = lambda: None

    @precondition(lambda self: self.save)
    @rule()
    def refused_by_the_disk(self) -> None:
        self.save = None
        self.machine.failed()

    @rule(reached_the_disk=st.booleans())
    def killed(self, reached_the_disk: bool) -> None:
        if self.save and reached_the_disk:
            self.store(self.save.transaction)
        self.save = self.mark = None
        self.answer = lambda: None
        self.machine = TransactionMachine(self.disk)
        self.save = self.machine.resume()

    def store(self, transaction: Transaction) -> None:
        self.disk = transaction
        if transaction.state.is_decided:
            decided = transaction.state is State.PREPARE_COMMIT
            assert self.outcomes.setdefault(self.round, decided) is decided, "the outcome was changed"
        if transaction.state in (State.COMPLETE_COMMIT, State.COMPLETE_ABORT):
            assert self.outcomes[self.round] is (transaction.state is State.COMPLETE_COMMIT)
            self.round += 1

    def entries(self) -> list[tuple[str, int, Any]]:
        return [entry for log in self.logs.values() for entry in log]

    # what must hold

    @invariant()
    def only_the_newest_producer_may_write(self) -> None:
        for old in set(self.issued[:-1]) - set(self.issued[-1:]):
            assert all(self.machine.verify(old, partition) is not None for partition in PARTITIONS)

    @invariant()
    def markers_of_one_transaction_agree(self) -> None:
        for kind, at, outcome in self.entries():
            assert kind == "data" or self.outcomes[at] is outcome

    @invariant()
    def no_data_follows_the_marker_of_its_transaction(self) -> None:
        for log in self.logs.values():
            ended: set[int] = set()
            for kind, at, _ in log:
                assert kind == "marker" or at not in ended
                ended |= {at} if kind == "marker" else set()

    def teardown(self) -> None:
        self.killed(reached_the_disk=False)
        self.go_on(MANY)
        self.time_out(MANY)
        for log in self.logs.values():
            ended = {at for kind, at, _ in log if kind == "marker"}
            assert {at for kind, at, _ in log if kind == "data"} <= ended, "a transaction was left open"


TestCoordinator = Coordinator.TestCase
TestCoordinator.settings = settings(max_examples=100, stateful_step_count=25, deadline=None)
