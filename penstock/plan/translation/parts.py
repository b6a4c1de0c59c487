"""The parts of a translation: DuckDB's SQL with Spark's types, the supported forms of functions, and the refusal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import NoReturn

from sqlglot import exp

from penstock.plan.sql_expressions.types import BOOLEAN, Type

_DUCKDB = {
    "string": "VARCHAR",
    "bigint": "BIGINT",
    "int": "INTEGER",
    "smallint": "SMALLINT",
    "tinyint": "TINYINT",
    "double": "DOUBLE",
    "float": "FLOAT",
    "boolean": "BOOLEAN",
    "timestamp": "TIMESTAMPTZ",
    "date": "DATE",
}


class NotNative(Exception):
    """A part of an expression that may give another result in DuckDB; its text is the reason."""


def not_native(reason: str) -> NoReturn:
    """Raise NotNative with a reason."""
    raise NotNative(reason)


@dataclass(frozen=True)
class Part:
    """A piece of an expression: DuckDB's SQL for it, Spark's type of it, and whether a row can make it fail."""

    sql: str
    type: Type
    tree: exp.Expr
    fails: bool = False

    @property
    def number(self) -> Decimal | None:
        """The value of a number literal."""
        tree = self.tree.unnest()
        if isinstance(tree, exp.Neg):
            below = tree.this.unnest()
            return -Decimal(below.name) if _is_number(below) else None
        return Decimal(tree.name) if _is_number(tree) else None

    @property
    def text(self) -> str | None:
        """The value of a string literal."""
        tree = self.tree.unnest()
        return str(tree.name) if isinstance(tree, exp.Literal) and tree.is_string else None


def _is_number(tree: exp.Expr) -> bool:
    return isinstance(tree, exp.Literal) and not tree.is_string


def duckdb_type(kind: Type) -> str:
    """Return DuckDB's name of a type that expressions can make."""
    if kind.name == "decimal":
        return f"DECIMAL({kind.size[0]},{kind.size[1]})"
    if kind.name not in _DUCKDB:
        not_native(f"the type {kind}")
    return _DUCKDB[kind.name]


def is_carried(kind: Type) -> bool:
    """Whether columns of a type come out of DuckDB as they went in."""
    if kind.parts:
        names = {name.casefold() for name in kind.fields}
        return len(names) == len(kind.fields) and all(map(is_carried, kind.parts))
    return kind.name in _DUCKDB or kind.name in ("decimal", "binary", "timestamp_ntz")


def text_literal(value: str) -> str:
    """Write a text for DuckDB, which knows no escapes; a NUL would end the statement."""
    pieces = ["'" + piece.replace("'", "''") + "'" for piece in value.split("\0")]
    return pieces[0] if len(pieces) == 1 else f"({' || chr(0) || '.join(pieces)})"


def typed(sql: str, kind: Type) -> str:
    """Give a piece of SQL the type that Spark's result has; no work where DuckDB's is the same."""
    return sql if kind == BOOLEAN else f"CAST({sql} AS {duckdb_type(kind)})"


def kinds_of(parts: Iterator[Part] | list[Part]) -> str:
    """List the types of parts, for a reason."""
    return ", ".join(str(part.type) for part in parts)


def safe_after_first(parts: list[Part], what: str) -> None:
    """Refuse a part that Spark may skip: beside a null, or where an earlier part decides."""
    if any(part.fails for part in parts[1:]):
        not_native(f"a part of {what} that can fail on a row")


_KINDS = {
    "whole": ("tinyint", "smallint", "int", "bigint"),
    "int": ("tinyint", "smallint", "int"),
    "float": ("float", "double"),
}


@dataclass(frozen=True)
class Form:
    """One form of a function: its names, the kinds of its arguments, and what it is in DuckDB.

    The last kind may end in `*`: one or more of it. `fails`: a row can make it raise.
    """

    names: str
    takes: str
    sql: str | Callable[..., str]
    fails: bool = False

    @property
    def keys(self) -> list[str]:
        """The names of this form in the list of all forms."""
        return [f"{name}({self.takes})" for name in self.names.split()]

    def fits(self, kinds: list[Type]) -> bool:
        """Whether the form takes arguments of these types."""
        takes = self.takes.split()
        if takes and takes[-1].endswith("*"):
            last = takes.pop()[:-1]
            takes += [last] * max(1, len(kinds) - len(takes))
        return len(takes) == len(kinds) and all(map(_is, kinds, takes))

    def write(self, parts: list[Part]) -> str:
        """Write the call for DuckDB."""
        if isinstance(self.sql, str):
            return self.sql.format(*(part.sql for part in parts))
        return self.sql(*parts)


def _is(kind: Type, wanted: str) -> bool:
    return kind.name in _KINDS.get(wanted, (wanted,))
