"""A view in a topic: the last record of each key is its row, a tombstone deletes it.

What its columns and its key are is in a topic of its own, `penstock-views`, where a job finds it that reads the view.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.connectors.tables.source import whole
from penstock.connectors.topics.client_errors import resolve
from penstock.connectors.topics.cluster import Cluster
from penstock.connectors.topics.offsets import Range
from penstock.connectors.topics.payloads import Payloads
from penstock.connectors.topics.producers import RecordSender
from penstock.connectors.topics.source import TopicSource
from penstock.contracts import Rejected
from penstock.errors import BadSchema, SourceFailed
from penstock.masking import masked
from penstock.schema import Field, Schema
from penstock.settings import Settings

DESCRIPTIONS = "penstock-views"
REMOVED, PARTITION, OFFSET, GAP = "_removed", "_partition", "_offset", "_gap"
_MORE = (
    Field(REMOVED, "boolean", nullable=False),
    Field(PARTITION, "int", nullable=False),
    Field(OFFSET, "bigint", nullable=False),
    Field(GAP, "boolean", nullable=False),
)


def publish_description(cluster: Cluster, topic: str, schema: Schema, key: tuple[str, ...]) -> None:
    """Write down the columns and the key of a view that is written to a topic, unless they are known."""
    if cluster.describe(DESCRIPTIONS) is None:
        cluster.create(DESCRIPTIONS, compacted=True)
    said = json.dumps({"topic": topic, "schema": schema.ddl, "key": list(key)})
    RecordSender(cluster.connection, DESCRIPTIONS).send([([topic.encode()], [said.encode()])])


def description(topic: str, connection: str) -> tuple[Schema, tuple[str, ...]]:
    """Return the columns and the key of the view in a topic."""
    settings = Settings.load()
    source = TopicSource(DESCRIPTIONS, None, "raw", connection=connection)
    source.configure("read_view", settings)
    found: dict[str, Any] = {}
    if Cluster(resolve(connection, settings)).describe(DESCRIPTIONS) is not None:
        said = (json.loads(value) for value in whole(source, DESCRIPTIONS).column("value").to_pylist())
        found = {one["topic"]: one for one in said}
    if topic not in found:
        message = f"topic '{topic}' has no view: no job has written one there"
        hint = 'start the job that ends in view.to(topic(...)) first, or pass schema="..." and key="..."'
        raise BadSchema(message, node=f"read_view '{topic}'", hint=hint)
    return Schema(found[topic]["schema"]), tuple(found[topic]["key"])


class ViewTopicSource(TopicSource):
    """The changes of a view in a topic: rows, and for each tombstone its key, with `_removed`.

    With `resync` each row has its partition and offset, and where records were deleted before they were read there is
    a row with `_gap`: all that its partition had before that offset is no longer known.

    Guarantee: as that of TopicSource.
    """

    def __init__(
        self, name: str, schema: Schema, key: tuple[str, ...], connection: str = "log", *, resync: bool = False
    ) -> None:
        """Take the topic, and the columns and the key of the view."""
        on_loss = "continue" if resync else "fail"
        super().__init__(name, schema.nullable(), connection=connection, include=("key",), on_loss=on_loss)
        self.rows_schema, self.key, self.resync = schema, key, resync
        self.schema = Schema((*schema.nullable().fields, *_MORE[: len(_MORE) if resync else 1]))

    def spec(self) -> dict[str, Any]:
        """Return the JSON description, without passwords."""
        return {
            "kind": "view_topic",
            "name": self.name,
            "schema": self.rows_schema.ddl,
            "key": list(self.key),
            "connection": masked(self._connection),
            "resync": self.resync,
        }

    @classmethod
    def from_spec(cls, spec: dict[str, Any]) -> ViewTopicSource:
        """Rebuild it from `spec()`."""
        given = spec["name"], Schema(spec["schema"]), tuple(spec["key"]), spec["connection"]
        return cls(*given, resync=spec["resync"])

    @cached_property
    def payloads(self) -> Payloads:
        """The parser of record payloads."""
        return _ViewPayloads(self.name, self.schema, "json", self.schema.names[len(self.rows_schema) :])

    def _lost(self, rest: Range, at: int) -> Iterator[pa.RecordBatch | Rejected]:
        """Yield a row that says before which offset all of a partition is to be forgotten."""
        if rest.first <= at and rest.first == 0:
            message = f"topic '{self.name}' was deleted and created again: its view starts over"
            raise SourceFailed(message, hint="run the job with a new --checkpoint folder")
        gap = {PARTITION: rest.partition, OFFSET: rest.first, REMOVED: False, GAP: True}
        yield pa.RecordBatch.from_pylist([gap], schema=self.schema.nullable().arrow)


class _ViewPayloads(Payloads):
    def rows(self, records: pa.RecordBatch) -> Iterator[pa.RecordBatch | Rejected]:
        """Yield the rejected records, then the rows; the key of a tombstone is the document of its row."""
        values = records.column("value")
        columns = {name: records.column(name) for name in ("partition", "offset")}
        columns |= {"value": pc.coalesce(values, records.column("key")), REMOVED: values.is_null()}
        columns |= {PARTITION: columns["partition"], OFFSET: columns["offset"]}
        columns[GAP] = pa.array([False] * len(values))
        yield from super().rows(pa.RecordBatch.from_pydict(columns))
