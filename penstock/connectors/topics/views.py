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
from penstock.connectors.topics.payloads import Payloads
from penstock.connectors.topics.producers import RecordSender
from penstock.connectors.topics.source import TopicSource
from penstock.contracts import Rejected
from penstock.errors import BadSchema
from penstock.masking import masked
from penstock.schema import Field, Schema
from penstock.settings import Settings

DESCRIPTIONS = "penstock-views"
REMOVED = "_removed"


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

    Guarantee: as that of TopicSource.
    """

    def __init__(self, name: str, schema: Schema, key: tuple[str, ...], connection: str = "log") -> None:
        """Take the topic, and the columns and the key of the view."""
        super().__init__(name, schema.nullable(), connection=connection, include=("key",))
        self.rows_schema, self.key = schema, key
        self.schema = Schema((*schema.nullable().fields, Field(REMOVED, "boolean", nullable=False)))

    def spec(self) -> dict[str, Any]:
        """Return the JSON description, without passwords."""
        return {
            "kind": "view_topic",
            "name": self.name,
            "schema": self.rows_schema.ddl,
            "key": list(self.key),
            "connection": masked(self._connection),
        }

    @classmethod
    def from_spec(cls, spec: dict[str, Any]) -> ViewTopicSource:
        """Rebuild it from `spec()`."""
        return cls(spec["name"], Schema(spec["schema"]), tuple(spec["key"]), spec["connection"])

    @cached_property
    def payloads(self) -> Payloads:
        """The parser of record payloads."""
        return _ViewPayloads(self.name, self.schema, "json", (REMOVED,))


class _ViewPayloads(Payloads):
    def rows(self, records: pa.RecordBatch) -> Iterator[pa.RecordBatch | Rejected]:
        """Yield the rejected records, then the rows; the key of a tombstone is the document of its row."""
        values = records.column("value")
        documents = pc.coalesce(values, records.column("key"))
        marked = pa.RecordBatch.from_arrays(
            [documents, *(records.column(name) for name in ("partition", "offset")), values.is_null()],
            names=["value", "partition", "offset", REMOVED],
        )
        yield from super().rows(marked)
