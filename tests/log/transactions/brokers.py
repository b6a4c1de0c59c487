"""Brokers for tests: time stands still until it is moved, and the disk can be kept as it was at any moment."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from penstock.kafka.records import COMMIT, Record, build_batch, control_outcome, decode_batch
from penstock.log.broker import Broker
from penstock.log.errors import ErrorCode, LogError
from penstock.log.security.setup import Security
from penstock.log.transactions.state_machine import Producer

TRANSACTIONAL = 0x10


@dataclass
class Planned:
    """A call at a time."""

    at: int
    callback: Callable[[], None]
    cancelled: bool = False

    def cancel(self) -> None:
        self.cancelled = True


class Still(Broker):
    """A broker whose clock is moved by hand. `refuses` names partitions on which the disk is full."""

    def __init__(self, folder: Path, security: Security | None = None) -> None:
        self.now = 1_000_000
        self.planned: list[Planned] = []
        self.refuses: set[tuple[str, int]] = set()
        super().__init__(folder, sync="none", security=security, clock=lambda: self.now)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Planned:
        self.planned.append(Planned(self.now + int(seconds * 1000), callback))
        return self.planned[-1]

    async def write(self, topic: str, index: int, batch: bytearray) -> int:
        if (topic, index) in self.refuses:
            raise LogError(ErrorCode.kafka_storage_error, "no space left on device")
        return await super().write(topic, index, batch)

    async def advance(self, ms: int) -> None:
        """Let time pass and what is due happen."""
        self.now += ms
        due = [each for each in self.planned if each.at <= self.now]
        self.planned = [each for each in self.planned if each.at > self.now]
        for each in due:
            if not each.cancelled:
                each.callback()
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(others)


class Filmed(Still):
    """Keeps a copy of the data folder before and after each write of the coordinators, as kill -9 would leave it."""

    def __init__(self, folder: Path, film: Path) -> None:
        super().__init__(folder)
        self.film = film
        self.frames: list[Path] = []

    async def write(self, topic: str, index: int, batch: bytearray) -> int:
        self.shoot()
        try:
            return await super().write(topic, index, batch)
        finally:
            self.shoot()

    def shoot(self) -> None:
        self.frames.append(self.film / str(len(self.frames)))
        shutil.copytree(self.store.folder, self.frames[-1])


@asynccontextmanager
async def running(broker: Still) -> AsyncIterator[Still]:
    """Start a broker and stop it at the end."""
    await broker.start()
    try:
        yield broker
    finally:
        broker.refuses = set()
        await broker.stop()


def produce(broker: Broker, transactional_id: str, producer: Producer, place: tuple[str, int], sequence: int) -> None:
    """Append one record of a transaction as the produce request does."""
    code = broker.transactions.verify(transactional_id, *producer, *place)
    if code is not None:
        raise LogError(code)
    batch = build_batch(
        [Record(None, str(sequence).encode(), timestamp=broker.clock())],
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        base_sequence=sequence,
        attributes=TRANSACTIONAL,
    )
    partition = broker.store.partition(*place)
    broker.append(partition, batch)
    broker.when_durable(partition, lambda _: None)


def committed(broker: Broker, place: tuple[str, int]) -> list[int]:
    """What a reader of committed records sees; every transaction has to be decided."""
    partition = broker.store.partition(*place)
    assert partition.last_stable_offset == partition.end, "a transaction is open"
    seen: list[int] = []
    undecided: dict[int, list[int]] = {}
    for batch, data in partition.batches():
        if not batch.is_control:
            undecided.setdefault(batch.producer_id, []).extend(int(each.value or b"") for each in decode_batch(data))
        elif control_outcome(data) == COMMIT:
            seen += undecided.pop(batch.producer_id, [])
        else:
            undecided.pop(batch.producer_id, None)
    return seen
