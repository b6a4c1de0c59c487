"""The transaction coordinator: runs the state machines, writes transaction log and markers, allocates producer ids."""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Collection, Coroutine
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.errors import SettingsError
from penstock.kafka.records import ABORT, COMMIT, build_batch, build_control_batch, decode_batch
from penstock.log.configs.topic import CONSUMER_OFFSETS, TRANSACTION_STATE
from penstock.log.errors import ErrorCode, LogError
from penstock.log.storage.segments.files import write_atomically
from penstock.log.transactions.formats import decode, encode
from penstock.log.transactions.state_machine import Producer, Save, State, TopicPartition, Transaction, WriteMarkers
from penstock.log.transactions.state_machine import TransactionMachine as Machine

if TYPE_CHECKING:
    from penstock.log.broker import Broker, Timer

_BLOCK = 1000
log = logging.getLogger("penstock.log")
TOPIC = TRANSACTION_STATE
OFFSETS: TopicPartition = (CONSUMER_OFFSETS, 0)
_RETRY_SECONDS = 1.0
_SWEEP_SECONDS = 3600.0


class ProducerIds:
    """Allocates ids from blocks that are reserved in a small file; a crash wastes the rest of a block."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._next = self._reserved = self._read()

    def take(self) -> int:
        """Return an id that was never used."""
        if self._next >= self._reserved:
            self._reserve(self._next + _BLOCK)
        self._next += 1
        return self._next - 1

    def _reserve(self, end: int) -> None:
        try:
            write_atomically(self._path, str(end).encode())
        except OSError as error:
            raise LogError(ErrorCode.kafka_storage_error, f"cannot write {self._path.name}: {error}") from error
        self._reserved = end

    def _read(self) -> int:
        try:
            return int(self._path.read_text())
        except FileNotFoundError:
            return 0
        except ValueError:
            message = f"{self._path} should hold the next free producer id, a number"
            raise SettingsError(message, hint="write a number into it that is larger than any allocated id") from None


class TransactionCoordinator:
    """Serves all requests of transactional producers. Refusals are `LogError`s with Kafka's codes.

    An accepted request is completed even if the client disconnects.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._ids = ProducerIds(broker.store.folder / "producer-ids")
        self._machines: dict[str, Machine] = {}
        self._timers: dict[str, Timer] = {}
        self._sweeper: Timer | None = None
        self._work: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Replay the transaction log, and complete transactions that were prepared before a crash."""
        self._replay()
        for machine in self._machines.values():
            self._schedule(machine)
        resumed = [(machine, machine.resume()) for machine in self._machines.values()]
        await asyncio.gather(*(self._run_quietly(machine, save) for machine, save in resumed if save))
        self._sweep()

    async def stop(self) -> None:
        """Finish pending work and cancel the timers."""
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
            await self._run_shielded(machine, save)
            if save.transaction.state is State.EMPTY:
                return save.transaction.producer

    async def add_partitions(
        self, transactional_id: str, producer: Producer, partitions: Collection[TopicPartition]
    ) -> None:
        """Add partitions to the producer's transaction."""
        machine = self._machine(transactional_id)
        await self._run_shielded(machine, machine.add(producer, partitions, self._broker.clock()))

    async def add_offsets(self, transactional_id: str, producer: Producer) -> None:
        """Add the offsets of consumer groups to the producer's transaction."""
        await self.add_partitions(transactional_id, producer, [OFFSETS])

    async def end(self, transactional_id: str, producer: Producer, commit: bool) -> None:
        """Commit or abort; returns when the outcome is in the log and, unless a write fails, in every partition."""
        machine = self._machine(transactional_id)
        await self._run_shielded(machine, machine.end(producer, commit, self._broker.clock()))

    def verify(
        self, transactional_id: str, producer_id: int, producer_epoch: int, topic: str, partition: int
    ) -> ErrorCode | None:
        """Return why a transactional batch must be refused; after None, append without an await in between."""
        machine = self._machines.get(transactional_id)
        if machine is None:
            return ErrorCode.invalid_producer_id_mapping
        return machine.verify(Producer(producer_id, producer_epoch), (topic, partition))

    def find(self, transactional_id: str) -> Transaction | None:
        """Return the transaction of a transactional id."""
        machine = self._machines.get(transactional_id)
        return machine.current if machine and machine.current.producer.epoch >= 0 else None

    def all(self) -> list[Transaction]:
        """Return the transactions of all transactional ids."""
        return [found for found in map(self.find, self._machines) if found]

    def _new(self, transactional_id: str) -> Machine:
        return Machine(Transaction(transactional_id, Producer(self._take_id(), -1)))

    def _take_id(self) -> int:
        try:
            return self._ids.take()
        except LogError as error:
            # Clients retry after this code.
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
                # Before the name was reserved, clients could write anything to this topic.
                message = "%s: the records from offset %d on are not the broker's own, skipped: %s"
                log.error(message, TOPIC, batch.base_offset, error)

    def _learn(self, data: memoryview) -> None:
        for transactional_id, transaction in map(decode, decode_batch(data)):
            self._machines.pop(transactional_id, None)
            if transaction is not None:
                self._machines[transactional_id] = Machine(transaction)

    async def _run_shielded(self, machine: Machine, save: Save | None) -> None:
        if save is not None:
            await asyncio.shield(self._spawn(self._run(machine, save)))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._work.add(task)
        task.add_done_callback(self._work.discard)
        return task

    async def _run(self, machine: Machine, save: Save) -> None:
        try:
            markers = await self._save(machine, save)
            if markers is not None:
                # From here on the outcome is final: a failure only delays the markers, and is not the client's.
                with suppress(LogError):
                    await self._write_markers(markers)
                    await self._save(machine, machine.markers_written(self._broker.clock()))
        finally:
            self._schedule(machine)

    async def _run_quietly(self, machine: Machine, save: Save) -> None:
        with suppress(LogError):  # the timer retries
            await self._run(machine, save)

    async def _save(self, machine: Machine, save: Save) -> WriteMarkers | None:
        try:
            await self._write(save.transaction)
        except BaseException:  # also a cancellation: the pending change must not block the machine
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
            # Clients retry after this code.
            raise LogError(ErrorCode.coordinator_not_available, error.message) from error

    async def _write_markers(self, markers: WriteMarkers) -> None:
        writes = (self._write_marker(markers, *each) for each in sorted(markers.partitions))
        for failure in await asyncio.gather(*writes, return_exceptions=True):
            if failure is not None:
                raise failure

    async def _write_marker(self, markers: WriteMarkers, topic: str, partition: int) -> None:
        marker = build_control_batch(COMMIT if markers.commit else ABORT, *markers.producer, self._broker.clock())
        try:
            await self._broker.write(topic, partition, marker)
        except LogError as error:
            # A topic that was deleted in the meantime needs no marker.
            if error.code is not ErrorCode.unknown_topic_or_partition:
                raise
        if (topic, partition) == OFFSETS:
            self._broker.groups.end_offsets(markers.producer.id, markers.commit)

    def _schedule(self, machine: Machine) -> None:
        transactional_id, deadline = machine.current.transactional_id, machine.current.deadline
        if timer := self._timers.pop(transactional_id, None):
            timer.cancel()
        if deadline is not None or machine.current.state.is_decided:
            left = ((deadline or 0) - self._broker.clock()) / 1000
            wake = partial(self._on_timer, machine)
            self._timers[transactional_id] = self._broker.call_later(max(left, _RETRY_SECONDS), wake)

    def _on_timer(self, machine: Machine) -> None:
        save = machine.time_out(self._broker.clock()) or machine.resume()
        if save is None:
            self._schedule(machine)
        else:
            self._spawn(self._run_quietly(machine, save))

    def _sweep(self) -> None:
        for machine in list(self._machines.values()):
            if save := machine.expire(self._broker.clock()):
                self._spawn(self._run_quietly(machine, save))
        self._sweeper = self._broker.call_later(_SWEEP_SECONDS, self._sweep)
