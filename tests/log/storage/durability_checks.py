"""What a log promises, noted while a story happens, and judged on a broker that has recovered from a crash."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from penstock.kafka.records import Record, build_batch
from penstock.log.errors import LogError
from penstock.log.groups.formats import Committed
from penstock.log.transactions.state_machine import Producer
from tests.log.storage.held_scrub import scrubbing
from tests.log.storage.logs import consumed
from tests.log.transactions.brokers import TRANSACTIONAL, Still, committed

Place = tuple[str, int]
_IN_FLIGHT = 5


class Tried(NamedTuple):
    """A batch was sent; it may be there or not. Whoever sends it again sends the same sequence."""

    place: Place
    producer: int
    sequence: int
    key: str
    value: str


class Stored(NamedTuple):
    """A batch was acknowledged at an offset."""

    tried: Tried
    offset: int


class Dropping(NamedTuple):
    """Records before an offset may be gone: retention or a client is deleting them."""

    place: Place
    before: int


class Dropped(NamedTuple):
    """A client was answered that they are gone."""

    place: Place
    before: int


class Advanced(NamedTuple):
    """A group's commit was sent, or acknowledged."""

    group: str
    place: Place
    offset: int
    acknowledged: bool


class Ended(NamedTuple):
    """The end of a transaction was asked for, or acknowledged."""

    number: int
    commit: bool
    acknowledged: bool


class Existence(NamedTuple):
    """A topic was created or deleted; None while that is under way."""

    topic: str
    exists: bool | None


class ProducerId(NamedTuple):
    """An id was given out."""

    number: int


class Durable(Still):
    """A broker that acknowledges what is on disk."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.sync = "always"


@asynccontextmanager
async def durable(folder: Path) -> Any:
    """Start a broker on a folder and stop it."""
    broker = Durable(folder)
    await broker.start()
    try:
        yield broker
    finally:
        await broker.stop()


def batch_of(tried: Tried, now: int) -> bytearray:
    """Return the batch that a producer sends, each time it tries."""
    record = Record(tried.key.encode(), tried.value.encode(), timestamp=now)
    return build_batch([record], producer_id=tried.producer, producer_epoch=0, base_sequence=tried.sequence)


def send(broker: Still, tried: Tried) -> tuple[int, asyncio.Future[None]]:
    """Let a producer send a batch; return its offset, and what is done when the log acknowledges it."""
    return append(broker, tried.place, batch_of(tried, broker.now))


def append(broker: Still, place: Place, batch: bytearray) -> tuple[int, asyncio.Future[None]]:
    """Append a batch as the produce request does."""
    partition = broker.store.partition(*place)
    appended = broker.append(partition, batch)
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    broker.when_durable(partition, partial(_settle, done))
    return appended.base_offset, done


def _settle(done: asyncio.Future[None], error: OSError | None) -> None:
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)


class Judge:
    """Compares a recovered broker with the facts; `findings` is what it found wrong."""

    def __init__(self, broker: Still, facts: Sequence[Any]) -> None:
        self._broker = broker
        self._facts = facts
        self.findings: list[str] = []

    async def run(self) -> list[str]:
        """Judge everything, let producers send again what was not acknowledged, and judge once more."""
        self._topics()
        for place, facts in self._batches().items():
            if place[0] in self._broker.store.topics:
                self._partition(place, facts)
                await self._retry(place, facts)
                self._partition(place, facts)
            elif self._existence().get(place[0], True):
                self.findings.append(f"{place} is gone")
        self._offsets()
        await self._transactions()
        self._producer_ids()
        return self.findings

    def _of(self, kind: type[Any]) -> Iterator[Any]:
        return (fact for fact in self._facts if isinstance(fact, kind))

    def _existence(self) -> dict[str, bool | None]:
        return {fact.topic: fact.exists for fact in self._of(Existence)}

    def _topics(self) -> None:
        for topic, exists in self._existence().items():
            if exists is not None and exists != (topic in self._broker.store.topics):
                self.findings.append(f"topic {topic}: exists should be {exists}")

    def _batches(self) -> dict[Place, list[Any]]:
        """Return what was sent to each partition of each topic's present life."""
        found: dict[Place, list[Any]] = {}
        for fact in self._facts:
            match fact:
                case Tried(place) | Stored(Tried(place)) | Dropping(place) | Dropped(place):
                    found.setdefault(place, []).append(fact)
                case Existence(topic, exists) if exists is not True:
                    found = {place: facts for place, facts in found.items() if place[0] != topic}
        return found

    def _partition(self, place: Place, facts: list[Any]) -> None:
        partition = self._broker.store.partition(*place)
        try:
            records = consumed(partition)
        except LogError as error:
            self.findings.append(f"{place} cannot be read: {error.message}")
            return
        seen = {record.offset: (record.value or b"").decode() for record in records}
        values = list(seen.values())
        if len(set(values)) < len(values):
            self.findings.append(f"{place} holds a record twice: {values}")
        if strange := set(values) - {fact.value for fact in facts if isinstance(fact, Tried)}:
            self.findings.append(f"{place} holds what nobody sent: {strange}")
        self._check_stored(place, facts, seen)
        if (
            start := max((fact.before for fact in facts if isinstance(fact, Dropped)), default=0)
        ) > partition.log_start:
            self.findings.append(
                f"{place} starts at {partition.log_start}, although records before {start} were deleted"
            )

    def _check_stored(self, place: Place, facts: list[Any], seen: dict[int, str]) -> None:
        may_be_gone = max((fact.before for fact in facts if isinstance(fact, Dropping)), default=0)
        stored = [fact for fact in facts if isinstance(fact, Stored)]
        compacted = self._broker.store.topic(place[0]).compacted
        if compacted:
            newest = {fact.tried.key: fact for fact in stored}
            offsets = {fact.value: offset for offset, value in seen.items() for fact in facts if _sent(fact, value)}
            keys = {fact.value: fact.key for fact in facts if isinstance(fact, Tried)}
            last = {keys[value]: offset for value, offset in offsets.items()}
            lost = [fact for key, fact in newest.items() if last.get(key, -1) < fact.offset]
        else:
            lost = [fact for fact in stored if fact.offset >= may_be_gone and seen.get(fact.offset) != fact.tried.value]
        if lost:
            self.findings.append(f"{place} lost {lost[0]} of {len(lost)}; it holds {list(seen.items())[-3:]}")

    async def _retry(self, place: Place, facts: list[Any]) -> None:
        """Send again, in order, what the producer still waits for, after the last acknowledged batch."""
        stored = {fact.tried: fact.offset for fact in facts if isinstance(fact, Stored)}
        tried = [fact for fact in facts if isinstance(fact, Tried)]
        start = max((at + 1 for at, fact in enumerate(tried) if fact in stored), default=0)
        for fact in [each for each in tried[start:] or tried[-1:] if each.producer == tried[-1].producer]:
            try:
                offset, done = send(self._broker, fact)
                await done
            except LogError as error:
                self.findings.append(f"{place} refuses {fact} when it is sent again: {error.message}")
                return
            if stored.get(fact, offset) != offset:
                self.findings.append(f"{place} stored {fact} at {stored[fact]} and again at {offset}")

    def _offsets(self) -> None:
        for (group, place), facts in self._commits().items():
            if not self._existence().get(place[0], True):
                continue
            found = self._broker.groups.offsets.of(group).get(place, Committed(-1)).offset
            least = max((fact.offset for fact in facts if fact.acknowledged), default=-1)
            if not least <= found <= max((fact.offset for fact in facts), default=-1):
                self.findings.append(f"group {group} is at {found} of {place}, acknowledged was {least}")
        for key in self._broker.groups.offsets.all_keys():
            if key.topic not in self._broker.store.topics:
                self.findings.append(f"{key}: there is no such topic")

    def _commits(self) -> dict[tuple[str, Place], list[Advanced]]:
        """Return what each group committed in each topic's present life."""
        found: dict[tuple[str, Place], list[Advanced]] = {}
        for fact in self._facts:
            match fact:
                case Advanced(group, place):
                    found.setdefault((group, place), []).append(fact)
                case Existence(topic, exists) if exists is not True:
                    found |= {key: [] for key in found if key[1][0] == topic}
        return found

    async def _transactions(self) -> None:
        ended = {(fact.number, fact.acknowledged): fact.commit for fact in self._of(Ended)}
        if not ended:
            return
        await self._broker.transactions.init_producer_id("writer", 60_000)  # ends what is open
        orders, payments = (committed(self._broker, place) for place in (ORDERS, PAYMENTS))
        if orders != payments or len(set(orders)) < len(orders):
            self.findings.append(f"half a transaction: {orders} and {payments}")
        for (number, acknowledged), commit in ended.items():
            if (acknowledged and commit and number not in orders) or (not commit and number in orders):
                self.findings.append(f"transaction {number}, commit={commit}, acknowledged={acknowledged}: {orders}")
        found = self._broker.groups.offsets.of("in-transactions").get(PLAIN, Committed(-1)).offset
        if found != max(orders, default=-1):
            self.findings.append(f"offset {found} of transactions whose last is {max(orders, default=-1)}")

    def _producer_ids(self) -> None:
        given = [fact.number for fact in self._of(ProducerId)]
        if given and self._broker.transactions._ids.take() <= max(given):
            self.findings.append(f"a producer id is given out twice; {max(given)} was")


def _sent(fact: Any, value: str) -> bool:
    return isinstance(fact, Tried) and fact.value == value


PLAIN: Place = ("plain", 0)
COMPACTED: Place = ("compacted", 0)
SHORT: Place = ("short", 0)
PASSING: Place = ("passing", 0)
ORDERS: Place = ("orders", 0)
PAYMENTS: Place = ("payments", 0)


class Narrator:
    """Does to a broker what clients do, and notes what was promised. `mark` takes the facts."""

    def __init__(self, broker: Still, mark: Any, facts: Sequence[Any] = ()) -> None:
        self._broker = broker
        self._mark = mark
        earlier = [fact for fact in facts if isinstance(fact, Tried)]
        self._sequences = {(fact.place, fact.producer): fact.sequence + 1 for fact in earlier}
        self._count = len(earlier)
        self._number = max((fact.number for fact in facts if isinstance(fact, Ended)), default=0)

    async def create(self, topic: str, **config: str) -> None:
        self._mark(Existence(topic, None))
        await self._broker.create_topic(topic, 1, {name.replace("_", "."): value for name, value in config.items()})
        self._mark(Existence(topic, True))

    async def delete(self, topic: str) -> None:
        self._mark(Existence(topic, None))
        self._broker.store.delete_topic(topic)
        await self._broker.groups.forget_topic(topic)
        self._mark(Existence(topic, False))

    async def recreate_during_scrub(self, topic: str) -> None:
        """Delete and create a topic while the files of the deleted one are being read."""
        async with scrubbing(self._broker, topic):
            await self.delete(topic)
            await self.create(topic)
            await self.send((topic, 0))

    async def send(self, place: Place, count: int = 1, size: int = 100, keys: int = 3, producer: int = 1) -> None:
        """Send batches, five of which overlap at a time, as producers do, and wait for all."""
        for start in range(0, count, _IN_FLIGHT):
            await self._send_together(place, min(count - start, _IN_FLIGHT), size, keys, producer)

    async def _send_together(self, place: Place, count: int, size: int, keys: int, producer: int) -> None:
        waiting = []
        for _ in range(count):
            sequence = self._sequences.get((place, producer), 0)
            value = f"{self._count}-" + "x" * size
            tried = Tried(place, producer, sequence, f"k{self._count % keys} of {keys}", value)
            self._sequences[place, producer], self._count = sequence + 1, self._count + 1
            self._mark(tried)
            waiting.append((tried, *send(self._broker, tried)))
        for tried, offset, done in waiting:
            await done
            self._mark(Stored(tried, offset))

    async def send_again(self, facts: Sequence[Any]) -> None:
        """Send what was not acknowledged before the broker was killed."""
        stored = {fact.tried for fact in facts if isinstance(fact, Stored)}
        for tried in [fact for fact in facts if isinstance(fact, Tried) and fact not in stored]:
            if tried.place[0] in self._broker.store.topics and tried.place != PASSING:
                offset, done = send(self._broker, tried)
                await done
                self._mark(Stored(tried, offset))

    async def commit(self, group: str, place: Place, number: int) -> None:
        self._mark(Advanced(group, place, number, False))
        await self._broker.groups.commit(group, {place: Committed(number)})
        self._mark(Advanced(group, place, number, True))

    async def transact(self, *, commit: bool) -> None:
        transactions, self._number = self._broker.transactions, self._number + 1
        producer: Producer = await transactions.init_producer_id("writer", 60_000)
        await transactions.add_partitions("writer", producer, [ORDERS, PAYMENTS])
        for place in (ORDERS, PAYMENTS):
            await self._write(producer, place)
        await transactions.add_offsets("writer", producer)
        await self._broker.groups.begin_offsets(*producer, "in-transactions", {PLAIN: Committed(self._number)})
        self._mark(Ended(self._number, commit, False))
        await transactions.end("writer", producer, commit)
        self._mark(Ended(self._number, commit, True))

    async def _write(self, producer: Producer, place: Place) -> None:
        records = [Record(None, str(self._number).encode(), timestamp=self._broker.now)]
        fields = {"producer_id": producer.id, "producer_epoch": producer.epoch, "attributes": TRANSACTIONAL}
        _, done = append(self._broker, place, build_batch(records, base_sequence=0, **fields))
        await done

    async def clean(self) -> None:
        """Let retention and compaction happen."""
        self._mark(Dropping(SHORT, self._broker.store.partition(*SHORT).end))
        await self._broker.cleaner.clean_all()

    def delete_records(self, place: Place, before: int) -> None:
        self._mark(Dropping(place, before))
        self._broker.store.partition(*place).truncate_before(before)
        self._mark(Dropped(place, before))

    async def producer_id(self) -> None:
        self._mark(ProducerId((await self._broker.transactions.init_producer_id(None)).id))
