"""Tables of PostgreSQL and SQLite as a sink."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, get_args

import pyarrow as pa

from penstock.connectors.tables.column_names import refuse_names
from penstock.connectors.tables.connection import refuse_no_connection, resolve
from penstock.connectors.tables.database import Database, Session, Target
from penstock.connectors.tables.layout import make_or_check
from penstock.connectors.tables.ledger import Ledger
from penstock.contracts import ROW_REMOVED, WHY, Epoch, Guarantee, Sink
from penstock.errors import BadSchema, BadValue, SettingsError, SinkFailed, choices
from penstock.masking import masked, reached_by
from penstock.schema import Schema
from penstock.settings import Settings

if TYPE_CHECKING:
    from typing import Self

MODES = ("append", "upsert")


class TableSink(Sink):
    """Writes rows to a table: `append` adds them, `upsert` keeps the last row of each key.

    Guarantee: exactly once. A task writes its rows and its line in the ledger, a table `penstock_ledger` beside them,
    in one transaction; what the ledger has is not written again. "at_least_once" does without the ledger.
    """

    def __init__(
        self,
        name: str,
        connection: str,
        mode: str = "append",
        key: Sequence[str] = (),
        remove: str | None = None,
        guarantee: Guarantee | None = None,
    ) -> None:
        refuse_no_connection(connection, f"table {name}")
        if mode not in MODES:
            message = f"table {name}: mode {mode!r} is not known"
            raise BadValue(message, hint=choices("modes", MODES, mode))
        if mode == "append" and (key or remove):
            message = f"table {name}: {'key' if key else 'remove'}= is for mode 'upsert'"
            raise BadValue(message, hint='pass mode="upsert", or leave it out')
        if guarantee not in (None, *get_args(Guarantee)):
            message = f"table {name}: guarantee {guarantee!r} is not known"
            raise BadValue(message, hint=choices("guarantees", get_args(Guarantee), guarantee))
        self.name, self.mode, self.row_removed = name, mode, remove
        self.key = self._given_key = tuple(key)
        self.updates = mode == "upsert"
        self.guarantee = guarantee or "exactly_once"
        self._connection = connection
        self._database: Database | None = None
        self._target: Target | None = None
        self._cores: int | None = None

    def spec(self) -> dict[str, Any]:
        """Return what rebuilds it from JSON; passwords are left out."""
        return {
            "kind": "table",
            "name": self.name,
            "connection": masked(self._connection),
            "mode": self.mode,
            "key": list(self._given_key),
            "remove": self.row_removed,
            "guarantee": self.guarantee,
        }

    def hidden(self) -> object:
        """Return the connection as it was given."""
        return self._connection

    @classmethod
    def from_spec(cls, spec: dict[str, Any]) -> Self:
        """Rebuild it from `spec()`."""
        return cls(*(spec[name] for name in ("name", "connection", "mode", "key", "remove", "guarantee")))

    @property
    def keyed(self) -> bool:
        """Whether the last row of a key counts."""
        return self.updates

    @property
    def why(self) -> str:
        """How it keeps its guarantee."""
        return "rows and ledger are written in one transaction" if self._ledger else WHY[self.guarantee]

    def goes_to(self) -> str:
        """Name the table and its database."""
        return f"table '{self.name}' {reached_by(self._connection)}"

    def within(self, job: str, settings: Settings) -> None:
        """Learn where the database is."""
        self._database, self._cores = resolve(self._connection, settings), settings.cores

    def check(self) -> None:
        """Raise a SettingsError if the database cannot be reached."""
        try:
            self.database.check()
        except SettingsError as error:
            error.node = f"table {self.name}"
            raise

    def fits(self, schema: Schema, key: tuple[str, ...]) -> None:
        """Refuse rows that have no key where one is needed, and names that the database cannot hold."""
        refuse_names(self._connection, schema.names, self.name)
        if self.updates:
            _refuse_key(self.name, self._given_key or key, schema)

    def open(self, schema: Schema, key: tuple[str, ...]) -> None:
        """Make the table and the ledger if they are missing, and refuse a table that does not fit the rows."""
        rows = Schema(tuple(field for field in schema if field.name != ROW_REMOVED))
        if self.updates:
            self.key = self._given_key or key
            _refuse_key(self.name, self.key, rows)
        self._target = Target(self.name, rows, self.key)
        refuse_names(self.database.place, rows.names, self.name)
        with self.database.transaction(self.name) as session:
            make_or_check(self.database, session, self._target)
            if self._ledger is not None:
                session.make_ledger(self._ledger.name)
        # Without a ledger rows are only brought together where their order or the database asks for it.
        apart = self._ledger is None and not self.updates
        writers = self.database.writers(self._cores or Settings.load().cores)
        self.partitions = None if apart and writers > 1 else writers

    def continues(self, lineage: str, sink: str) -> None:
        """Go on with as many partitions as the ledger knows of."""
        if self._ledger is not None:
            with self.database.transaction(self.name) as session:
                self.partitions = self._ledger.partitions(session, lineage, sink) or self.partitions

    def newest_epochs(self, lineage: str, sink: str) -> Mapping[int, str]:
        """Look into the ledger."""
        if self._ledger is None:
            return {}
        with self.database.reading(self.name) as session:
            return self._ledger.newest(session, lineage, sink)

    def used_before(self, sink: str) -> bool:
        """Look into the ledger; an upserted row replaces what is there, so nothing would be there twice."""
        if self._ledger is None or self.updates:
            return False
        with self.database.reading(self.name) as session:
            return self._ledger.has_epochs(session, sink)

    def prepare(self, epoch: Epoch, partition: int, batches: Iterable[pa.RecordBatch]) -> None:
        """Write the rows of one partition and its line in the ledger, unless the ledger has the epoch."""
        with self.database.transaction(self.name) as session:
            if self._ledger is None:
                self._write(session, batches)
            elif not self._ledger.has(session, epoch, partition, self.partitions or 1):
                self._write(session, batches)
                self._ledger.note(session, epoch, partition)

    def commit(self, epoch: Epoch, tokens: Sequence[Any]) -> None:
        """Do nothing: the rows are there."""

    @property
    def database(self) -> Database:
        """The database, found by the settings of this place unless a job told where it is."""
        if self._database is None:
            self._database = resolve(self._connection, Settings.load())
        return self._database

    @property
    def _ledger(self) -> Ledger | None:
        return Ledger(self.name) if self.guarantee == "exactly_once" else None

    def _write(self, session: Session, batches: Iterable[pa.RecordBatch]) -> None:
        assert self._target is not None, "open() comes first"
        if self.updates:
            session.upsert(self._target, self._keyed(batches))
        else:
            session.append(self._target, batches)

    def _keyed(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Pass on batches; a row without a key could never be found again."""
        for batch in batches:
            for name in self.key:
                if batch.column(name).null_count:
                    message = f"table {self.name}: key column '{name}' is null in a row"
                    raise SinkFailed(message, hint=f'leave such rows out before: .filter("{name} IS NOT NULL")')
            yield batch


def _refuse_key(table: str, key: tuple[str, ...], schema: Schema) -> None:
    for name in key:
        schema.field(name)
    if not key:
        message = f"table {table}: upsert needs a key, and the rows have none"
        raise BadSchema(message, hint=f'{choices("columns here", schema.names)}\n  pass key="..." to table()')
