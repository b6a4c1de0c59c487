"""Column types and SQL expressions that mean the same on SQLite and PostgreSQL.

Times are seconds since the epoch, as `time.time()` returns them: both databases compare and index them alike.
"""

from __future__ import annotations

import json
import math
from typing import Any

import pydantic_core
from sqlalchemy import JSON, Dialect, Double, Text
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import TypeDecorator

Seconds = Double


class PlainText(TypeDecorator[str]):
    """Text without the characters that PostgreSQL cannot store: NUL and lone surrogates."""

    impl = Text
    cache_ok = True

    @property
    def python_type(self) -> type[str]:
        """The type of values in Python."""
        return str

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """Replace what cannot be stored; messages of failed jobs may have anything in them."""
        if value is None or (value.isascii() and "\0" not in value):
            return value
        return value.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


class Json(TypeDecorator[Any]):
    """JSON in the order in which it was written; None is NULL."""

    impl = JSON(none_as_null=True)
    cache_ok = True


def to_json(value: Any) -> str:
    """Write a value as JSON that every database accepts: a number that is not finite becomes null.

    >>> to_json({"lag": float("nan"), "rows": [1]})
    '{"lag":null,"rows":[1]}'
    """
    try:
        return json.dumps(value, allow_nan=False, separators=(",", ":"))
    except ValueError:
        return json.dumps(_finite(value), separators=(",", ":"))


def from_json(text: str | bytes) -> Any:
    """Read JSON, three times as fast as the standard library: a list of jobs has hundreds of small texts."""
    try:
        return pydantic_core.from_json(text)
    except ValueError:  # half of a surrogate pair, which only the standard library reads
        return json.loads(text)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


class DatabaseClock(FunctionElement[float]):
    """The time of the database: the one clock that all managers of a store share."""

    type = Double()
    inherit_cache = True


@compiles(DatabaseClock, "sqlite")
def _sqlite_clock(element: DatabaseClock, compiler: SQLCompiler, **_: Any) -> str:
    return "((julianday('now') - 2440587.5) * 86400.0)"


@compiles(DatabaseClock, "postgresql")
def _postgresql_clock(element: DatabaseClock, compiler: SQLCompiler, **_: Any) -> str:
    # Not now(): that is the start of the transaction, which may have waited for a lock.
    return "CAST(extract(epoch FROM clock_timestamp()) AS double precision)"
