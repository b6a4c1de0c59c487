"""PostgreSQL: rows by COPY, one transaction for rows and ledger."""

from __future__ import annotations

import atexit
import os
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import psycopg
import pyarrow as pa
from psycopg.conninfo import conninfo_to_dict

from penstock.connectors.tables.database import (
    Column,
    Database,
    Session,
    Target,
    column,
    listed,
    quoted,
    replacing,
)
from penstock.connectors.tables.ledger import ADDED, COLUMNS
from penstock.connectors.tables.postgres_types import TAKEN, csv_rows, spark_type, type_of
from penstock.contracts import ROW_REMOVED
from penstock.errors import BadValue, DiskFull, PenstockError, SettingsError, SinkFailed
from penstock.masking import is_secret, masked, without
from penstock.schema import Field

# A server that is being restarted is back within this time.
_PATIENCE_S = 30.0
_CONNECT_S = "10"
_PAUSES_S = (0.1, 0.2, 0.5, 1.0)
# Times are written as UTC. A worker's host that vanishes must not hold its ledger's lock for hours.
_SESSION = """
    SET timezone = 'UTC'; SET datestyle = 'ISO';
    SET tcp_keepalives_idle = 30; SET tcp_keepalives_interval = 10; SET tcp_keepalives_count = 3;
    SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'
"""
_COLUMNS = """
    SELECT a.attname, format_type(a.atttypid, NULL), t.typcategory = 'E',
        a.attnotnull AND NOT a.atthasdef AND a.attidentity = ''
    FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
    WHERE a.attrelid = to_regclass(?) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
_FIELDS = """
    SELECT attname, format_type(atttypid, atttypmod), attnotnull FROM pg_attribute
    WHERE attrelid = to_regclass(?) AND attnum > 0 AND NOT attisdropped ORDER BY attnum
"""
_UNIQUE = """
    SELECT array_agg(a.attname::text) FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid
        AND a.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1])
    WHERE i.indrelid = to_regclass(?) AND i.indisunique AND i.indisvalid AND i.indimmediate
        AND i.indpred IS NULL AND i.indexprs IS NULL
    GROUP BY i.indexrelid
"""
_ROWS, _ORDER = "penstock_rows", "__penstock_order"
_ENUM = " (enum)"
# Idle connections: Spark's workers live longer than their tasks.
_idle: dict[tuple[int, str], list[psycopg.Connection]] = {}
# Transient classes and codes of SQLSTATE: a retry of the transaction can succeed.
_TRANSIENT = ("08", "40", "57P", "55P03", "53300", "53200", "53400")
_HINTS = {
    "22": "cast() or filter() such values before, or alter the column",
    "23502": 'leave such rows out before: .filter("... IS NOT NULL"), or alter the column: DROP NOT NULL',
    "23505": 'a row with that key is there already: write with mode="upsert" to replace it',
    "23": "check the table's constraints, and filter() rows that violate them",
    "25006": "connect to a server that can be written, not to a standby",
    "3F": "create the schema: CREATE SCHEMA ...",
    "42P01": "do not drop the table while a job runs; run the job again: it is created if it is missing",
    "42": "check the table, then run the job again",
}
# Errors of connecting have no SQLSTATE code.
_LOGIN_HINTS = {
    re.compile("authentication failed"): "check user and password of the connection",
    re.compile("no password supplied"): "write it: postgresql://user:password@host/database",
    re.compile("no pg_hba.conf entry"): "allow this user in the server's pg_hba.conf, or try sslmode=require",
    re.compile('database ".*" does not exist'): "check the connection's database, or create it: createdb NAME",
    re.compile('role ".*" does not exist'): "check the connection's user, or create it: createuser NAME",
}


@atexit.register
def close_idle() -> None:
    """Close the connections that no transaction is using."""
    for (process, _), waiting in _idle.items():
        while process == os.getpid() and waiting:
            waiting.pop().close()


class Postgres(Database):
    """One database of a PostgreSQL server."""

    def __init__(self, url: str) -> None:
        self._url, self.address = url, masked(url)
        try:
            self.login: dict[str, Any] = conninfo_to_dict(url)
        except psycopg.ProgrammingError as error:
            raise self._unreadable() from error
        # A bare "@" in a password: libpq takes what follows as the host, and errors would show it. "@name" is a socket.
        if "@" in str(self.login.get("host", ""))[1:] or url.partition("?")[0].count("@") > 1:
            raise self._unreadable()

    def _unreadable(self) -> BadValue:
        message = f"{self.address!r} is not the address of a PostgreSQL database"
        hint = 'write "postgresql://user:password@host:5432/database"; in a password, "/" is %2F and "@" is %40'
        return BadValue(message, hint=hint)

    @property
    def _secrets(self) -> list[str]:
        return [str(value) for name, value in self.login.items() if is_secret(name)]

    def check(self) -> None:
        """Raise a SettingsError if the server cannot be reached or rejects the login."""
        try:
            self.ping()
        except PostgresUnavailable as error:
            raise SettingsError(error.message, hint=error.hint) from error

    def ping(self) -> None:
        """Raise at once if the server cannot be reached or rejects the login."""
        self._connect().close()

    @contextmanager
    def transaction(self, table: str) -> Iterator[Session]:
        """Open a transaction on a pooled connection."""
        connection = self._borrow()
        try:
            with connection.transaction():
                yield PostgresSession(connection)
        except psycopg.Error as error:
            connection.close()
            raise failed(error, table, self.address) from error
        except BaseException:
            connection.close()
            raise
        _idle.setdefault(self._pool_key, []).append(connection)

    @contextmanager
    def reading(self, table: str) -> Iterator[Session]:
        """Open a transaction that only reads."""
        with self.transaction(table) as session:
            session.execute("SET TRANSACTION READ ONLY")
            yield session

    def writers(self, cores: int) -> int:
        """Return one for each core."""
        return cores

    def type_of(self, field: Field) -> str:
        """Return the type of a new column."""
        return type_of(field.type)

    def takes(self, column: Column, field: Field) -> bool:
        """Return whether the column's input reads the field's text."""
        kind = field.type.partition("<")[0].partition("(")[0]
        return column.type in TAKEN[kind] or (kind == "string" and column.type.endswith(_ENUM))

    @property
    def _pool_key(self) -> tuple[int, str]:
        return os.getpid(), self._url

    def _borrow(self) -> psycopg.Connection:
        waiting = _idle.get(self._pool_key, [])
        while waiting:
            connection = waiting.pop()
            try:
                connection.execute("SELECT 1")
                return connection
            except psycopg.Error:
                connection.close()
        return self._connect_with_retry()

    def _connect_with_retry(self) -> psycopg.Connection:
        """Connect, and retry: the server may be restarting."""
        deadline, tries = time.monotonic() + _PATIENCE_S, 0
        while True:
            try:
                return self._connect()
            except PostgresUnavailable as error:
                if not error.transient or time.monotonic() > deadline:
                    raise
            time.sleep(_PAUSES_S[min(tries, len(_PAUSES_S) - 1)])
            tries += 1

    def _connect(self) -> psycopg.Connection:
        mine = {"connect_timeout": _CONNECT_S, "application_name": "penstock"} | self.login
        try:
            connection = psycopg.connect(**mine, autocommit=True)
            connection.execute(_SESSION)
        except psycopg.Error as error:
            raise no_connection(error, self.address, self._secrets) from error
        return connection


class PostgresSession(Session):
    """One transaction of PostgreSQL."""

    def __init__(self, connection: psycopg.Connection) -> None:
        self._connection = connection

    def execute(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """Run one statement, and return its rows."""
        text = sql.replace("%", "%%").replace("?", "%s") if values else sql
        done = self._connection.execute(text.encode(), values or None)
        return done.fetchall() if done.description else []

    def make_ledger(self, ledger: str) -> None:
        """Create the ledger if it is missing; another job may do so at the same time."""
        if not self._has(ledger):
            self.execute("SELECT pg_advisory_xact_lock(hashtext('penstock_ledger'))")
            self.execute(f"CREATE TABLE IF NOT EXISTS {quoted(ledger)} ({COLUMNS})")
        elif ADDED[0] not in [column.name for column in self.columns(ledger) or []]:
            self.execute(f"ALTER TABLE {quoted(ledger)} ADD COLUMN IF NOT EXISTS {' '.join(ADDED)}")

    def columns(self, table: str) -> list[Column] | None:
        """Return the columns of a table from the catalog."""
        if not self._has(table):
            return None
        found = self.execute(_COLUMNS, quoted(table))
        return [Column(name, kind + (_ENUM if enum else ""), required) for name, kind, enum, required in found]

    def fields(self, table: str) -> list[Field]:
        """Return the columns by what the catalog says of their types."""
        found = self.execute(_FIELDS, quoted(table)) if self._has(table) else []
        return [Field(name, spark_type(kind), not required) for name, kind, required in found]

    def selected(self, field: Field) -> str:
        """Read as text what Spark has as text: uuid, json, enums."""
        plain = field.type != "string" and "<" not in field.type
        return column(field.name) if plain else f"{column(field.name)}::text"

    def unique_keys(self, table: str) -> list[set[str]]:
        """Return the columns of each unique index that ON CONFLICT can use."""
        return [set(names) for (names,) in self.execute(_UNIQUE, quoted(table))]

    def append(self, target: Target, batches: Iterable[pa.RecordBatch]) -> None:
        """Copy rows into the table."""
        self._copy(quoted(target.table), target.schema.names, batches)

    def upsert(self, target: Target, batches: Iterable[pa.RecordBatch]) -> None:
        """Copy rows to a temporary table, and merge the last one of each key."""
        names, key = listed(target.schema.names), listed(target.key)
        self.execute(
            f"CREATE TEMP TABLE {_ROWS} ON COMMIT DROP AS SELECT {names}, 0::bigint AS {_ORDER}, "
            f"false AS {column(ROW_REMOVED)} FROM {quoted(target.table)} WITH NO DATA"
        )
        self._copy(_ROWS, [*target.schema.names, _ORDER, ROW_REMOVED], _ordered(target, batches))
        last = f"(SELECT DISTINCT ON ({key}) * FROM {_ROWS} ORDER BY {key}, {_ORDER} DESC)"
        same = " AND ".join(f"old.{column(name)} = new.{column(name)}" for name in target.key)
        table, removed = quoted(target.table), f"new.{column(ROW_REMOVED)}"
        self.execute(f"DELETE FROM {table} AS old USING {last} AS new WHERE {removed} AND {same}")
        self.execute(
            f"INSERT INTO {table} ({names}) SELECT {names} FROM {last} AS new WHERE NOT {removed} {replacing(target)}"
        )

    def _has(self, table: str) -> bool:
        return self.execute("SELECT to_regclass(?)", quoted(table))[0][0] is not None

    def _copy(self, table: str, names: Iterable[str], batches: Iterable[pa.RecordBatch]) -> None:
        order = list(names)
        statement = f"COPY {table} ({listed(order)}) FROM STDIN (FORMAT csv)"
        with self._connection.cursor() as cursor, cursor.copy(statement.encode()) as copy:
            for batch in batches:
                copy.write(csv_rows(batch.select(order)))


def _ordered(target: Target, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Number the rows, and say of each whether it removes its key."""
    begin = 0
    for batch in batches:
        end = begin + batch.num_rows
        asked = ROW_REMOVED in batch.schema.names
        removed = batch.column(ROW_REMOVED) if asked else pa.array(np.zeros(batch.num_rows, bool))
        columns = [*batch.select(list(target.schema.names)).columns, pa.array(np.arange(begin, end)), removed]
        yield pa.RecordBatch.from_arrays(columns, names=[*target.schema.names, _ORDER, ROW_REMOVED])
        begin = end


class PostgresUnavailable(SinkFailed):
    """There is no connection to the database."""


def failed(error: psycopg.Error, table: str, address: str) -> PenstockError:
    """Return an error of a statement."""
    code, said = error.sqlstate or "", _said(error)
    message = f"table {table} at {address}: {said}"
    if code == "53100":
        return DiskFull(message, hint="free some space where the database is, and run the job again")
    if code == "42501":
        return SinkFailed(message, hint=_grant(table))
    if code.startswith(_TRANSIENT) or (not code and isinstance(error, psycopg.OperationalError)):
        return SinkFailed(message, hint="check that the database is running, then run the job again", transient=True)
    hint = next((hint for start, hint in _HINTS.items() if code.startswith(start)), None)
    return SinkFailed(message, hint=hint)


def no_connection(error: psycopg.Error, address: str, secrets: Iterable[str] = ()) -> PostgresUnavailable:
    """Return an error of connecting; the server's reason comes as text only."""
    # The last line of libpq's message may be a question that repeats the hint.
    said = without(str(error), secrets).partition("\n\tIs the server running")[0].strip().splitlines()[-1].strip()
    for reason, hint in _LOGIN_HINTS.items():
        if reason.search(said):
            message = f"{address} refuses the login: {said.rpartition('FATAL:')[2].strip()}"
            return PostgresUnavailable(message, hint=hint)
    hint = "check that PostgreSQL is running there, and host and port of the connection"
    return PostgresUnavailable(
        f"{address} does not answer: {said.rpartition(' failed: ')[2]}", hint=hint, transient=True
    )


def _said(error: psycopg.Error) -> str:
    main = error.diag.message_primary or str(error).strip() or type(error).__name__
    where = (error.diag.context or "").partition("\n")[0]
    return f"{main} ({where})" if where else main


def _grant(table: str) -> str:
    return (
        f"who owns them runs: GRANT SELECT, INSERT, UPDATE, DELETE ON {table}, penstock_ledger TO user; "
        "to have them made by the job: GRANT CREATE ON SCHEMA public TO user"
    )
