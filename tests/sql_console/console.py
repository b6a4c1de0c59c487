"""Queries over rows in memory, in this process."""

from __future__ import annotations

import json
from typing import Any

from penstock.connectors.topics.connection import Connection
from penstock.sql_console.query import answer

TRADES = [
    {"symbol": "A", "price": 10.0, "size": 1, "ts": "2026-01-01T00:00:01Z", "tags": ["x", "y"]},
    {"symbol": "B", "price": 20.0, "size": 2, "ts": "2026-01-01T00:00:30Z", "tags": []},
    {"symbol": "A", "price": 14.0, "size": 3, "ts": "2026-01-01T00:00:59Z", "tags": ["z"]},
    {"symbol": "A", "price": None, "size": 4, "ts": "2026-01-01T00:01:00Z", "tags": None},
]


def lines(sql: str, limit: int = 200, **tables: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the lines of an answer."""
    sources = {name: {"rows": rows} for name, rows in ({"trades": TRADES} | tables).items()}
    request = {"sql": sql, "sources": sources, "limit": limit}
    return [json.loads(line) for line in answer(request, Connection("127.0.0.1:1"))]


def rows(sql: str, **tables: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Return the rows of an answer, as tuples in the order of its columns."""
    head, *chunks, _ = lines(sql, **tables)
    names = [column["name"] for column in head["columns"]]
    return [tuple(row[name] for name in names) for chunk in chunks for row in chunk["rows"]]
