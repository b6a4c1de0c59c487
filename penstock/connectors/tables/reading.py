"""Tables that streams are joined with: read whole, from a database, from files or from a topic."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from penstock.connectors.files import FileSource
from penstock.connectors.listing import refuse_missing
from penstock.connectors.tables.connection import is_database, resolve
from penstock.connectors.tables.database import Database, Session, quoted
from penstock.connectors.tables.reading_values import arrow_table
from penstock.contracts import Rejected, Source
from penstock.errors import MissingInput, PenstockError, SettingsError, SinkFailed, SourceFailed, choices
from penstock.masking import masked
from penstock.schema import Schema
from penstock.settings import Settings

FILES = "files"


class TableSource(Source):
    """A table that is read whole; `unique` if a key that is there twice is a mistake, else its last row counts."""

    unique = True

    def rows(self) -> pa.Table:
        """Return all rows as they are now."""
        raise NotImplementedError

    def stamp(self) -> object:
        """Return something that is equal as long as the rows are the same; None if only reading them tells."""
        return None


class DatabaseTable(TableSource):
    """A table or view of PostgreSQL or SQLite, read in one statement, and so at one moment."""

    def __init__(self, name: str, connection: str, schema: Schema | None = None, at: Settings | None = None) -> None:
        self.name, self._connection = name, connection
        self._database: Database | None = resolve(connection, at) if at else None
        self.schema = schema or self._catalog()

    def spec(self) -> dict[str, Any]:
        """Return what rebuilds it from JSON; passwords are left out."""
        where = masked(self._connection)
        return {"kind": "read_table", "name": self.name, "connection": where, "schema": self.schema.ddl}

    def hidden(self) -> object:
        """Return the connection as it was given."""
        return self._connection

    @classmethod
    def from_spec(cls, spec: dict[str, Any]) -> DatabaseTable:
        """Rebuild it from `spec()`."""
        return cls(spec["name"], spec["connection"], Schema(spec["schema"]))

    def within(self, job: str, settings: Settings) -> None:
        """Learn where the database is."""
        self._database = resolve(self._connection, settings)

    def check(self) -> None:
        """Raise if the database does not answer, or the table lacks what the schema says."""
        there = self._catalog()
        for field in self.schema:
            if field.name not in there:
                message = f"table {self.name} at {self._at.place} has no column '{field.name}'"
                raise SettingsError(message, hint=choices("columns there", there.names, field.name))
        try:
            self._selected(" LIMIT 0")
        except SourceFailed as error:
            raise SettingsError(error.message, hint=error.hint) from error

    def rows(self) -> pa.Table:
        """Read it."""
        found = self._selected()
        return arrow_table(found, self.schema, f"table {self.name} at {self._at.place}")

    def stamp(self) -> object:
        """What the database itself says about change, if it does."""
        return self._at.stamp()

    @property
    def _at(self) -> Database:
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
            message = f"there is no table {self.name} at {self._at.place}"
            raise MissingInput(message, hint="create it, or look at its name and at the database of the connection")
        return Schema(tuple(found))

    def _selected(self, limit: str = "") -> list[tuple[Any, ...]]:
        try:
            with self._session() as session:
                chosen = [session.selected(field) for field in self.schema]
                return session.execute(f"SELECT {', '.join(chosen)} FROM {quoted(self.name)}{limit}")
        except SourceFailed as error:
            raise self._explained(error) from error

    def _explained(self, error: SourceFailed) -> SourceFailed:
        """Say what of the table is gone, in place of the database's words about a statement that nobody wrote."""
        if error.transient:
            return error
        table = f"table {self.name} at {self._at.place}"
        if "permission denied" in error.message:
            return SourceFailed(
                f"{table} may not be read by this user", hint=f"its owner runs: GRANT SELECT ON {self.name} TO user"
            )
        with contextlib.suppress(PenstockError), self._session() as session:
            there = [field.name for field in session.fields(self.name)]
            if not there:
                hint = (
                    "create it again, or look for its new name; then run the job again: it goes on from its checkpoint"
                )
                return SourceFailed(f"{table} is gone: it was dropped or renamed", hint=hint)
            for name in (field.name for field in self.schema if field.name not in there):
                hint = f"{choices('columns there', there, name)}\n  give it its name back, or change the pipeline"
                return SourceFailed(f"{table} has no column '{name}' any more", hint=hint)
        return error

    @contextmanager
    def _session(self) -> Iterator[Session]:
        try:
            self._at.answers()
            with self._at.reading(self.name) as session:
                yield session
        except SinkFailed as error:
            raise SourceFailed(error.message, hint=error.hint, transient=error.transient) from error


class FileTable(TableSource):
    """Files of csv, json or Parquet: all that are there are the table."""

    def __init__(self, path: str, schema: Schema | None = None, base: str | None = None) -> None:
        self._files = FileSource(path, schema, None, base=base)
        self.name, self.schema, self._path = self._files.name, self._files.schema, path

    def spec(self) -> dict[str, Any]:
        """Return what rebuilds it from JSON."""
        return {"kind": "read_table", "name": self._path, "connection": FILES, "schema": self.schema.ddl}

    def under(self, folder: str) -> None:
        """Look for the path below this folder, unless it is absolute."""
        self._files.under(folder)

    def check(self) -> None:
        """Raise MissingInput if there is nothing to read."""
        self._files.check()

    def rows(self) -> pa.Table:
        """Read all files."""
        self._refuse_gone()
        with tempfile.TemporaryDirectory(prefix="penstock-table-") as notes:
            self._files.open(notes)
            return whole(self._files, self.name)

    def stamp(self) -> object:
        """The files, and when they were written."""
        self._refuse_gone()
        found = ((path, os.stat(path)) for path in self._files.paths())
        return sorted((path, seen.st_size, seen.st_mtime_ns) for path, seen in found)

    def _refuse_gone(self) -> None:
        """Raise if the file or folder is not there: it may be on its way to be replaced. An empty folder is no rows."""
        try:
            refuse_missing(self._files.where)
        except MissingInput as error:
            message = f"table {self.name}: {error.message}"
            raise SourceFailed(message, hint=error.hint, transient=True) from error


def whole(source: Source, name: str) -> pa.Table:
    """Return all rows of a source that are there now; one that cannot be read is an error."""
    start = source.initial()
    end = source.latest(start, None)
    batches = []
    for item in (item for split in source.splits(start, end, 1) for item in source.read_split(split)):
        if isinstance(item, Rejected):
            message = (
                f"table {name} has a row that cannot be read: {item.reason} at {item.position}: {item.raw[:200]!r}"
            )
            raise SourceFailed(message, hint="mend it: a table with a hole would join wrongly, in silence")
        batches.append(item)
    schema = source.schema.nullable().arrow
    return pa.Table.from_batches([batch.cast(schema) for batch in batches], schema=schema)


def table_source(
    name: str, connection: str, schema: Schema | None, key: tuple[str, ...], history: str | None, settings: Settings
) -> TableSource:
    """Return what reads a table; the connection tells the kind of it."""
    try:
        if connection == FILES:
            return FileTable(name, schema, settings.files)
        if is_database(connection, settings):
            return DatabaseTable(name, connection, schema, settings)
        from penstock.connectors.tables.reading_topics import TopicTable

        return TopicTable(name, connection, schema, key if history is None else (*key, history))
    except PenstockError as error:
        error.node = error.node or f"read_table '{name}'"
        raise


def table_from_spec(spec: dict[str, Any]) -> TableSource:
    """Rebuild a table from its `spec()`."""
    if "key" in spec:
        from penstock.connectors.tables.reading_topics import TopicTable

        return TopicTable.from_spec(spec)
    if spec["connection"] == FILES:
        return FileTable(spec["name"], Schema(spec["schema"]))
    return DatabaseTable.from_spec(spec)
