"""Runs the state machines of all transactional ids: writes what they decide, tells the partitions, keeps the time."""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Collection, Coroutine
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.log.errors import ErrorCode, LogError
from penstock.log.storage.internal import CONSUMER_OFFSETS, TRANSACTION_STATE
from penstock.log.storage.records import ABORT, COMMIT, build_batch, build_marker, open_batch
from penstock.log.transactions.machine import Mark, Producer, Save, State, TopicPartition, Transaction
from penstock.log.transactions.machine import TransactionMachine as Machine
from penstock.log.transactions.producer_ids import ProducerIds
from penstock.log.transactions.records import decode, encode

if TYPE_CHECKING:
    from penstock.log.broker import Broker, Timer

log = logging.getLogger("penstock.log")
TOPIC = TRANSACTION_STATE
OFFSETS: TopicPartition = (CONSUMER_OFFSETS, 0)
_RETRY_SECONDS = 1.0
_SWEEP_SECONDS = 3600.0


class TransactionCoordinator:
    """Everything a transactional producer asks for. Refusals are `LogError`s with Kafka's codes.

    A request that was accepted is carried out to its end even if the client hangs up meanwhile.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._ids = ProducerIds(broker.store.folder / "producer-ids")
        self._machines: dict[str, Machine] = {}
        self._timers: dict[str, Timer] = {}
        self._sweeper: Timer | None = None
        self._work: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Learn from the transaction log, and finish what was decided before a crash."""
        self._replay()
        for machine in self._machines.values():
            self._arm(machine)
        resumed = [(machine, machine.resume()) for machine in self._machines.values()]
        await asyncio.gather(*(self._run_quietly(machine, save) for machine, save in resumed if save))
        self._sweep()

    async def stop(self) -> None:
        """Let what is under way come to its end, and start nothing more."""
        while self._work:
            await asyncio.gather(*self._work, return_exceptions=True)
        for timer in (*self._timers.values(), *([self._sweeper] if self._sweeper else [])):
            timer.cancel()

    async def init_producer_id(
        self, transactional_id: str | None, timeout: int = 0, claim: Producer | None = None
    ) -> Producer:
        """Return a producer id and epoch; with a transactional id all earlier producers of it are fenced."""
        if transactional_id is None:
            return Producer(self._ids.take(), 0)
        while True:
            machine = self._machines.get(transactional_id) or self._new(transactional_id)
            save = machine.init(claim, timeout, self._broker.clock(), self._take_id)
            self._machines[transactional_id] = machine
            await self._carry_out(machine, save)
            if save.transaction.state is State.EMPTY:
                return save.transaction.producer

    async def add_partitions(
        self, transactional_id: str, producer: Producer, partitions: Collection[TopicPartition]
    ) -> None:
        """Make partitions part of the producer's transaction."""
        machine = self._machine(transactional_id)
        await self._carry_out(machine, machine.add(producer, partitions, self._broker.clock()))

    async def add_offsets(self, transactional_id: str, producer: Producer) -> None:
        """Make the offsets of consumer groups part of the producer's transaction."""
        await self.add_partitions(transactional_id, producer, [OFFSETS])

    async def end(self, transactional_id: str, producer: Producer, commit: bool) -> None:
        """Commit or abort; returns when the decision is in the log and, unless the disk fails, in every partition."""
        machine = self._machine(transactional_id)
        await self._carry_out(machine, machine.end(producer, commit, self._broker.clock()))

    def verify(
        self, transactional_id: str, producer_id: int, producer_epoch: int, topic: str, partition: int
    ) -> ErrorCode | None:
        """Say why a transactional batch must be refused; append at once after None, without an await between."""
        machine = self._machines.get(transactional_id)
        if machine is None:
            return ErrorCode.invalid_producer_id_mapping
        return machine.verify(Producer(producer_id, producer_epoch), (topic, partition))

    def find(self, transactional_id: str) -> Transaction | None:
        """Return what is known of a transactional id."""
        machine = self._machines.get(transactional_id)
        return machine.current if machine and machine.current.producer.epoch >= 0 else None

    def all(self) -> list[Transaction]:
        """Return what is known of every transactional id."""
        return [found for found in map(self.find, self._machines) if found]

    def _new(self, transactional_id: str) -> Machine:
        return Machine(Transaction(transactional_id, Producer(self._take_id(), -1)))

    def _take_id(self) -> int:
        try:
            return self._ids.take()
        except LogError as error:
            # The code that lets clients ask again.
            raise LogError(ErrorCode.coordinator_not_available, error.message) from error

    def _machine(self, transactional_id: str) -> Machine:
        machine = self._machines.get(transactional_id)
        if machine is None:
            raise LogError(ErrorCode.invalid_producer_id_mapping, f"no producer has initialised {transactional_id!r}")
        return machine

    def _replay(self) -> None:
        if TOPIC not in self._broker.store.topics:
            return
        for batch, data in self._broker.store.partition(TOPIC, 0).batches():
            try:
                self._learn(data)
            except (LogError, struct.error, ValueError) as error:
                # While the name was not reserved, clients could write anything here; nothing of that is ours.
                message = "%s: the records from offset %d on are not the broker's own, skipped: %s"
                log.error(message, TOPIC, batch.base_offset, error)

    def _learn(self, data: memoryview) -> None:
        for transactional_id, transaction in map(decode, open_batch(data)):
            self._machines.pop(transactional_id, None)
            if transaction is not None:
                self._machines[transactional_id] = Machine(transaction)

    async def _carry_out(self, machine: Machine, save: Save | None) -> None:
        if save is not None:
            await asyncio.shield(self._spawn(self._run(machine, save)))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._work.add(task)
        task.add_done_callback(self._work.discard)
        return task

    async def _run(self, machine: Machine, save: Save) -> None:
        try:
            mark = await self._save(machine, save)
            if mark is not None:
                # From here on the outcome stands: a failure delays the markers and is not the client's.
                with suppress(LogError):
                    await self._tell_partitions(mark)
                    await self._save(machine, machine.marked(self._broker.clock()))
        finally:
            self._arm(machine)

    async def _run_quietly(self, machine: Machine, save: Save) -> None:
        with suppress(LogError):  # the timer tries again
            await self._run(machine, save)

    async def _save(self, machine: Machine, save: Save) -> Mark | None:
        try:
            await self._write(save.transaction)
        except BaseException:
            machine.failed()
            raise
        if save.transaction.state is State.DEAD:
            del self._machines[save.transaction.transactional_id]
        return machine.saved()

    async def _write(self, transaction: Transaction) -> None:
        record = encode(transaction, self._broker.clock())
        try:
            self._broker.store.create_internal(TOPIC)
            await self._broker.write(TOPIC, 0, build_batch([record]))
        except LogError as error:
            # The code that lets clients ask again.
            raise LogError(ErrorCode.coordinator_not_available, error.message) from error

    async def _tell_partitions(self, mark: Mark) -> None:
        told = (self._tell(mark, *each) for each in sorted(mark.partitions))
        for failure in await asyncio.gather(*told, return_exceptions=True):
            if failure is not None:
                raise failure

    async def _tell(self, mark: Mark, topic: str, partition: int) -> None:
        marker = build_marker(COMMIT if mark.commit else ABORT, *mark.producer, self._broker.clock())
        try:
            await self._broker.write(topic, partition, marker)
        except LogError as error:
            # A topic that was deleted meanwhile has nobody left to tell.
            if error.code is not ErrorCode.unknown_topic_or_partition:
                raise
        if (topic, partition) == OFFSETS:
            self._broker.groups.end_offsets(mark.producer.id, mark.commit)

    def _arm(self, machine: Machine) -> None:
        transactional_id, deadline = machine.current.transactional_id, machine.current.deadline
        if timer := self._timers.pop(transactional_id, None):
            timer.cancel()
        if deadline is not None or machine.current.state.is_decided:
            left = ((deadline or 0) - self._broker.clock()) / 1000
            wake = partial(self._wake, machine)
            self._timers[transactional_id] = self._broker.call_later(max(left, _RETRY_SECONDS), wake)

    def _wake(self, machine: Machine) -> None:
        save = machine.time_out(self._broker.clock()) or machine.resume()
        if save is None:
            self._arm(machine)
        else:
            self._spawn(self._run_quietly(machine, save))

    def _sweep(self) -> None:
        for machine in list(self._machines.values()):
            if save := machine.expire(self._broker.clock()):
                self._spawn(self._run_quietly(machine, save))
        self._sweeper = self._broker.call_later(_SWEEP_SECONDS, self._sweep)
