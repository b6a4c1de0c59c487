"""What all repositories share: where their connections come from, and rows as records."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

from sqlalchemy import Connection, Table
from sqlalchemy.dialects import postgresql, sqlite

Record = TypeVar("Record")


class Connections(Protocol):
    """Where a repository gets its connections: from a store, one transaction a call; or from one transaction."""

    clock: Callable[[], float]

    def reading(self) -> AbstractContextManager[Connection]:
        """Return a connection for a transaction that only reads."""

    def writing(self) -> AbstractContextManager[Connection]:
        """Return a connection for a transaction that may write."""


class Repository:
    """Reads and writes the records of one noun."""

    def __init__(self, connections: Connections) -> None:
        self._reading, self._writing = connections.reading, connections.writing
        self._clock = connections.clock


def record(kind: type[Record], row: Any) -> Record:
    """Return a row as a record, a frozen dataclass; the names of its columns are those of the record's fields.

    Without `__init__`, which sets one field after the other: that was most of the time of a list.
    """
    made = object.__new__(kind)
    made.__dict__.update(zip(row._fields, row, strict=True))
    return made


def insert_into(connection: Connection, table: Table) -> sqlite.Insert | postgresql.Insert:
    """Return an INSERT that can have ON CONFLICT, which SQLAlchemy has per dialect."""
    return sqlite.insert(table) if connection.dialect.name == "sqlite" else postgresql.insert(table)
