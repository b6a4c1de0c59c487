"""Lists by pages: each cursor names the last item of the page before, so that inserts move nothing."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from sqlalchemy import Column, Connection, Select, literal, tuple_

from penstock.control.store.repositories.repository import record
from penstock.errors import BadCursor

Record = TypeVar("Record")
MOST_ITEMS = 1_000
_LONGEST = 1_000
_INT64 = 2**63


@dataclass(frozen=True)
class Page(Generic[Record]):
    """A part of a list; `next` is the cursor of the part after it, or None."""

    items: tuple[Record, ...]
    next: str | None = None


def read_page(
    connection: Connection,
    query: Select[*tuple[Any, ...]],
    keys: Sequence[Column[Any]],
    kind: type[Record],
    cursor: str | None,
    limit: int,
) -> Page[Record]:
    """Return the rows after a cursor, the largest keys first. No two rows have the same keys, and keys never change."""
    limit = min(max(limit, 1), MOST_ITEMS)
    if cursor is not None:
        values = decode_cursor(cursor, [key.type.python_type for key in keys])
        last = [literal(value, key.type) for key, value in zip(keys, values, strict=True)]
        query = query.where(tuple_(*keys) < tuple_(*last))
    rows = connection.execute(query.order_by(*[key.desc() for key in keys]).limit(limit + 1)).all()
    items = tuple(record(kind, row) for row in rows[:limit])
    if len(rows) <= limit:
        return Page(items)
    return Page(items, encode_cursor([rows[limit - 1]._mapping[key.name] for key in keys]))


def encode_cursor(values: Sequence[float | str]) -> str:
    """Write the keys of an item as a cursor.

    >>> decode_cursor(encode_cursor([1.5, "a"]), [float, str])
    [1.5, 'a']
    """
    return base64.urlsafe_b64encode(json.dumps(list(values), separators=(",", ":")).encode()).decode().rstrip("=")


def decode_cursor(cursor: str, types: Sequence[type]) -> list[Any]:
    """Return the keys of a cursor; refuses what `encode_cursor` did not write for keys of these types."""
    try:
        if len(cursor) > _LONGEST:
            raise ValueError
        values = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        if not isinstance(values, list) or len(values) != len(types):
            raise ValueError
        return [_checked(value, kind) for value, kind in zip(values, types, strict=True)]
    except (ValueError, RecursionError):
        message = f"{cursor[:80]!r} is not a cursor of this list"
        raise BadCursor(message, hint="pass the `next` of the page before, or no cursor for the first page") from None


def _checked(value: Any, kind: type) -> Any:
    if kind is str and type(value) is str:
        return value
    is_number = type(value) is int or (kind is float and type(value) is float)
    # Not finite, it is not smaller either.
    if kind is str or not is_number or not abs(value) < _INT64:
        raise ValueError
    return kind(value)
