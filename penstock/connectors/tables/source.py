"""Tables that streams are joined with, read completely from a database, files or a topic."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

from penstock.connectors.files.listing import check_exists
from penstock.connectors.files.source import FileSource
from penstock.connectors.tables.connection import is_database, resolve
from penstock.connectors.tables.database import Database, Session, quoted
from penstock.contracts import Rejected, Source
from penstock.errors import MissingInput, PenstockError, SettingsError, SinkFailed, SourceFailed, choices
from penstock.masking import masked
from penstock.schema import Field, Schema
from penstock.settings import Settings

FILES = "files"


class TableSource(Source):
    """A table that is read completely. If `unique`, duplicate keys are an error, else the last row of a key counts."""

    unique = True

    def rows(self) -> pa.Table:
        """Return all current rows."""
        raise NotImplementedError

    def stamp(self) -> object:
        """Return a value that changes with the rows; None if only reading them shows that."""
        return None


class DatabaseTable(TableSource):
    """A table or view of PostgreSQL or SQLite, read in one statement, so as one snapshot."""

    def __init__(self, name: str, connection: str, schema: Schema | None = None, at: Settings | None = None) -> None:
        self.name, self._connection = name, connection
        self._database: Database | None = resolve(connection, at) if at else None
        self.schema = schema or self._catalog()

    def spec(self) -> dict[str, Any]:
        """Return the JSON description, without passwords."""
        where = masked(self._connection)
        return {"kind": "read_table", "name": self.name, "connection": where, "schema": self.schema.ddl}

    def private_spec(self) -> object:
        """Return the connection as given."""
        return self._connection

    @classmethod
    def from_spec(cls, spec: dict[str, Any]) -> DatabaseTable:
        """Rebuild it from `spec()`."""
        return cls(spec["name"], spec["connection"], Schema(spec["schema"]))

    def configure(self, job: str, settings: Settings) -> None:
        """Resolve the connection."""
        self._database = resolve(self._connection, settings)

    def check(self) -> None:
        """Raise if the database does not answer, or the table lacks columns of the schema."""
        there = self._catalog()
        for field in self.schema:
            if field.name not in there:
                message = f"table {self.name} at {self.database.address} has no column '{field.name}'"
                raise SettingsError(message, hint=choices("columns there", there.names, field.name))
        try:
            self._selected(" LIMIT 0")
        except SourceFailed as error:
            raise SettingsError(error.message, hint=error.hint) from error

    def rows(self) -> pa.Table:
        """Read it."""
        found = self._selected()
        return arrow_table(found, self.schema, f"table {self.name} at {self.database.address}")

    def first_rows(self, limit: int) -> pa.Table:
        """Return some rows, in no order."""
        found = self._selected(f" LIMIT {int(limit)}")
        return arrow_table(found, self.schema, f"table {self.name} at {self.database.address}")

    def stamp(self) -> object:
        """The database's own change stamp, if it has one."""
        return self.database.stamp()

    @property
    def database(self) -> Database:
        """The database, by the settings of the job or else of this folder."""
        if self._database is None:
            self._database = resolve(self._connection, Settings.load())
        return self._database

    def _catalog(self) -> Schema:
        try:
            with self._session() as session:
                found = session.fields(self.name)
        except SourceFailed as error:
            raise SettingsError(error.message, hint=error.hint) from error
        if not found:
            message = f"there is no table {self.name} at {self.database.address}"
            raise MissingInput(message, hint="create it, or check its name and the database of the connection")
        return Schema(tuple(found))

    def _selected(self, limit: str = "") -> list[tuple[Any, ...]]:
        try:
            with self._session() as session:
                chosen = [session.selected(field) for field in self.schema]
                return session.execute(f"SELECT {', '.join(chosen)} FROM {quoted(self.name)}{limit}")
        except SourceFailed as error:
            raise self._explained(error) from error

    def _explained(self, error: SourceFailed) -> SourceFailed:
        """Return an error about what is missing of the table, instead of the database's about an internal statement."""
        if error.transient:
            return error
        table = f"table {self.name} at {self.database.address}"
        if "permission denied" in error.message:
            return SourceFailed(
                f"{table}: permission denied for this user", hint=f"its owner runs: GRANT SELECT ON {self.name} TO user"
            )
        with contextlib.suppress(PenstockError), self._session() as session:
            there = [field.name for field in session.fields(self.name)]
            if not there:
                hint = "create it again, or find its new name; then run the job again: it continues from its checkpoint"
                return SourceFailed(f"{table} is missing: it was dropped or renamed", hint=hint)
            for name in (field.name for field in self.schema if field.name not in there):
                hint = f"{choices('columns there', there, name)}\n  rename it back, or change the pipeline"
                return SourceFailed(f"{table} has no column '{name}' any more", hint=hint)
        return error

    @contextmanager
    def _session(self) -> Iterator[Session]:
        try:
            self.database.ping()
            with self.database.reading(self.name) as session:
                yield session
        except SinkFailed as error:
            raise SourceFailed(error.message, hint=error.hint, transient=error.transient) from error


class FileTable(TableSource):
    """All current csv, json or Parquet files of a path, as one table."""

    def __init__(self, path: str, schema: Schema | None = None, base: str | None = None) -> None:
        self._files = FileSource(path, schema, None, base=base)
        self.name, self.schema, self._path = self._files.name, self._files.schema, path

    def spec(self) -> dict[str, Any]:
        """Return the JSON description."""
        return {"kind": "read_table", "name": self._path, "connection": FILES, "schema": self.schema.ddl}

    def set_base_path(self, folder: str) -> None:
        """Resolve the path relative to this folder."""
        self._files.set_base_path(folder)

    def check(self) -> None:
        """Raise MissingInput if there is nothing to read."""
        self._files.check()

    def rows(self) -> pa.Table:
        """Read all files."""
        self._refuse_gone()
        with tempfile.TemporaryDirectory(prefix="penstock-table-") as scratch:
            self._files.open(scratch)
            return whole(self._files, self.name)

    def stamp(self) -> object:
        """The files, and when they were written."""
        self._refuse_gone()
        found = ((path, os.stat(path)) for path in self._files.paths())
        return sorted((path, seen.st_size, seen.st_mtime_ns) for path, seen in found)

    def _refuse_gone(self) -> None:
        """Raise a transient error if the path is missing: it may be being replaced. An empty folder has no rows."""
        try:
            check_exists(self._files.where)
        except MissingInput as error:
            message = f"table {self.name}: {error.message}"
            raise SourceFailed(message, hint=error.hint, transient=True) from error


def whole(source: Source, name: str) -> pa.Table:
    """Return all current rows of a source; a rejected row is an error."""
    start = source.initial()
    end = source.latest(start, None)
    batches = []
    for item in (item for split in source.splits(start, end, 1) for item in source.read_split(split)):
        if isinstance(item, Rejected):
            message = (
                f"table {name} has a row that cannot be read: {item.reason} at {item.position}: {item.raw[:200]!r}"
            )
            raise SourceFailed(message, hint="fix it: joins with an incomplete table would silently be wrong")
        batches.append(item)
    schema = source.schema.nullable().arrow
    return pa.Table.from_batches([batch.cast(schema) for batch in batches], schema=schema)


def table_source(
    name: str, connection: str, schema: Schema | None, key: tuple[str, ...], history: str | None, settings: Settings
) -> TableSource:
    """Return the source of a table, by the kind of its connection."""
    try:
        if connection == FILES:
            return FileTable(name, schema, settings.files)
        if is_database(connection, settings):
            return DatabaseTable(name, connection, schema, settings)
        from penstock.connectors.tables.topic_table import TopicTable

        return TopicTable(name, connection, schema, key if history is None else (*key, history))
    except PenstockError as error:
        error.node = error.node or f"read_table '{name}'"
        raise


def table_from_spec(spec: dict[str, Any]) -> TableSource:
    """Rebuild a table from its `spec()`."""
    if "key" in spec:
        from penstock.connectors.tables.topic_table import TopicTable

        return TopicTable.from_spec(spec)
    if spec["connection"] == FILES:
        return FileTable(spec["name"], Schema(spec["schema"]))
    return DatabaseTable.from_spec(spec)


def arrow_table(rows: Sequence[tuple[Any, ...]], schema: Schema, where: str) -> pa.Table:
    """Return rows as a table of the schema's types; a value that does not fit is an error."""
    columns = list(zip(*rows, strict=True)) or [() for _ in schema]
    made = [_array(values, field, where) for values, field in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(made, schema=schema.nullable().arrow)


def _array(values: Sequence[Any], field: Field, where: str) -> pa.Array:
    kind = field.arrow.type
    convert = _convert(kind)
    try:
        return pa.array([None if value is None else convert(value) for value in values], kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, ValueError, ArithmeticError) as error:
        message = f"{where}: column '{field.name}' has a value that is not a {field.type}: {error}"
        raise SourceFailed(message, hint="read it with a schema= that fits, or fix the table") from error


def _convert(kind: pa.DataType) -> Any:
    """Return the conversion from a database's value to one that Arrow accepts for a type."""
    if pa.types.is_timestamp(kind):
        return _instant if kind.tz else _local
    if pa.types.is_date(kind):
        return lambda value: date.fromisoformat(value) if isinstance(value, str) else value
    if pa.types.is_decimal(kind):
        return lambda value: value if isinstance(value, Decimal) else Decimal(str(value))
    if pa.types.is_nested(kind):
        return lambda value: json.loads(value) if isinstance(value, str) else value
    if pa.types.is_boolean(kind):
        return bool
    if pa.types.is_string(kind):
        return str
    return lambda value: value


def _instant(value: Any) -> datetime:
    """Return an instant; text without a zone is UTC, as SQLite's own functions write it."""
    made = datetime.fromisoformat(value) if isinstance(value, str) else value
    return made if made.tzinfo else made.replace(tzinfo=UTC)


def _local(value: Any) -> datetime:
    return datetime.fromisoformat(value) if isinstance(value, str) else value
