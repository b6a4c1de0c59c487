"""The engine of a store: SQLite or PostgreSQL by URL, and what their errors mean."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DatabaseError, InterfaceError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from penstock.control.store.columns import from_json, to_json
from penstock.errors import DiskFull, PenstockError, StoreFailed, StoreUnavailable, UnknownSetting
from penstock.masking import masked, masked_text

# A transaction that writes takes SQLite's write lock when it begins: taken later, it can fail instead of waiting.
_WRITING = "penstock_writing"
_BUSY_SECONDS = 10
_PRAGMAS = (
    "journal_mode=WAL",
    "synchronous=FULL",  # a command that was accepted survives a power failure
    "foreign_keys=ON",
    "journal_size_limit=67108864",
)
# An unreachable database is reported in seconds. libpq's own defaults are minutes, or never.
_POSTGRESQL = {
    "connect_timeout": "5",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "20000",
    "application_name": "penstock",
    "options": "-c statement_timeout=30000 -c lock_timeout=10000 -c idle_in_transaction_session_timeout=60000",
}
_EXAMPLES = "for example sqlite:///penstock.db or postgresql://USER:PASSWORD@HOST/DATABASE"


def open_engine(address: str) -> Engine:
    """Return the engine of a URL; connects later."""
    url = _parsed(address)
    return _sqlite(url) if url.get_backend_name() == "sqlite" else _postgresql(url)


def writing_engine(engine: Engine) -> Engine:
    """Return the engine with the same connections for transactions that may write."""
    return engine.execution_options(penstock_writing=True)


def _parsed(address: str) -> URL:
    try:
        url = make_url(address)
        backend = url.get_backend_name()
    except (ArgumentError, ValueError) as error:
        message = f"{masked(address)!r} is not the URL of a store"
        raise UnknownSetting(message, node="store", hint=_EXAMPLES) from error
    if backend not in ("sqlite", "postgresql"):
        message = f"a store cannot be in {backend!r}"
        raise UnknownSetting(message, node="store", hint=_EXAMPLES)
    if backend == "sqlite" and (not url.database or url.database == ":memory:"):
        message = "a store in memory would be lost with the process"
        raise UnknownSetting(message, node="store", hint=_EXAMPLES)
    return url


def _sqlite(url: URL) -> Engine:
    path = Path(url.database or "")
    path.parent.mkdir(parents=True, exist_ok=True)
    # Arguments of jobs are nobody else's business; SQLite gives its other files the same mode.
    path.touch(mode=0o600)
    engine = create_engine(
        url.set(drivername="sqlite+pysqlite"),
        json_serializer=to_json,
        json_deserializer=from_json,
        connect_args={"timeout": _BUSY_SECONDS},
        pool_size=5,
        max_overflow=15,
        pool_timeout=_BUSY_SECONDS,
    )
    event.listen(engine, "connect", _configure_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _configure_sqlite(connection: sqlite3.Connection, _: object) -> None:
    # Otherwise the driver begins transactions by itself, late, and never for a migration.
    connection.isolation_level = None
    for pragma in _PRAGMAS:
        connection.execute(f"PRAGMA {pragma}")


def _begin_sqlite(connection: Connection) -> None:
    writing = connection.get_execution_options().get(_WRITING, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writing else "BEGIN")


def _postgresql(url: URL) -> Engine:
    options = {name: value for name, value in _POSTGRESQL.items() if name not in url.query}
    return create_engine(
        url.set(drivername="postgresql+psycopg"),
        json_serializer=to_json,
        json_deserializer=from_json,
        connect_args=options,
        pool_pre_ping=True,  # after a restart of the database the pool has dead connections
        pool_size=10,
        max_overflow=10,
        pool_timeout=_BUSY_SECONDS,
    )


@contextmanager
def translated_errors(address: str) -> Iterator[None]:
    """Raise errors of the database as Penstock's, if they are of the database and not of a statement."""
    try:
        yield
    except PoolTimeout as error:
        raise _unavailable(address, "all connections are in use") from error
    except (DatabaseError, InterfaceError) as error:
        meaning = _meaning(address, error)
        if meaning is None:
            raise
        raise meaning from error


def _meaning(address: str, error: DatabaseError | InterfaceError) -> PenstockError | None:
    reason = masked_text(str(error.orig).strip().partition("\n")[0])
    if isinstance(error.orig, sqlite3.Error):
        return _sqlite_meaning(address, reason, getattr(error.orig, "sqlite_errorcode", None) or 0)
    state = getattr(error.orig, "sqlstate", None)
    if state == "53100":
        return _disk_full(address, reason)
    if isinstance(error, InterfaceError) or error.connection_invalidated or _is_outage(error.orig, state):
        return _unavailable(address, reason)
    return None


def _is_outage(cause: Any, state: str | None) -> bool:
    # Classes of SQLSTATE: connections, resources, an operator's intervention, the system, conflicts of transactions,
    # a lock that was not available, a standby that is read-only. Without a state there was no connection.
    if state is None:
        return type(cause).__name__ == "OperationalError"
    return state[:2] in ("08", "53", "57", "58", "40") or state in ("55P03", "25006")


def _sqlite_meaning(address: str, reason: str, code: int) -> PenstockError | None:
    primary = code & 0xFF  # the rest says more about the same error
    if primary == sqlite3.SQLITE_FULL:
        return _disk_full(address, reason)
    if primary in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        hint = "restore the file from a copy, or choose another with --store"
        return StoreFailed(f"{masked(address)}: {reason}", node="store", hint=hint)
    passing = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN)
    if primary in (*passing, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PROTOCOL):
        return _unavailable(address, reason)
    return None


def _disk_full(address: str, reason: str) -> DiskFull:
    hint = "free some space; running jobs go on"
    return DiskFull(f"no space is left for {masked(address)}: {reason}", node="store", hint=hint, transient=True)


def _unavailable(address: str, reason: str) -> StoreUnavailable:
    message = f"{masked(address)} does not answer: {reason}"
    hint = "check that the database runs and can be reached; running jobs go on meanwhile"
    return StoreUnavailable(message, node="store", hint=hint, transient=True)
