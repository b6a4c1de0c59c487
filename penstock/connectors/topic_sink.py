"""Topics as a sink."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, get_args

import pyarrow as pa

from penstock.connectors.cluster import Cluster
from penstock.connectors.delivery import Delivery
from penstock.connectors.kafka import check_address, resolve
from penstock.connectors.payloads import refuse_format
from penstock.connectors.row_payloads import keyed_payloads, refuse_rows
from penstock.connectors.topic_ledger import Entry, Place, has_epochs, newest_epochs
from penstock.connectors.topics import topic_name
from penstock.connectors.transactions import write_epoch
from penstock.contracts import ROW_KEY, Epoch, Guarantee, Sink
from penstock.errors import BadValue, SinkFailed, choices
from penstock.masking import masked, reached_by
from penstock.schema import Schema
from penstock.settings import Settings

if TYPE_CHECKING:
    from typing import Self


class TopicSink(Sink):
    """Writes each row as a record to a topic of Penstock's log or of Kafka: a json document, a csv line, or raw.

    Guarantee: exactly once, for readers at read_committed. A task writes its records and its line in the ledger, an
    offset of a group, in one transaction; what the ledger has is not written again. "at_least_once" does without: a
    task's records are acknowledged by all replicas, and written again with an epoch that is replayed after a crash.
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
        if guarantee not in (None, *get_args(Guarantee)):
            message = f"{name}: guarantee {guarantee!r} is not known"
            raise BadValue(message, hint=choices("guarantees", get_args(Guarantee), guarantee))
        self.guarantee = guarantee or "exactly_once"
        check_address(connection, f"topic '{name}'")
        self.format, self.row_key = format, key
        self.updates = key is not None
        self._asked, self._connection = guarantee, connection
        self._cluster: Cluster | None = None
        self._cores: int | None = None

    @property
    def why(self) -> str:
        """How it keeps its guarantee."""
        if self.guarantee != "exactly_once":
            return super().why
        return "each partition's records and its ledger are one transaction, for readers at read_committed"

    def goes_to(self) -> str:
        """Name the topic, and where it is unless that is the job's own log."""
        return f"topic '{self.name}'" + ("" if self._connection == "log" else f" {reached_by(self._connection)}")

    def spec(self) -> dict[str, Any]:
        """Return what rebuilds it from JSON; passwords are left out."""
        return {
            "kind": "topic",
            "name": self.name,
            "key": self.row_key,
            "format": self.format,
            "connection": masked(self._connection),
            "guarantee": self._asked,
        }

    def hidden(self) -> object:
        """Return the connection as it was given."""
        return self._connection

    @classmethod
    def from_spec(cls, spec: dict[str, Any]) -> Self:
        """Rebuild it from `spec()`."""
        return cls(spec["name"], spec["key"], spec["format"], spec["connection"], spec.get("guarantee"))

    def within(self, job: str, settings: Settings) -> None:
        """Learn where the log is."""
        self._cluster = Cluster(resolve(self._connection, settings), SinkFailed)
        self._cores = settings.cores

    def check(self) -> None:
        """Raise a SettingsError if the log cannot be reached."""
        self.cluster.connection.refuse_unreachable()

    def open(self, schema: Schema, key: tuple[str, ...]) -> None:
        """Refuse what the format cannot hold, and make the topic if it is not there."""
        refuse_rows(self.name, self.format, Schema(tuple(field for field in schema if field.name != ROW_KEY)))
        if self.cluster.describe(self.name) is None:
            self.cluster.create(self.name)
        # Without a ledger rows are only brought together where their order asks for it.
        together = self.guarantee == "exactly_once" or self.row_key is not None
        self.partitions = (self._cores or Settings.load().cores) if together else None

    def continues(self, lineage: str, sink: str) -> None:
        """Cut rows as the ledger has it; the first partition's line is written before all epochs, to tell that."""
        if self.partitions is not None and self.guarantee == "exactly_once":
            first = Place.of(self.cluster.connection, self.name, lineage, sink, 0)
            self.partitions = first.cut(self.partitions)

    def newest_epochs(self, lineage: str, sink: str) -> Mapping[int, str]:
        """Ask the ledger of each partition."""
        if self.guarantee != "exactly_once":
            return {}
        numbers = range(self.partitions or 1)
        return newest_epochs([Place.of(self.cluster.connection, self.name, lineage, sink, n) for n in numbers])

    def used_before(self, sink: str) -> bool:
        """Look for a group that is the ledger of a sink of that name."""
        return self.guarantee == "exactly_once" and has_epochs(self.cluster, self.name, sink)

    def prepare(self, epoch: Epoch, partition: int, batches: Iterable[pa.RecordBatch]) -> int:
        """Write the rows of one partition, and return how many once all are there to stay."""
        records = keyed_payloads(batches, self.format)
        if self.guarantee != "exactly_once":
            return Delivery(self.cluster.connection, self.name).send(records)
        place = Place.of(self.cluster.connection, self.name, epoch.lineage, epoch.sink, partition)
        return write_epoch(place, Entry(epoch.number, self.partitions or 1, epoch.bounds), records)

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
