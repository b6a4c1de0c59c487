"""Tables: the build side of a join with a stream, refreshed when they change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.contracts import Source
from penstock.durations import Span, micros
from penstock.errors import BadSchema, BadValue, PenstockError, choices
from penstock.schema import Schema, Shape
from penstock.settings import Settings


@dataclass(frozen=True)
class Table:
    """Rows by key, which `join` and `join_asof` look up for the rows of a stream.

    It is read again when it changes, at most every `refresh`; each epoch sees one version of it, also when it is
    replayed after a crash. While it cannot be read, its last version is used, for at most `max_staleness`.
    """

    source: Source
    key: tuple[str, ...]
    valid_from: str | None = None
    refresh_us: int = 60_000_000
    max_staleness_us: int = 600_000_000

    def __post_init__(self) -> None:
        if not self.key:
            message = "no key is given"
            raise BadValue(message, node=self._label, hint=choices("columns here", self.schema.names))
        try:
            for name in (*self.key, *([self.valid_from] if self.valid_from else [])):
                self.schema.field(name)
        except PenstockError as error:
            error.node = self._label
            raise
        if self.valid_from and self.schema.field(self.valid_from).type != "timestamp":
            kind = self.schema.field(self.valid_from).type
            message = f"valid_from '{self.valid_from}' is a {kind}, not a timestamp"
            raise BadSchema(
                message, node=self._label, hint="valid_from must be an instant: give the column a time zone"
            )

    @property
    def schema(self) -> Schema:
        """The columns of every row."""
        return self.source.schema

    @property
    def name(self) -> str:
        """What is read."""
        return self.source.name

    @property
    def _label(self) -> str:
        return f"read_table '{self.source.name}'"


def read_table(
    name: str,
    *,
    connection: str = "",
    key: str | Sequence[str],
    schema: Shape | None = None,
    valid_from: str | None = None,
    refresh: Span = "1m",
    max_staleness: Span = "10m",
) -> Table:
    """Read a small table to join a stream with; it is read again when it changes, at most every `refresh`.

    `connection` is a name in the settings, `postgresql://...` or `sqlite:///path`, "files" (`name` is then a file or
    folder of csv, json or Parquet), or "log" and other brokers (`name` is then a topic, whose last row of each key
    counts). The columns are read from the catalog or from Parquet; csv, json and topics need a schema. With
    `valid_from`, a key may have many rows: the column has the time since when each is valid, for `join_asof`. If the
    table cannot be read for longer than `max_staleness` while the job runs, the job fails.
    """
    from penstock.connectors.tables.connection import refuse_no_connection
    from penstock.connectors.tables.source import table_source

    refuse_no_connection(connection, f"read_table '{name}'")
    names = (key,) if isinstance(key, str) else tuple(key)
    given = Schema(schema) if schema is not None else None
    source = table_source(name, connection, given, names, valid_from, Settings.load())
    return Table(source, names, valid_from, micros(refresh, "refresh"), micros(max_staleness, "max_staleness"))
