"""One rejected row, and the text that keeps what a node was given. Small: every worker loads it."""

from __future__ import annotations

import base64
import hashlib
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import astuple, dataclass
from datetime import UTC, datetime
from typing import Any


@dataclass(frozen=True)
class RejectedRow:
    """A row as `rejected_to` holds it.

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
        """What the node was given."""
        found: dict[str, Any] = json.loads(self.row or "{}")
        return found


def row_json(row: dict[str, Any]) -> str:
    """Return a row as JSON that a source can read again.

    >>> row_json({"at": datetime(2026, 1, 1, tzinfo=UTC), "data": b"ab"})
    '{"at": "2026-01-01T00:00:00Z", "data": "YWI="}'
    """
    return json.dumps(row, default=_text, ensure_ascii=False)


def identified(rows: Iterable[RejectedRow]) -> list[tuple[str, RejectedRow]]:
    """Give each row an id that is the same whenever and wherever it is read; of equal rows each has its own."""
    seen: Counter[str] = Counter()
    found = []
    for row in rows:
        digest = hashlib.sha256(repr(astuple(row)).encode()).hexdigest()[:32]
        found.append((f"{digest}.{seen[digest]}", row))
        seen[digest] += 1
    return found


def _text(value: Any) -> str:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z") if value.tzinfo else value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return str(value)
