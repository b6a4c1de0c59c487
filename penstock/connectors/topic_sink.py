"""Topics as a sink."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Producer
from pyarrow import csv as pacsv

from penstock.connectors.cluster import Cluster
from penstock.connectors.connection import Connection
from penstock.connectors.kafka import SECONDS, failed, resolve
from penstock.connectors.payloads import refuse_format
from penstock.connectors.topics import topic_name
from penstock.connectors.writers import iso, json_documents, refuse_types
from penstock.contracts import ROW_KEY, Epoch, Guarantee, Sink
from penstock.errors import BadSchema, BadValue, PenstockError, SinkFailed
from penstock.schema import Schema
from penstock.settings import Settings, masked

if TYPE_CHECKING:
    from typing import Self

_CSV = pacsv.WriteOptions(include_header=False, quoting_style="needed")
# A producer connects once per process: Spark's workers live longer than their tasks.
_producers: dict[str, Producer] = {}
# What stops a producer is written to stderr otherwise, whatever the log level; the job's error says it.
_silent = logging.Logger("librdkafka", logging.CRITICAL + 1)


class TopicSink(Sink):
    """Writes each row as a record to a topic of Penstock's log or of Kafka: a json document, a csv line, or raw.

    Guarantee: at least once. A task's records are acknowledged by all replicas before the epoch goes on, and a
    producer's own retries write nothing twice; an epoch that is replayed after a crash is written again.
    A topic that is not there is made, with the cluster's defaults. With a key it also takes rows that are updated
    later: the newest record of a key counts.
    """

    def __init__(
        self,
        name: str,
        key: str | None = None,
        format: str = "json",
        connection: str = "log",
        guarantee: Guarantee | None = None,
    ) -> None:
        self.name = topic_name(name)
        refuse_format(name, format)
        if guarantee not in (None, "at_least_once"):
            message = f"{name}: a topic is written at least once for now, not {guarantee}"
            raise BadValue(message, hint='leave guarantee out, or pass "at_least_once"')
        self.guarantee = "at_least_once"
        self.format, self.row_key = format, key
        self.updates = key is not None
        self._connection = connection
        self._cluster: Cluster | None = None

    def spec(self) -> dict[str, Any]:
        """Return what rebuilds it from JSON; passwords are left out."""
        connection = masked(self._connection)
        return {
            "kind": "topic",
            "name": self.name,
            "key": self.row_key,
            "format": self.format,
            "connection": connection,
        }

    @classmethod
    def from_spec(cls, spec: dict[str, Any]) -> Self:
        """Rebuild it from `spec()`."""
        return cls(spec["name"], spec["key"], spec["format"], spec["connection"])

    def within(self, job: str, settings: Settings) -> None:
        """Learn where the log is."""
        self._cluster = Cluster(resolve(self._connection, settings), SinkFailed)

    def check(self) -> None:
        """Raise a SettingsError if the log cannot be reached."""
        self.cluster.connection.refuse_unreachable()

    def open(self, schema: Schema, key: tuple[str, ...]) -> None:
        """Refuse what the format cannot hold, and make the topic if it is not there."""
        self._refuse(Schema(tuple(field for field in schema if field.name != ROW_KEY)))
        if self.cluster.describe(self.name) is None:
            self.cluster.create(self.name)

    def prepare(self, epoch: Epoch, partition: int, batches: Iterable[pa.RecordBatch]) -> int:
        """Write the rows of one partition, and return how many once all are acknowledged."""
        return Delivery(self.cluster.connection, self.name).send(self._records(batches))

    def commit(self, epoch: Epoch, tokens: Sequence[Any]) -> None:
        """Do nothing: the rows are there."""

    def connector_options(self) -> dict[str, str]:
        """Return the options by which Spark's own Kafka connector writes the same topic."""
        return {"topic": self.name, **self.cluster.connection.java_config()}

    @property
    def cluster(self) -> Cluster:
        """The cluster, found by the settings of this place unless a job told where it is."""
        if self._cluster is None:
            self._cluster = Cluster(resolve(self._connection, Settings.load()), SinkFailed)
        return self._cluster

    def _refuse(self, schema: Schema) -> None:
        if self.format == "raw" and (len(schema) != 1 or schema.fields[0].type not in ("binary", "string")):
            message = f"{self.name}: raw writes one column, binary or string, not {schema.ddl!r}"
            raise BadSchema(message, hint="select() the one column before, or write json")
        if self.format != "raw":
            refuse_types(self.format, _as_text(schema) if self.format == "json" else schema)

    def _records(self, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[list[Any], list[Any]]]:
        """Yield keys and payloads."""
        for batch in batches:
            keyed = ROW_KEY in batch.schema.names
            keys = batch.column(ROW_KEY).to_pylist() if keyed else [None] * batch.num_rows
            yield keys, payloads(batch.drop_columns([ROW_KEY]) if keyed else batch, self.format)


class Delivery:
    """The records of one task on their way; over when each is acknowledged."""

    def __init__(self, connection: Connection, topic: str) -> None:
        self._connection, self._topic = connection, topic
        self._error: KafkaError | None = None

    def send(self, records: Iterable[tuple[list[Any], list[Any]]]) -> int:
        """Send them all, and return how many there were."""
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
            raise self._dropped(SinkFailed(message, hint="see whether the log is alive", transient=True))
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
        return self._dropped(failed(error, self._topic, self._connection, SinkFailed))

    def _dropped(self, error: PenstockError) -> PenstockError:
        """Forget a producer that may be out of order; the next task gets a new one."""
        producer = _producers.pop(_identity(self._connection), None)
        if producer is not None:
            producer.purge()
        return error


def _said(error: KafkaException | SystemError) -> KafkaError:
    """Return what stopped the producer: its client hides a fatal error behind a call of `on_delivery`."""
    cause = error if isinstance(error, KafkaException) else error.__cause__
    if not isinstance(cause, KafkaException):
        raise error
    said: KafkaError = cause.args[0]
    return said


def payloads(batch: pa.RecordBatch, format: str) -> list[Any]:
    """Return each row as a payload."""
    if format == "raw":
        return list(batch.column(0).to_pylist())
    if not batch.num_rows:
        return []
    return list(json_documents(batch).to_pylist()) if format == "json" else _csv_lines(batch)


def _csv_lines(batch: pa.RecordBatch) -> list[bytes]:
    columns = [iso(column) if pa.types.is_timestamp(column.type) else column for column in batch.columns]
    text = pa.RecordBatch.from_arrays(columns, names=batch.schema.names)
    lines = _csv(text).removesuffix(b"\n").split(b"\n")
    if len(lines) == batch.num_rows:
        return lines
    # A text with a line break: its row takes several lines.
    return [_csv(text.slice(n, 1)).removesuffix(b"\n") for n in range(batch.num_rows)]


def _csv(batch: pa.RecordBatch) -> bytes:
    buffer = io.BytesIO()
    pacsv.write_csv(batch, buffer, _CSV)
    return buffer.getvalue()


def _as_text(schema: Schema) -> Schema:
    """Return the schema as json holds it: bytes are written in base64."""
    return Schema({field.name: field.type.replace("binary", "string") for field in schema})


def _producer(connection: Connection) -> Producer:
    identity = _identity(connection)
    if identity not in _producers:
        # The partitioner is that of Kafka's own clients, so that equal keys meet whoever wrote them.
        config = connection.config(enable_idempotence=True, linger_ms=5, compression_type="lz4")
        _producers[identity] = Producer(config | {"partitioner": "murmur2_random", "logger": _silent})
    return _producers[identity]


def _identity(connection: Connection) -> str:
    return repr(sorted((name, str(value)) for name, value in connection.config().items()))
