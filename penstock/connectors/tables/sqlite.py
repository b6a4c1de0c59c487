"""SQLite: a database in one file, written by one task at a time."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from penstock.connectors.tables.database import Column, Database, Session, Target, column, listed, quoted, replacing
from penstock.connectors.tables.ledger import ADDED, COLUMNS
from penstock.connectors.tables.sqlite_types import affinity, python_rows, spark_type, taken, type_of
from penstock.contracts import ROW_REMOVED
from penstock.errors import BadValue, DiskFull, PenstockError, SettingsError, SinkFailed
from penstock.schema import Field
from penstock.storage.durable_files import make_folders

# Another program may be writing for so long.
_BUSY_S = 60.0
_PASSING = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
# SQLite reports a full disk as an I/O error if it is the file beside the database, of 32 KiB, that finds no space.
_LITTLE_SPACE = 1 << 16
_READ_ONLY = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM)


class Sqlite(Database):
    """One file; its folder is made if it is missing."""

    def __init__(self, path: str) -> None:
        self._path, self.address = path, f"sqlite:///{path}"

    def check(self) -> None:
        """Raise a SettingsError if the file cannot be written."""
        try:
            self._connect().close()
        except (OSError, sqlite3.Error) as error:
            message = f"{self.address} cannot be written: {error}"
            if isinstance(error, sqlite3.Error) and self._is_full(error):
                raise _disk_full(message) from error
            hint = "check the path and its permissions; an existing file must be a SQLite database"
            raise SettingsError(message, hint=hint) from error

    @contextmanager
    def transaction(self, table: str) -> Iterator[Session]:
        """Open a transaction; it waits for those of others."""
        try:
            with closing(self._connect()) as connection:
                connection.execute("BEGIN IMMEDIATE")
                yield SqliteSession(connection)
                connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise self._failed(error, table) from error
        except OSError as error:
            message = f"table {table}: {self.address} cannot be written: {error}"
            raise SinkFailed(message, hint="grant this user write access to the file and its folder") from error

    def ping(self) -> None:
        """Raise if there is no such file."""
        if not os.path.isfile(self._path):
            message = f"there is no database {self.address}"
            raise SinkFailed(message, hint="check the path; a relative one starts from `files` of the settings")

    @contextmanager
    def reading(self, table: str) -> Iterator[Session]:
        """Open a transaction that only reads."""
        try:
            with closing(sqlite3.connect(f"file:{quote(self._path)}?mode=ro", uri=True, timeout=_BUSY_S)) as connection:
                yield SqliteSession(connection)
        except sqlite3.Error as error:
            raise self._failed(error, table) from error

    def stamp(self) -> object:
        """Size and time of the file and of what was written next to it."""
        files = [path for path in (self._path, f"{self._path}-wal") if os.path.exists(path)]
        return [(path, os.stat(path).st_size, os.stat(path).st_mtime_ns) for path in files]

    def writers(self, cores: int) -> int:
        """Return one: SQLite has one writer at a time."""
        return 1

    def type_of(self, field: Field) -> str:
        """Return the type of a new column."""
        return type_of(field.type)

    def takes(self, column: Column, field: Field) -> bool:
        """Return whether a column keeps the values as they are: SQLite converts them by its affinity."""
        return affinity(column.type) in taken(field.type)

    def _connect(self) -> sqlite3.Connection:
        make_folders([os.path.dirname(self._path)])
        connection = sqlite3.connect(self._path, timeout=_BUSY_S, isolation_level=None)
        # Readers and the one writer then do not wait for each other.
        connection.execute("PRAGMA journal_mode = WAL")
        # A commit is on the disk when it returns; builds of SQLite may have a laxer default for WAL.
        connection.execute("PRAGMA synchronous = FULL")
        return connection

    def _failed(self, error: sqlite3.Error, table: str) -> PenstockError:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        message = f"table {table} at {self.address}: {error}"
        if self._is_full(error):
            return _disk_full(message)
        if code in _PASSING:
            return SinkFailed(message, hint="end the long transaction of the program that has it open", transient=True)
        if code in _READ_ONLY:
            return SinkFailed(message, hint="grant this user write access to the file and its folder")
        if code == sqlite3.SQLITE_CONSTRAINT:
            hint = 'filter() such rows before, or replace rows of the same key with mode="upsert"'
            return SinkFailed(message, hint=hint)
        return SinkFailed(message, hint="check the table, then run the job again")

    def _is_full(self, error: sqlite3.Error) -> bool:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code != sqlite3.SQLITE_IOERR:
            return code == sqlite3.SQLITE_FULL
        return shutil.disk_usage(os.path.dirname(self._path) or ".").free < _LITTLE_SPACE


def _disk_full(message: str) -> DiskFull:
    return DiskFull(message, hint="free some space, and run the job again")


class SqliteSession(Session):
    """One transaction of SQLite."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def execute(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """Run one statement, and return its rows."""
        return self._connection.execute(sql, values).fetchall()

    def make_ledger(self, ledger: str) -> None:
        """Make the ledger, unless it is there."""
        self.execute(f"CREATE TABLE IF NOT EXISTS {quoted(ledger)} ({COLUMNS})")
        if ADDED[0] not in [column.name for column in self.columns(ledger) or []]:
            self.execute(f"ALTER TABLE {quoted(ledger)} ADD COLUMN {' '.join(ADDED)}")

    def columns(self, table: str) -> list[Column] | None:
        """Return what a table has."""
        if "." in table:
            message = f"table {table!r}: SQLite has no schemas, so no dot can be in a name"
            raise BadValue(message, hint=f"write table({table.rpartition('.')[2]!r}, ...)")
        found = self.execute('SELECT name, type, "notnull" AND dflt_value IS NULL FROM pragma_table_info(?)', table)
        return [Column(name, kind, bool(required)) for name, kind, required in found] or None

    def fields(self, table: str) -> list[Field]:
        """Return the columns by their declared types."""
        found = self.execute('SELECT name, type, "notnull" FROM pragma_table_info(?)', table)
        return [Field(name, spark_type(kind), not required) for name, kind, required in found]

    def unique_keys(self, table: str) -> list[set[str]]:
        """Return the primary key, and the columns of each unique index without a condition."""
        primary = self.execute("SELECT name FROM pragma_table_info(?) WHERE pk > 0", table)
        indexes = self.execute('SELECT name FROM pragma_index_list(?) WHERE "unique" AND NOT partial', table)
        each = [self.execute("SELECT name FROM pragma_index_info(?)", name) for (name,) in indexes]
        return [{name for (name,) in names} for names in [primary, *each]]

    def append(self, target: Target, batches: Iterable[pa.RecordBatch]) -> None:
        """Insert rows."""
        for batch in batches:
            self._insert(target, python_rows(batch, target.schema), "")

    def upsert(self, target: Target, batches: Iterable[pa.RecordBatch]) -> None:
        """Insert or replace the last row of each key, or remove it."""
        positions = [target.schema.names.index(name) for name in target.key]
        for batch in batches:
            rows = list(python_rows(batch, target.schema))
            asked = ROW_REMOVED in batch.schema.names
            removed = batch.column(ROW_REMOVED).to_pylist() if asked else [False] * len(rows)
            last = {tuple(row[n] for n in positions): (row, gone) for row, gone in zip(rows, removed, strict=True)}
            where = " AND ".join(f"{column(name)} = ?" for name in target.key)
            delete = f"DELETE FROM {quoted(target.table)} WHERE {where}"
            self._connection.executemany(delete, [key for key, (_, gone) in last.items() if gone])
            self._insert(target, [row for row, gone in last.values() if not gone], replacing(target))

    def _insert(self, target: Target, rows: Iterable[Sequence[Any]], end: str) -> None:
        placeholders = ", ".join("?" for _ in target.schema)
        insert = f"INSERT INTO {quoted(target.table)} ({listed(target.schema.names)}) VALUES ({placeholders}) {end}"
        self._connection.executemany(insert, rows)
