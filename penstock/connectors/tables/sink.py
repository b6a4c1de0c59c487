"""The table sink, for PostgreSQL and SQLite."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, get_args

import pyarrow as pa

from penstock.connectors.tables.connection import refuse_no_connection, resolve
from penstock.connectors.tables.database import Column, Database, Session, Target, column, listed, quoted
from penstock.connectors.tables.ledger import Ledger
from penstock.contracts import ROW_REMOVED, WHY, Epoch, Guarantee, Sink
from penstock.errors import BadSchema, BadValue, SettingsError, SinkFailed, choices, one_of
from penstock.masking import masked, reached_by
from penstock.schema import Schema
from penstock.settings import Settings

if TYPE_CHECKING:
    from typing import Self

MODES = ("append", "upsert")
_LONGEST = 63
_SYSTEM = ("cmax", "cmin", "ctid", "tableoid", "xmax", "xmin")


class TableSink(Sink):
    """Writes rows to a table: `append` adds them, `upsert` keeps the last row of each key.

    Guarantee: exactly once. A task writes its rows and its line in the ledger, a table `penstock_ledger` next to them,
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
        one_of(mode, MODES, "mode", f"table {name}")
        if mode == "append" and (key or remove):
            message = f"table {name}: {'key' if key else 'remove'}= is for mode 'upsert'"
            raise BadValue(message, hint='pass mode="upsert", or leave it out')
        one_of(guarantee, (None, *get_args(Guarantee)), "guarantee", f"table {name}")
        self.name, self.mode, self.row_removed = name, mode, remove
        self.key = self._given_key = tuple(key)
        self.updates = mode == "upsert"
        self.guarantee = guarantee or "exactly_once"
        self._connection = connection
        self._database: Database | None = None
        self._target: Target | None = None
        self._cores: int | None = None

    def spec(self) -> dict[str, Any]:
        """Return the JSON description, without passwords."""
        return {
            "kind": "table",
            "name": self.name,
            "connection": masked(self._connection),
            "mode": self.mode,
            "key": list(self._given_key),
            "remove": self.row_removed,
            "guarantee": self.guarantee,
        }

    def private_spec(self) -> object:
        """Return the connection as given."""
        return self._connection

    @classmethod
    def from_spec(cls, spec: dict[str, Any]) -> Self:
        """Rebuild it from `spec()`."""
        return cls(*(spec[name] for name in ("name", "connection", "mode", "key", "remove", "guarantee")))

    @property
    def keyed(self) -> bool:
        """Whether the last row of a key counts."""
        return self.updates

    def for_view(self, unique: tuple[str, ...] | None, removed: str, *, whole: bool) -> TableSink:
        """Follow a view by upserts and deletes."""
        if whole:
            message = "a table follows a view by its changes"
            raise BadValue(message, hint="leave out whole=True: the table has the whole view after each epoch")
        if self.mode != "upsert" or self.row_removed is not None:
            what = "remove= is for streams" if self.row_removed is not None else "mode='append' cannot replace rows"
            message = f"table {self.name}: {what}, and a view decides itself which rows are deleted"
            raise BadValue(
                message, hint='write table(..., mode="upsert"), or append the changes: view.changes().to(...)'
            )
        key = self._given_key or unique
        if not key:
            message = f"table {self.name}: no columns of the view are known to be unique"
            raise BadSchema(message, hint='pass key="..." to table(): columns that no two rows have in common')
        taker = TableSink(self.name, self._connection, self.mode, key, removed, self.guarantee)
        taker.view_key = tuple(key)
        return taker

    @property
    def takes_splits(self) -> bool:  # type: ignore[override]
        """Whether a split of a source may be a partition: appended rows have no order, and several tasks may write."""
        return self._ledger is not None and not self.updates and self.database.writers(2) > 1

    @property
    def guarantee_reason(self) -> str:
        """How the sink achieves its guarantee."""
        return "rows and ledger are written in one transaction" if self._ledger else WHY[self.guarantee]

    def describe_target(self) -> str:
        """Return the table and its database."""
        return f"table '{self.name}' {reached_by(self._connection)}"

    def configure(self, job: str, settings: Settings) -> None:
        """Resolve the connection."""
        self._database, self._cores = resolve(self._connection, settings), settings.cores

    def check(self) -> None:
        """Raise a SettingsError if the database cannot be reached."""
        try:
            self.database.check()
        except SettingsError as error:
            error.node = f"table {self.name}"
            raise

    def validate(self, schema: Schema, key: tuple[str, ...]) -> None:
        """Check that an upsert has a key, and that the database can have such column names."""
        check_column_names(self._connection, schema.names, self.name)
        if self.updates:
            _refuse_key(self.name, self._given_key or key, schema)

    def open(self, schema: Schema, key: tuple[str, ...]) -> None:
        """Create the table and the ledger if they are missing, and check an existing table against the rows."""
        rows = Schema(tuple(field for field in schema if field.name != ROW_REMOVED))
        if self.updates:
            self.key = self._given_key or key
            _refuse_key(self.name, self.key, rows)
        self._target = Target(self.name, rows, self.key)
        check_column_names(self.database.address, rows.names, self.name)
        with self.database.transaction(self.name) as session:
            make_or_check(self.database, session, self._target)
            if self._ledger is not None:
                session.make_ledger(self._ledger.name)
        # Without a ledger, rows are only partitioned if their order or the database needs it.
        apart = self._ledger is None and not self.updates
        writers = self.database.writers(self._cores or Settings.load().cores)
        self.partitions = None if apart and writers > 1 else writers

    def bind_lineage(self, lineage: str, sink: str) -> None:
        """Use the number of partitions in the ledger."""
        if self._ledger is not None:
            with self.database.transaction(self.name) as session:
                self.partitions = self._ledger.partitions(session, lineage, sink) or self.partitions

    def newest_epochs(self, lineage: str, sink: str) -> Mapping[int, str]:
        """Read the ledger."""
        if self._ledger is None:
            return {}
        with self.database.reading(self.name) as session:
            return self._ledger.newest(session, lineage, sink)

    def used_before(self, sink: str) -> bool:
        """Read the ledger; upserts replace rows, so they cannot cause duplicates."""
        if self._ledger is None or self.updates:
            return False
        with self.database.reading(self.name) as session:
            return self._ledger.has_epochs(session, sink)

    def prepare(self, epoch: Epoch, partition: int, batches: Iterable[pa.RecordBatch]) -> None:
        """Write the rows of one partition and its ledger entry in one transaction, unless the ledger has the epoch."""
        with self.database.transaction(self.name) as session:
            if self._ledger is None:
                self._write(session, batches)
            elif not self._ledger.has(session, epoch, partition, self.partitions or 1):
                self._write(session, batches)
                self._ledger.record(session, epoch, partition)

    def commit(self, epoch: Epoch, tokens: Sequence[Any]) -> None:
        """Do nothing: `prepare` has committed."""

    @property
    def database(self) -> Database:
        """The database, by the settings of the job or else of this folder."""
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
        """Yield the batches; raise SinkFailed for a null in a key column."""
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
        here = choices("columns here", schema.names)
        raise BadSchema(message, hint=f'{here}\n  pass key="..." or key=["...", "..."] to table()')


def make_or_check(database: Database, session: Session, target: Target) -> None:
    """Create the table, or raise BadSchema with all problems."""
    found = session.columns(target.table)
    if found is None:
        session.execute(creation(database, target))
        return
    wrong = list(_differences(database, target, found))
    if wrong:
        message = f"table {target.table} at {database.address} does not fit the rows:\n  " + "\n  ".join(wrong)
        raise BadSchema(message, hint="change the table, or select() and cast() before it what it takes")
    if target.key and set(target.key) not in session.unique_keys(target.table):
        message = f"table {target.table} at {database.address} has no unique index on {', '.join(target.key)}"
        index = f"CREATE UNIQUE INDEX ON {quoted(target.table)} ({listed(target.key)});"
        named = index if database.address.startswith("postgres") else index.replace(" ON", f" {_index_name(target)} ON")
        raise BadSchema(message, hint=f"upsert needs one, run: {named}")


def creation(database: Database, target: Target) -> str:
    """Return the CREATE TABLE statement."""
    columns = [
        f"{column(field.name)} {database.type_of(field)}{'' if field.nullable else ' NOT NULL'}"
        for field in target.schema
    ]
    key = [f"PRIMARY KEY ({listed(target.key)})"] if target.key else []
    return f"CREATE TABLE {quoted(target.table)} ({', '.join([*columns, *key])})"


def _differences(database: Database, target: Target, found: list[Column]) -> Iterator[str]:
    there = {column.name: column for column in found}
    for field in target.schema:
        if field.name not in there:
            add = f"ALTER TABLE {quoted(target.table)} ADD COLUMN {column(field.name)} {database.type_of(field)};"
            yield f"column '{field.name}' ({field.type}) is missing: {add}"
        elif not database.takes(there[field.name], field):
            yield f"column '{field.name}': rows have {field.type}, the table {there[field.name].type}"
    for extra in found:
        if extra.required and extra.name not in target.schema:
            yield f"column '{extra.name}' is not null without a default, and rows have none"


def _index_name(target: Target) -> str:
    return quoted(f"{target.table}_key".replace(".", "_"))


def check_column_names(url: str, names: tuple[str, ...], table: str) -> None:
    """Raise BadSchema for a column name that the database at an address does not allow."""
    found = (
        _sqlite(names) if url.startswith("sqlite:") else _postgres(names) if url.startswith("postgres") else iter(())
    )
    for wrong in found:
        message = f"table {table}: {wrong}"
        raise BadSchema(message, hint='rename it before the table: .rename(other="...")')


def _sqlite(names: tuple[str, ...]) -> Iterator[str]:
    seen: dict[str, str] = {}
    for name in names:
        if (other := seen.setdefault(_ascii_lower(name), name)) != name:
            yield f"the columns '{other}' and '{name}' differ only in case, and SQLite takes them for one"


def _postgres(names: tuple[str, ...]) -> Iterator[str]:
    for name in names:
        if len(name.encode()) > _LONGEST:
            yield f"the column '{name}' is longer than the {_LONGEST} bytes that PostgreSQL allows"
        if name in _SYSTEM:
            yield f"PostgreSQL has a column '{name}' of its own in every table"


def _ascii_lower(name: str) -> str:
    return "".join(sign.lower() if sign.isascii() else sign for sign in name)
