"""Records and ledger of one partition in one transaction: each epoch is there once, for readers at read_committed.

Only one producer can be writing a partition: making one fences whoever was there before, a task given up for dead or
a driver that outlived its Python, and ends what it had begun. Only then is the ledger read, so nobody changes it after.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from functools import partial

from confluent_kafka import KafkaError, KafkaException, Producer

from penstock.connectors.delivery import producer_config
from penstock.connectors.kafka import SECONDS
from penstock.connectors.row_payloads import Records
from penstock.connectors.topic_ledger import Entry, Place
from penstock.errors import SinkFailed

# A task that takes longer fails; after a crash readers wait this long, unless the job is run again before.
TIMEOUT_MS = 300_000
_FENCED = {
    KafkaError._FENCED,
    KafkaError.PRODUCER_FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH,
    KafkaError.INVALID_PRODUCER_ID_MAPPING,
}
# A worker keeps the producers of the partitions that it wrote last, for making one takes many round trips.
_KEPT = 16
_TRIES = 3
_ABORT_SECONDS = 5
_writers: OrderedDict[Place, Writer] = OrderedDict()


def write_epoch(place: Place, entry: Entry, records: Iterable[Records]) -> int:
    """Write an epoch's records and its entry, unless the ledger has it; return how many records were written."""
    writer = _kept(place) or _made(place)
    if writer.begin(entry) is False:
        writer = _made(place)
        if writer.begin(entry) is False:
            message = f"{place.topic}: another task is writing the same partition of epoch {entry.epoch}"
            raise SinkFailed(message, transient=True)
    if writer.newest >= entry.epoch:
        return 0
    return writer.write(entry, records)


class Writer:
    """The one producer of a partition, until another takes its place."""

    def __init__(self, place: Place) -> None:
        self.place = place
        config = producer_config(place.connection, transactional_id=place.name, transaction_timeout_ms=TIMEOUT_MS)
        # Both connect at the same time.
        with place.consumer() as consumer:
            self._group = consumer.consumer_group_metadata()
            self._producer = Producer(config)
            # A producer that is not connected looks for its coordinator only half a second later. The first answer
            # tells it the brokers' own addresses, the second comes from one of those.
            for _ in range(2):
                place.patiently(partial(self._producer.list_topics, place.topic, SECONDS))
            place.patiently(partial(self._producer.init_transactions, SECONDS))
            self._entry = place.read(consumer)
        self.newest = -1 if self._entry is None else self._entry.epoch

    def begin(self, entry: Entry) -> bool:
        """Begin the transaction of an epoch that the ledger lacks; False if another has taken this one's place.

        The ledger's entry goes first: its answer tells whether this producer is still the one, before a row is taken.
        """
        self._refuse_other_cut(entry)
        if self.newest >= entry.epoch:
            return True
        try:
            self._producer.begin_transaction()
            offsets = [self.place.offset(entry)]
            call = partial(self._producer.send_offsets_to_transaction, offsets, self._group, SECONDS)
            self._retried(call)
        except KafkaException as error:
            _writers.pop(self.place, None)
            if error.args[0].code() in _FENCED:
                return False
            raise self._failed(error) from error
        return True

    def write(self, entry: Entry, records: Iterable[Records]) -> int:
        """Write the records and end the transaction."""
        count = 0
        try:
            for keys, values in records:
                for key, value in zip(keys, values, strict=True):
                    self._produce(key, value)
                count += len(values)
            self._retried(partial(self._producer.commit_transaction, SECONDS))
        except KafkaException as error:
            self._give_up()
            raise self._failed(error) from error
        except BaseException:
            self._give_up()
            raise
        self.newest, self._entry = entry.epoch, entry
        return count

    def _produce(self, key: bytes | None, value: bytes | None) -> None:
        while True:
            try:
                # Nobody is told of each record: a transaction with one that failed cannot be committed.
                self._producer.produce(self.place.topic, value, key)
                return
            except BufferError:
                self._producer.poll(0.1)

    def _retried(self, call: Callable[[], object]) -> None:
        """Call as the client asks for it: its calls go on where they were, while a broker is away."""
        for _ in range(_TRIES - 1):
            try:
                call()
                return
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise
        call()

    def _give_up(self) -> None:
        """Show nothing of what was written; the next task makes a producer of its own, which reads the ledger."""
        _writers.pop(self.place, None)
        try:
            self._producer.abort_transaction(_ABORT_SECONDS)
        except KafkaException:
            # It is fenced or the broker is away: the next producer of this partition ends the transaction.
            self._producer.purge()

    def _failed(self, error: KafkaException) -> SinkFailed:
        said: KafkaError = error.args[0]
        if said.code() in _FENCED:
            message = f"{self.place.topic}: another task took over this partition, or the transaction took too long"
            hint = f"epochs of more than {TIMEOUT_MS // 1000} s per task: add transaction.timeout.ms to the connection"
            return SinkFailed(message, hint=hint, transient=True)
        found = self.place.failed(error)
        found.transient = found.transient or bool(said.retriable() or said.fatal() or said.txn_requires_abort())
        assert isinstance(found, SinkFailed)
        return found

    def _refuse_other_cut(self, entry: Entry) -> None:
        if self._entry is not None and self._entry.partitions != entry.partitions:
            message = (
                f"{self.place.topic}: its ledger knows {self._entry.partitions} partitions of these rows, "
                f"and they come in {entry.partitions}"
            )
            raise SinkFailed(message, hint="run the job again: it then cuts rows as it began")


def _kept(place: Place) -> Writer | None:
    if place in _writers:
        _writers.move_to_end(place)
    return _writers.get(place)


def _made(place: Place) -> Writer:
    writer = _writers[place] = Writer(place)
    while len(_writers) > _KEPT:
        _writers.popitem(last=False)
    return writer
