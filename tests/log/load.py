"""Clients that keep the log busy and write down what they did: unmodified librdkafka, exactly once in both its ways."""

from __future__ import annotations

import random
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.log.histories import Decision, History, Place, Seen, Sent

# A broker that is back shall be noticed at once, without a line for each time it was not. And it comes back at the same
# address: librdkafka would forget its only broker ("re-bootstrap"), and send_offsets_to_transaction would wait for the
# forgotten one without end (confluentinc/librdkafka issues 5511 and 5456).
IMPATIENT = {
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 50,
    "metadata.recovery.strategy": "none",
    "log_level": 2,
}
_MOST_WAITING = 200
_END_SECONDS = 60.0


class Recorder:
    """The history as it happens, and a way to wait for a moment in it."""

    def __init__(self) -> None:
        self.history = History()
        self.troubles: list[str] = []
        self.acknowledged = 0
        self.ends = 0
        self._changed = threading.Condition()

    def note(self, sent: Sent) -> None:
        """A record's fate is known."""
        with self._changed:
            self.history.sent.append(sent)
            self.acknowledged += sent.outcome == "acknowledged"
            self._changed.notify_all()

    def ending(self) -> None:
        """A transaction is about to be committed or aborted."""
        with self._changed:
            self.ends += 1
            self._changed.notify_all()

    def decided(self, transaction: str, decision: Decision) -> None:
        """A transaction's fate is known."""
        with self._changed:
            self.history.decisions[transaction] = decision

    def trouble(self, what: object) -> None:
        """Something that a client should never meet, not even when the log is killed."""
        with self._changed:
            self.troubles.append(str(what))

    def wait(self, condition: Callable[[Recorder], bool], seconds: float) -> bool:
        """Wait until something is so; False if it is not in time."""
        with self._changed:
            return self._changed.wait_for(lambda: condition(self), seconds)


class Load(threading.Thread):
    """A client in a thread of its own, until it is told to stop."""

    def __init__(self, name: str, recorder: Recorder, config: dict[str, Any], seed: int) -> None:
        super().__init__(name=name, daemon=True)
        self.recorder = recorder
        self.chance = random.Random(seed)
        self.stopping = threading.Event()
        self._config = {**config, **IMPATIENT}
        self._number = 0

    def run(self) -> None:
        try:
            self.work()
        except Exception as error:
            self.recorder.trouble(f"{self.name}: {error!r}")
            raise

    def work(self) -> None:
        raise NotImplementedError

    def send(self, producer: Producer, place: Place, transaction: str | None = None, of: str = "") -> None:
        """Send the next record; what became of it is noted."""
        self._number += 1
        sent = Sent(self.name, self._number, place, "unknown", -1, transaction)
        value = f"{sent.record} {of} {'x' * self.chance.randrange(200)}"

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is None:
                self.recorder.note(sent._replace(outcome="acknowledged", offset=message.offset()))
            else:
                self.recorder.note(sent)
                if transaction is None:
                    self.recorder.trouble(f"{sent.record}: {error}")

        producer.produce(place[0], value.encode(), partition=place[1], on_delivery=delivered)


@contextmanager
def running(loads: Sequence[Load]) -> Iterator[None]:
    """Let clients work; in the end each finishes what it began."""
    for load in loads:
        load.start()
    try:
        yield
    finally:
        for load in loads:
            load.stopping.set()
        for load in loads:
            load.join(_END_SECONDS)
    stuck = [f"{load.name} does not come to an end:\n{_place(load)}" for load in loads if load.is_alive()]
    assert not stuck, "\n".join(stuck)


def _place(load: Load) -> str:
    frame = sys._current_frames().get(load.ident or 0)
    return "".join(traceback.format_stack(frame)[-4:])


class Idempotent(Load):
    """Sends as fast as a few hundred records in flight allow, each of which has to arrive once and in order."""

    def __init__(self, name: str, recorder: Recorder, config: dict[str, Any], seed: int, places: Sequence[Place]):
        super().__init__(name, recorder, {**config, "enable.idempotence": True}, seed)
        self._places = places

    def work(self) -> None:
        producer = Producer(self._config)
        while not self.stopping.is_set():
            for _ in range(self.chance.randint(1, 15)):
                self.send(producer, self.chance.choice(self._places))
            producer.poll(0.01)
            while len(producer) > _MOST_WAITING:
                producer.poll(0.05)
        left = producer.flush(_END_SECONDS / 2)
        if left:
            self.recorder.trouble(f"{self.name}: {left} records were never acknowledged")


class Transactional(Load):
    """Writes transactions over several topics; some are aborted on purpose."""

    def __init__(self, name: str, recorder: Recorder, config: dict[str, Any], seed: int, places: Sequence[Place]):
        super().__init__(name, recorder, {**config, "transactional.id": name}, seed)
        self._places = places
        self._producer: Producer | None = None
        self._transactions = 0

    def work(self) -> None:
        while not self.stopping.is_set():
            self.transaction(self._write, wants_commit=self.chance.random() < 0.8)

    def _write(self, producer: Producer, transaction: str) -> None:
        for _ in range(self.chance.randint(2, 12)):
            self.send(producer, self.chance.choice(self._places), transaction)

    def transaction(self, write: Callable[[Producer, str], None], *, wants_commit: bool = True) -> Decision:
        """Carry out one transaction and note its outcome."""
        producer = self._ready()
        self._transactions += 1
        name = f"{self.name}:{self._transactions}"
        decision: Decision = "aborted"
        try:
            producer.begin_transaction()
            write(producer, name)
            self.recorder.ending()
            decision = self._end(producer, wants_commit)
        except KafkaException as error:
            decision = self._give_up(producer, error)
        self.recorder.decided(name, decision)
        return decision

    def _ready(self) -> Producer:
        while self._producer is None:
            fresh = Producer(self._config)
            if _insist(fresh.init_transactions):
                self._producer = fresh
        return self._producer

    def _end(self, producer: Producer, wants_commit: bool) -> Decision:
        if not wants_commit:
            producer.flush(_END_SECONDS)  # or the records would never leave the client
            self._abort(producer)
            return "aborted"
        while True:
            try:
                producer.commit_transaction(_END_SECONDS)
            except KafkaException as error:
                if error.args[0].txn_requires_abort():
                    raise
                if not error.args[0].retriable():
                    # Fatal: nobody knows whether the decision was written. The next producer of this name fences it.
                    self._producer = None
                    return "unknown"
            else:
                return "committed"

    def _give_up(self, producer: Producer, error: KafkaException) -> Decision:
        if error.args[0].txn_requires_abort():
            self._abort(producer)
        else:
            self._producer = None
        return "aborted"

    def _abort(self, producer: Producer) -> None:
        if not _insist(producer.abort_transaction):
            self._producer = None


class Copier(Transactional):
    """Reads topics as a group and writes one record for each that it read, with its position in the transaction."""

    def __init__(
        self, name: str, recorder: Recorder, config: dict[str, Any], seed: int, places: Sequence[Place], topic: str
    ) -> None:
        super().__init__(name, recorder, config, seed, places)
        self._topic = topic
        self._server = {"bootstrap.servers": config["bootstrap.servers"], **IMPATIENT}

    def work(self) -> None:
        group = {"group.id": self.name, "isolation.level": "read_committed", "auto.offset.reset": "earliest"}
        consumer = Consumer({**self._server, **group, "enable.auto.commit": False})
        with closing(consumer):
            consumer.subscribe([self._topic])
            while not self.stopping.is_set():
                messages = [one for one in consumer.consume(200, 0.2) if one.error() is None]
                if messages and not self._copied(consumer, messages):
                    self._ready()  # fences the old producer, whose open transaction would hold back what is committed
                    self._rewind(consumer)

    def _copied(self, consumer: Consumer, messages: list[Message]) -> bool:
        def write(producer: Producer, transaction: str) -> None:
            for message in messages:
                of = (message.value() or b"").split(b" ", 1)[0].decode()
                self.send(producer, self.chance.choice(self._places), transaction, of=of)
            ends = {(one.topic(), one.partition()): one.offset() + 1 for one in messages}
            offsets = [TopicPartition(topic, index, offset) for (topic, index), offset in ends.items()]
            producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), _END_SECONDS)

        return self.transaction(write) == "committed"

    def _rewind(self, consumer: Consumer) -> None:
        """Go back to what is committed, which is where a new member would begin."""
        assigned = consumer.assignment()
        while assigned:
            try:
                for one in consumer.committed(assigned, timeout=_END_SECONDS):
                    consumer.seek(TopicPartition(one.topic, one.partition, max(one.offset, 0)))
                return
            except KafkaException:
                # The assignment was lost meanwhile, or the log is down.
                consumer.poll(0.1)
                assigned = consumer.assignment()


def _insist(step: Callable[[float], Any]) -> bool:
    """Do a step of a transaction until it is done; False if the producer cannot go on."""
    while True:
        try:
            step(_END_SECONDS)
        except KafkaException as error:
            if not error.args[0].retriable():
                return False
        else:
            return True


def read_all(bootstrap: str, places: Sequence[Place], isolation: str) -> tuple[list[Seen], list[str]]:
    """Read whole partitions; return what was seen, and which inputs the copies among it were made of."""
    config = {"bootstrap.servers": bootstrap, "group.id": "reader", "isolation.level": isolation, **IMPATIENT}
    seen, copies, open_places = [], [], set(places)
    with closing(Consumer({**config, "enable.partition.eof": True, "check.crcs": True})) as consumer:
        consumer.assign([TopicPartition(topic, index, 0) for topic, index in places])
        while open_places:
            for message in consumer.consume(10_000, 1.0):
                place = (message.topic() or "", message.partition() or 0)
                error = message.error()
                if error is not None:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    open_places.discard(place)
                    continue
                record, of, _ = (message.value() or b"").decode().split(" ", 2)
                seen.append(Seen(place, message.offset() or 0, record))
                copies += [of] if of else []
    return seen, copies
