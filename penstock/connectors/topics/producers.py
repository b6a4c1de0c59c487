"""Producers of a topic sink.

`RecordSender` writes without transactions: records are acknowledged, but a replayed epoch is written again.
`TransactionalWriter` commits the records of an epoch and its ledger entry in one transaction.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from penstock.connectors.topics.client_errors import SECONDS, translated
from penstock.connectors.topics.connection import Connection
from penstock.connectors.topics.ledger import Entry, SinkPartition
from penstock.connectors.topics.payloads import Records
from penstock.contracts import refuse_other_input
from penstock.errors import PenstockError, SinkFailed

# A producer connects once per process: Spark's workers live longer than their tasks.
_producers: dict[Connection, Producer] = {}
# Otherwise librdkafka prints fatal errors to stderr, whatever the log level; the job's error reports them.
_silent = logging.Logger("librdkafka", logging.CRITICAL + 1)
# A longer transaction fails. After a crash, readers wait this long unless the job restarts earlier.
TIMEOUT_MS = 300_000
_FENCED = {
    KafkaError._FENCED,
    KafkaError.PRODUCER_FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH,
    KafkaError.INVALID_PRODUCER_ID_MAPPING,
}
# A worker caches the producers of its latest partitions: creating one takes many round trips.
_KEPT = 16
_TRIES = 3
_ABORT_SECONDS = 5
_writers: OrderedDict[SinkPartition, TransactionalWriter] = OrderedDict()


class RecordSender:
    """Sends the records of one task; done when each is acknowledged."""

    def __init__(self, connection: Connection, topic: str) -> None:
        self._connection, self._topic = connection, topic
        self._error: KafkaError | None = None

    def send(self, records: Iterable[Records]) -> int:
        """Send all records and return their number."""
        producer, count = _producer(self._connection), 0
        try:
            for keys, values in records:
                for key, value in zip(keys, values, strict=True):
                    self._produce(producer, key, value)
                count += len(values)
                self._refuse_failures()
            left = producer.flush(SECONDS)
        except (KafkaException, SystemError) as error:
            raise self._failed(_said(error)) from error
        self._refuse_failures()
        if left:
            message = f"{self._connection.servers} did not acknowledge {left} records in {SECONDS:.0f} s"
            raise self._dropped(SinkFailed(message, hint="check that the broker is running", transient=True))
        return count

    def _produce(self, producer: Producer, key: bytes | None, value: bytes | None) -> None:
        while True:
            try:
                producer.produce(self._topic, value, key, on_delivery=self._delivered)
                return
            except BufferError:
                producer.poll(0.1)
                self._refuse_failures()

    def _delivered(self, error: KafkaError | None, message: Any) -> None:
        self._error = self._error or error

    def _refuse_failures(self) -> None:
        if self._error is not None:
            raise self._failed(self._error)

    def _failed(self, error: KafkaError) -> PenstockError:
        return self._dropped(translated(error, self._topic, self._connection, SinkFailed))

    def _dropped(self, error: PenstockError) -> PenstockError:
        """Discard a producer that may be in an invalid state; the next task gets a new one."""
        producer = _producers.pop(self._connection, None)
        if producer is not None:
            producer.purge()
        return error


def producer_config(connection: Connection, **more: Any) -> dict[str, Any]:
    """Return the configuration that all producers share; options of the connection take precedence."""
    ours = {"linger.ms": 5, "compression.type": "lz4"}
    # The partitioner of Kafka's Java client, so that a key goes to the same partition whoever writes it.
    ours |= {"partitioner": "murmur2_random", "logger": _silent}
    return ours | {name.replace("_", "."): value for name, value in more.items()} | connection.config()


def _said(error: KafkaException | SystemError) -> KafkaError:
    """Return the error that stopped the producer: the client wraps a fatal one in the error of `on_delivery`."""
    cause = error if isinstance(error, KafkaException) else error.__cause__
    if not isinstance(cause, KafkaException):
        raise error
    said: KafkaError = cause.args[0]
    return said


def _producer(connection: Connection) -> Producer:
    if connection not in _producers:
        _producers[connection] = Producer(producer_config(connection, enable_idempotence=True))
    return _producers[connection]


def write_epoch(target: SinkPartition, entry: Entry, records: Iterable[Records]) -> int:
    """Write an epoch's records and its entry, unless the ledger has it; return how many records were written."""
    writer = _cached(target) or _create(target)
    if writer.begin(entry) is False:
        writer = _create(target)
        if writer.begin(entry) is False:
            message = f"{target.topic}: another task is writing the same partition of epoch {entry.epoch}"
            raise SinkFailed(message, transient=True)
    if writer.newest >= entry.epoch:
        return 0
    return writer.write(entry, records)


class TransactionalWriter:
    """The transactional producer of a partition, until another one fences it."""

    def __init__(self, target: SinkPartition) -> None:
        self.target = target
        config = producer_config(target.connection, transactional_id=target.name, transaction_timeout_ms=TIMEOUT_MS)
        # Both connect at the same time.
        with target.consumer() as consumer:
            self._group = consumer.consumer_group_metadata()
            self._producer = Producer(config)
            # A producer that is not connected finds its coordinator only half a second later. The first response
            # has the brokers' own addresses, the second comes from one of those.
            for _ in range(2):
                target.with_retries(partial(self._producer.list_topics, target.topic, SECONDS))
            target.with_retries(partial(self._producer.init_transactions, SECONDS))
            self._entry = target.read(consumer)
        self.newest = -1 if self._entry is None else self._entry.epoch

    def begin(self, entry: Entry) -> bool:
        """Begin the transaction of an epoch that the ledger lacks; False if this producer is fenced.

        The ledger entry is sent first: its response shows whether this producer is fenced, before a row is read.
        """
        self._refuse_mismatch(entry)
        if self.newest >= entry.epoch:
            return True
        try:
            self._producer.begin_transaction()
            offsets = [self.target.offset(entry)]
            call = partial(self._producer.send_offsets_to_transaction, offsets, self._group, SECONDS)
            self._retried(call)
        except KafkaException as error:
            _writers.pop(self.target, None)
            if error.args[0].code() in _FENCED:
                return False
            raise self._failed(error) from error
        return True

    def write(self, entry: Entry, records: Iterable[Records]) -> int:
        """Write the records and commit the transaction."""
        count = 0
        try:
            for keys, values in records:
                for key, value in zip(keys, values, strict=True):
                    self._produce(key, value)
                count += len(values)
            self._retried(partial(self._producer.commit_transaction, SECONDS))
        except KafkaException as error:
            self._abort()
            raise self._failed(error) from error
        except BaseException:
            self._abort()
            raise
        self.newest, self._entry = entry.epoch, entry
        return count

    def _produce(self, key: bytes | None, value: bytes | None) -> None:
        while True:
            try:
                # No delivery callback: a transaction with a failed record cannot be committed.
                self._producer.produce(self.target.topic, value, key)
                return
            except BufferError:
                self._producer.poll(0.1)

    def _retried(self, call: Callable[[], object]) -> None:
        """Retry a call of the client while a broker is unavailable; the call resumes where it was."""
        for _ in range(_TRIES - 1):
            try:
                call()
                return
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise
        call()

    def _abort(self) -> None:
        """Abort the transaction and discard the producer; the next task creates one, which reads the ledger."""
        _writers.pop(self.target, None)
        try:
            self._producer.abort_transaction(_ABORT_SECONDS)
        except KafkaException:
            # Fenced, or the broker is unavailable: the next producer of this partition aborts the transaction.
            self._producer.purge()

    def _failed(self, error: KafkaException) -> SinkFailed:
        said: KafkaError = error.args[0]
        if said.code() in _FENCED:
            message = f"{self.target.topic}: another task took over this partition, or the transaction took too long"
            hint = f"epochs of more than {TIMEOUT_MS // 1000} s per task: add transaction.timeout.ms to the connection"
            return SinkFailed(message, hint=hint, transient=True)
        found = self.target.translated(error)
        found.transient = found.transient or bool(said.retriable() or said.fatal() or said.txn_requires_abort())
        assert isinstance(found, SinkFailed)
        return found

    def _refuse_mismatch(self, entry: Entry) -> None:
        if self._entry is None:
            return
        if self._entry.epoch == entry.epoch:
            refuse_other_input(f"topic {self.target.topic}", entry.epoch, self._entry.bounds, entry.bounds)
        if self._entry.partitions != entry.partitions:
            message = (
                f"{self.target.topic}: its ledger knows {self._entry.partitions} partitions of these rows, "
                f"and they come in {entry.partitions}"
            )
            raise SinkFailed(message, hint="run the job again: it then uses the number of partitions in the ledger")


def _cached(target: SinkPartition) -> TransactionalWriter | None:
    if target in _writers:
        _writers.move_to_end(target)
    return _writers.get(target)


def _create(target: SinkPartition) -> TransactionalWriter:
    writer = _writers[target] = TransactionalWriter(target)
    while len(_writers) > _KEPT:
        _writers.popitem(last=False)
    return writer
