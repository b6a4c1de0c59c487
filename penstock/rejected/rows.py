"""A rejected row, and the JSON of a node's input row. Small: every worker loads it."""

from __future__ import annotations

import base64
import hashlib
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import astuple, dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

from penstock.connectors.formats.json.encodings import json_number
from penstock.connectors.formats.wide_times import python_values


@dataclass(frozen=True)
class RejectedRow:
    """A row as written to `rejected_to`.

    `raw` are the bytes that a source could not read; `row` is what a node was given, as JSON, if it was read.
    """

    node: str
    reason: str
    row: str | None
    raw: bytes | None
    source: str | None
    position: str | None
    epoch: int

    @property
    def values(self) -> dict[str, Any]:
        """The input row of the node."""
        # Numbers as they are written: a decimal has more digits than a float.
        found: dict[str, Any] = json.loads(self.row or "{}", parse_float=Decimal)
        return found


def row_json(row: dict[str, Any]) -> str:
    """Return a row as lossless JSON; `penstock.rejected.targets` reads it by its schema.

    Bytes are text in base64, times are ISO-8601 (with a signed year before year 1 and after 9999), decimals are text,
    intervals microseconds, maps lists of pairs.

    >>> row_json({"at": datetime(2026, 1, 1, tzinfo=UTC), "data": b"ab"})
    '{"at": "2026-01-01T00:00:00Z", "data": "YWI="}'
    """
    return json.dumps(_plain(row), default=_text, ensure_ascii=False)


def row_dicts(rows: pa.Table) -> list[dict[str, Any]]:
    """Return rows as Python has them; times that Python cannot have, before year 1 or after 9999, as text."""
    columns = [python_values(column) for column in rows.columns]
    return [dict(zip(rows.column_names, values, strict=True)) for values in zip(*columns, strict=True)]


def identified(rows: Iterable[RejectedRow]) -> list[tuple[str, RejectedRow]]:
    """Yield rows with ids that are the same in every read; equal rows have different ids."""
    seen: Counter[str] = Counter()
    found = []
    for row in rows:
        digest = hashlib.sha256(repr(astuple(row)).encode()).hexdigest()[:32]
        found.append((f"{digest}.{seen[digest]}", row))
        seen[digest] += 1
    return found


def _plain(value: Any) -> Any:
    """Return a value with maps as pairs, for a key of JSON can only be text, and NaN and infinities as text."""
    if isinstance(value, dict):
        if all(isinstance(key, str) for key in value):
            return {key: _plain(part) for key, part in value.items()}
        return [[_plain(key), _plain(part)] for key, part in value.items()]
    if isinstance(value, float):
        return json_number(value)
    return [_plain(part) for part in value] if isinstance(value, list | tuple) else value


def _text(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z") if value.tzinfo else value.isoformat()
    if isinstance(value, timedelta):
        return value // timedelta(microseconds=1)
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode()
    return str(value)
