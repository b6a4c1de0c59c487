"""Topics as a sink."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, get_args

import pyarrow as pa

from penstock.connectors.topics.client_errors import check_address, resolve
from penstock.connectors.topics.cluster import Cluster
from penstock.connectors.topics.ledger import Entry, SinkPartition, has_epochs, newest_epochs
from penstock.connectors.topics.payloads import check_format, check_row_format, keyed_payloads
from penstock.connectors.topics.producers import RecordSender, write_epoch
from penstock.connectors.topics.source import topic_name
from penstock.connectors.topics.views import publish_description
from penstock.contracts import ROW_KEY, ROW_REMOVED, Epoch, Guarantee, Sink
from penstock.errors import BadSchema, BadValue, SinkFailed, one_of
from penstock.masking import masked, reached_by
from penstock.schema import Schema, quoted
from penstock.settings import Settings

if TYPE_CHECKING:
    from typing import Self


class TopicSink(Sink):
    """Writes each row as a record to a topic of Penstock's log or of Kafka: a json document, a csv line, or raw.

    Guarantee: exactly once, for readers at read_committed. A task writes its records and its ledger entry, an offset
    of a consumer group, in one transaction; epochs in the ledger are not written again. "at_least_once" uses no
    transactions: records are acknowledged by all replicas, and written again when an epoch is replayed after a crash.
    A missing topic is created with the cluster's defaults. With a key the sink also accepts updates: the newest
    record of a key counts.
    """

    def __init__(
        self,
        name: str,
        key: str | None = None,
        format: str = "json",
        connection: str = "log",
        guarantee: Guarantee | None = None,
        *,
        remove: str | None = None,
        view_key: Sequence[str] = (),
    ) -> None:
        """Take a topic; a row for which `remove` holds becomes a tombstone: a record with a key and no payload.

        `view_key` are the columns in the key of each record, if the rows are those of a view.
        """
        self.name = topic_name(name)
        check_format(name, format)
        one_of(guarantee, (None, *get_args(Guarantee)), "guarantee", f"topic '{name}'")
        self.guarantee = guarantee or "exactly_once"
        check_address(connection, f"topic '{name}'")
        self.format, self.row_key, self.row_removed, self.view_key = format, key, remove, tuple(view_key)
        self.updates = key is not None
        self._asked, self._connection = guarantee, connection
        self._cluster: Cluster | None = None
        self._cores: int | None = None

    @property
    def guarantee_reason(self) -> str:
        """How the sink achieves its guarantee."""
        if self.guarantee != "exactly_once":
            return super().guarantee_reason
        return "each partition's records and its ledger are one transaction, for readers at read_committed"

    def describe_target(self) -> str:
        """Return the topic's name, and its connection unless that is the job's own log."""
        return f"topic '{self.name}'" + ("" if self._connection == "log" else f" {reached_by(self._connection)}")

    def spec(self) -> dict[str, Any]:
        """Return the JSON description, without passwords."""
        return {
            "kind": "topic",
            "name": self.name,
            "key": self.row_key,
            "format": self.format,
            "connection": masked(self._connection),
            "guarantee": self._asked,
        } | ({} if self.row_removed is None else {"remove": self.row_removed, "view_key": list(self.view_key)})

    def private_spec(self) -> object:
        """Return the connection as given."""
        return self._connection

    @classmethod
    def from_spec(cls, spec: dict[str, Any]) -> Self:
        """Rebuild it from `spec()`."""
        more = {"remove": spec.get("remove"), "view_key": spec.get("view_key", ())}
        return cls(spec["name"], spec["key"], spec["format"], spec["connection"], spec.get("guarantee"), **more)

    def for_view(self, unique: tuple[str, ...] | None, removed: str, *, whole: bool) -> TopicSink:
        """Follow a view by records of its keys, and tombstones; without a key of its own by the unique columns."""
        if whole:
            message = "a topic follows a view by its changes"
            raise BadValue(message, hint="leave out whole=True: the last record of each key is the whole view")
        if self.row_key is None and unique is None:
            message = f"topic {self.name}: no columns of the view are known to be unique"
            hint = 'pass key="..." to topic(): SQL that is different for any two rows'
            raise BadSchema(message, hint=hint)
        key = self.row_key if self.row_key is not None else key_document(unique or ())
        # A key of the user's may leave out columns of the view's own.
        own = (unique or ()) if self.row_key is None else ()
        return TopicSink(self.name, key, self.format, self._connection, self._asked, remove=removed, view_key=own)

    def configure(self, job: str, settings: Settings) -> None:
        """Resolve the connection."""
        self._cluster = Cluster(resolve(self._connection, settings), SinkFailed)
        self._cores = settings.cores

    def check(self) -> None:
        """Raise a SettingsError if the broker cannot be reached."""
        self.cluster.connection.refuse_unreachable()

    def open(self, schema: Schema, key: tuple[str, ...]) -> None:
        """Check that the format can represent the rows, and create the topic if it is missing."""
        rows = Schema(tuple(field for field in schema if field.name not in (ROW_KEY, ROW_REMOVED)))
        check_row_format(self.name, self.format, rows)
        if self.cluster.describe(self.name) is None:
            self.cluster.create(self.name, compacted=self.row_removed is not None)
        if self.view_key and self.format == "json":
            publish_description(self.cluster, self.name, rows, self.view_key)
        # Without a ledger, rows are only partitioned if their order matters.
        together = self.guarantee == "exactly_once" or self.row_key is not None
        self.partitions = (self._cores or Settings.load().cores) if together else None

    def bind_lineage(self, lineage: str, sink: str) -> None:
        """Use the number of partitions in the ledger; the first partition's entry is written before all epochs."""
        if self.partitions is not None and self.guarantee == "exactly_once":
            first = SinkPartition.of(self.cluster.connection, self.name, lineage, sink, 0)
            self.partitions = first.agreed_partitions(self.partitions)

    def newest_epochs(self, lineage: str, sink: str) -> Mapping[int, str]:
        """Read the ledger of each partition."""
        if self.guarantee != "exactly_once":
            return {}
        numbers = range(self.partitions or 1)
        return newest_epochs([SinkPartition.of(self.cluster.connection, self.name, lineage, sink, n) for n in numbers])

    def used_before(self, sink: str) -> bool:
        """Search for a consumer group that is a ledger of a sink of that name."""
        return self.guarantee == "exactly_once" and has_epochs(self.cluster, self.name, sink)

    def prepare(self, epoch: Epoch, partition: int, batches: Iterable[pa.RecordBatch]) -> int:
        """Write the rows of one partition durably, and return their number."""
        records = keyed_payloads(batches, self.format)
        if self.guarantee != "exactly_once":
            return RecordSender(self.cluster.connection, self.name).send(records)
        target = SinkPartition.of(self.cluster.connection, self.name, epoch.lineage, epoch.sink, partition)
        return write_epoch(target, Entry(epoch.number, self.partitions or 1, epoch.bounds), records)

    def commit(self, epoch: Epoch, tokens: Sequence[Any]) -> None:
        """Do nothing: `prepare` has committed."""

    def connector_options(self) -> dict[str, str]:
        """Return the options with which Spark's own Kafka connector writes the same topic."""
        return {"topic": self.name, **self.cluster.connection.java_config()}

    @property
    def cluster(self) -> Cluster:
        """The cluster, by the settings of the job or else of this folder."""
        if self._cluster is None:
            self._cluster = Cluster(resolve(self._connection, Settings.load()), SinkFailed)
        return self._cluster


def key_document(columns: tuple[str, ...]) -> str:
    """Return the key of a row of a view as SQL: a JSON object of the columns that identify it.

    >>> key_document(("id",))
    "to_json(named_struct('id', id))"
    """
    if not columns:
        return "'{}'"
    pairs = (f"'{name.replace(chr(39), chr(92) + chr(39))}', {quoted(name)}" for name in columns)
    return f"to_json(named_struct({', '.join(pairs)}))"
