"""What is asked of a database, by a table sink and by those who read a table."""

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
    """A table that rows go to; with a key, the newest row of each key."""

    table: str
    schema: Schema
    key: tuple[str, ...] = ()


@dataclass(frozen=True)
class Column:
    """A column that a table has: its type in the database's own words, and whether each new row must fill it."""

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
        """Make sure that the ledger is there."""

    @abstractmethod
    def columns(self, table: str) -> list[Column] | None:
        """Return what a table has, or None if there is no such table."""

    @abstractmethod
    def unique_keys(self, table: str) -> list[set[str]]:
        """Return the sets of columns that are unique in the table."""

    @abstractmethod
    def fields(self, table: str) -> list[Field]:
        """Return the columns of a table or view, as Spark would have them; none if it is not there."""

    def selected(self, field: Field) -> str:
        """Return the SQL that reads a column."""
        return column(field.name)

    @abstractmethod
    def append(self, target: Target, batches: Iterable[pa.RecordBatch]) -> None:
        """Add rows."""

    @abstractmethod
    def upsert(self, target: Target, batches: Iterable[pa.RecordBatch]) -> None:
        """Replace the row of each key by its last one, or remove it if that one's column ROW_REMOVED holds."""


class Database(ABC):
    """One database; it holds no connection, so that it can be sent to tasks."""

    # The address, as errors show it.
    place: str

    @abstractmethod
    def check(self) -> None:
        """Raise a SettingsError if it cannot be used."""

    @abstractmethod
    def transaction(self, table: str) -> AbstractContextManager[Session]:
        """Open a transaction that is committed at its end, and undone by an error; errors name the table."""

    @abstractmethod
    def answers(self) -> None:
        """Raise at once if it does not let this user in; nothing is made."""

    @abstractmethod
    def reading(self, table: str) -> AbstractContextManager[Session]:
        """Open a transaction that only reads."""

    def stamp(self) -> object:
        """Return something that is equal as long as nothing was written; None if that cannot be told."""
        return None

    @abstractmethod
    def writers(self, cores: int) -> int:
        """Return how many tasks may write at once."""

    @abstractmethod
    def type_of(self, field: Field) -> str:
        """Return the type of a new column."""

    @abstractmethod
    def takes(self, column: Column, field: Field) -> bool:
        """Say whether an existing column holds each value of a field, unchanged or refused with an error."""


def quoted(name: str) -> str:
    """Quote a name for SQL; a dot parts a schema and what is in it.

    >>> quoted("sales.order")
    '"sales"."order"'
    """
    return ".".join('"' + part.replace('"', '""') + '"' for part in name.split("."))


def column(name: str) -> str:
    """Quote the name of a column, which may hold dots."""
    return '"' + name.replace('"', '""') + '"'


def listed(names: Iterable[str], each: str = "{}") -> str:
    """Return quoted columns, parted by commas.

    >>> listed(["a", "b"], "{0} = excluded.{0}")
    '"a" = excluded."a", "b" = excluded."b"'
    """
    return ", ".join(each.format(column(name)) for name in names)


def replacing(target: Target) -> str:
    """Return the end of an INSERT that replaces the row of the same key."""
    rest = [name for name in target.schema.names if name not in target.key]
    update = f"UPDATE SET {listed(rest, '{0} = excluded.{0}')}" if rest else "NOTHING"
    return f"ON CONFLICT ({listed(target.key)}) DO {update}"
