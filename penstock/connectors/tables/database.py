"""The interface of a database, for the table sink and for table sources."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.schema import Field, Schema


@dataclass(frozen=True)
class Target:
    """The target table of a sink; with a key, rows are upserted."""

    table: str
    schema: Schema
    key: tuple[str, ...] = ()


@dataclass(frozen=True)
class Column:
    """A column of a table: its type in the database, and whether a new row must have a value for it."""

    name: str
    type: str
    required: bool


class Session(ABC):
    """One transaction."""

    @abstractmethod
    def execute(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """Run one statement, with `?` where values go, and return its rows."""

    @abstractmethod
    def make_ledger(self, ledger: str) -> None:
        """Create the ledger if it is missing."""

    @abstractmethod
    def columns(self, table: str) -> list[Column] | None:
        """Return the columns of a table, or None if it does not exist."""

    @abstractmethod
    def unique_keys(self, table: str) -> list[set[str]]:
        """Return the sets of columns that are unique in the table."""

    @abstractmethod
    def fields(self, table: str) -> list[Field]:
        """Return the columns of a table or view, as Spark would have them; none if it does not exist."""

    def selected(self, field: Field) -> str:
        """Return the SQL that reads a column."""
        return column(field.name)

    @abstractmethod
    def append(self, target: Target, batches: Iterable[pa.RecordBatch]) -> None:
        """Add rows."""

    @abstractmethod
    def upsert(self, target: Target, batches: Iterable[pa.RecordBatch]) -> None:
        """Replace the row of each key by its last one, or remove it if that one's column ROW_REMOVED contains."""


class Database(ABC):
    """One database; it contains no connection, so that it can be sent to tasks."""

    # The address without its password, for errors.
    address: str

    @abstractmethod
    def check(self) -> None:
        """Raise a SettingsError if it cannot be used."""

    @abstractmethod
    def transaction(self, table: str) -> AbstractContextManager[Session]:
        """Open a transaction that commits at its end, and rolls back on an error; errors name the table."""

    @abstractmethod
    def ping(self) -> None:
        """Raise if the database cannot be reached or rejects the login; creates nothing."""

    @abstractmethod
    def reading(self, table: str) -> AbstractContextManager[Session]:
        """Open a transaction that only reads."""

    def stamp(self) -> object:
        """Return a value that changes with every write; None if there is none."""
        return None

    @abstractmethod
    def writers(self, cores: int) -> int:
        """Return how many tasks may write at once."""

    @abstractmethod
    def type_of(self, field: Field) -> str:
        """Return the type of a new column."""

    @abstractmethod
    def takes(self, column: Column, field: Field) -> bool:
        """Return whether an existing column contains each value of a field, unchanged or refused with an error."""


def quoted(name: str) -> str:
    """Quote a name for SQL; a dot parts a schema and what is in it.

    >>> quoted("sales.order")
    '"sales"."order"'
    """
    return ".".join('"' + part.replace('"', '""') + '"' for part in name.split("."))


def column(name: str) -> str:
    """Quote the name of a column, which may contain dots."""
    return '"' + name.replace('"', '""') + '"'


def listed(names: Iterable[str], each: str = "{}") -> str:
    """Return quoted columns, separated by commas.

    >>> listed(["a", "b"], "{0} = excluded.{0}")
    '"a" = excluded."a", "b" = excluded."b"'
    """
    return ", ".join(each.format(column(name)) for name in names)


def replacing(target: Target) -> str:
    """Return the end of an INSERT that replaces the row of the same key."""
    rest = [name for name in target.schema.names if name not in target.key]
    update = f"UPDATE SET {listed(rest, '{0} = excluded.{0}')}" if rest else "NOTHING"
    return f"ON CONFLICT ({listed(target.key)}) DO {update}"
