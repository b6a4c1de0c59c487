"""A small topic as a table: the last row of each key counts. For rules and flags that every task needs."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from penstock.connectors.tables.source import TableSource, whole
from penstock.connectors.topics.source import TopicSource
from penstock.errors import BadSchema
from penstock.masking import masked
from penstock.schema import Schema
from penstock.settings import Settings


class TopicTable(TableSource):
    """All records of a topic, read again when there are more; a later record of a key replaces an earlier one."""

    unique = False

    def __init__(self, name: str, connection: str, schema: Schema | None, key: tuple[str, ...]) -> None:
        if schema is None:
            message = f"topic {name} does not say which columns its rows have"
            raise BadSchema(message, hint='pass schema="id string, limit bigint"')
        self._topic = TopicSource(name, schema, "json", connection=connection)
        self.name, self.schema = name, schema
        self._connection, self._key = connection, key

    def spec(self) -> dict[str, Any]:
        """Return the JSON description, without passwords."""
        where = masked(self._connection)
        made = {"kind": "read_table", "name": self.name, "connection": where, "schema": self.schema.ddl}
        return {**made, "key": list(self._key)}

    def private_spec(self) -> object:
        """Return the connection as given."""
        return self._connection

    @classmethod
    def from_spec(cls, spec: dict[str, Any]) -> TopicTable:
        """Rebuild it from `spec()`."""
        return cls(spec["name"], spec["connection"], Schema(spec["schema"]), tuple(spec["key"]))

    def configure(self, job: str, settings: Settings) -> None:
        """Resolve the connection."""
        self._topic.configure(job, settings)

    def check(self) -> None:
        """Raise if the log cannot be reached or has no such topic."""
        self._topic.check()

    def rows(self) -> pa.Table:
        """Read the topic from its beginning to its end, and keep the last row of each key."""
        rows = whole(self._topic, self.name)
        numbered = rows.append_column("__penstock_number", pa.array(range(rows.num_rows), pa.int64()))
        last = numbered.group_by(list(self._key)).aggregate([("__penstock_number", "max")])
        return rows.take(last.column("__penstock_number_max").sort())

    def stamp(self) -> object:
        """How far it reaches."""
        return dict(self._topic.latest(self._topic.initial(), None))
