"""Each form of query that sql_view() takes: as a view it is what DuckDB finds, on nulls, duplicates and empty groups.

Two ways are compared with the query itself: the relation as one statement, and the view after changes.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest

from penstock.query.relations import relation_of
from penstock.schema import Schema
from tests.query.relations.oracle import REMOVED, Epoch, Oracle, Tables, assert_same, emptied, rows_of, run
from tests.query.relations.recomputed import statement_of

SCHEMAS = {
    "t": Schema("id bigint not null, a bigint, b bigint, s string, x double, ts timestamp"),
    "u": Schema("id bigint not null, a bigint, c bigint not null, s string, n int not null"),
    "w": Schema("id bigint not null, c bigint, flag boolean"),
}
KEYS = dict.fromkeys(SCHEMAS, ("id",))
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def read_pairs() -> list[tuple[str, str]]:
    """Return the queries: as views have them, and as DuckDB does."""
    lines = Path(__file__).with_name("queries.sql").read_text(encoding="utf-8").splitlines()[1:]
    pairs = []
    for before, line in zip(["", *lines], lines, strict=False):
        if not line.startswith("--"):
            theirs = before.removeprefix("-- ") if before.startswith("--") else line
            pairs.append((line.rstrip(";"), theirs.rstrip(";")))
    return pairs


PAIRS = read_pairs()


def random_row(name: str, number: int, chance: Random) -> dict[str, Any]:
    draw = {
        "id": lambda: number,
        "a": lambda: chance.choice([None, 1, 2, 3, 4]),
        "b": lambda: chance.choice([None, 0, 1, 2, 3]),
        "c": lambda: chance.choice([1, 2, 3, 4, 5] + ([None] if name == "w" and chance.random() < 0.3 else [])),
        "n": lambda: chance.choice([1, 2, 3]),
        "s": lambda: chance.choice([None, "", "x", "y"]),
        "x": lambda: chance.choice([None, 0.5, 1.25, -3.0, 8.0]),
        "ts": lambda: chance.choice([None, BEGIN + timedelta(seconds=chance.randrange(40))]),
        "flag": lambda: chance.choice([None, True, False]),
    }
    return {column: draw[column]() for column in SCHEMAS[name].names}


def random_epochs(seed: int, count: int = 5) -> list[Epoch]:
    """Rows of few values; each epoch inserts, replaces and removes some."""
    chance = Random(seed)
    sizes = {"t": 24, "u": 14, "w": 6}
    epochs = []
    for _ in range(count):
        numbers = {name: chance.sample(range(size), size // 3) for name, size in sizes.items()}
        epochs.append(
            {
                name: [{**random_row(name, one, chance), REMOVED: chance.random() < 0.3} for one in chosen]
                for name, chosen in numbers.items()
                if chance.random() < 0.8
            }
        )
    return epochs


# In short every other query.
SHORT = [pytest.param(*pair, id=pair[0], marks=[pytest.mark.slow] if at % 2 else []) for at, pair in enumerate(PAIRS)]


@pytest.mark.parametrize(("query", "for_duckdb"), SHORT)
def test_a_query_as_a_view_is_what_duckdb_finds(query: str, for_duckdb: str) -> None:
    tables = Tables(SCHEMAS, KEYS)
    oracle = Oracle(query, tables, for_duckdb)
    # The first epoch is empty: a view of nothing is what a query of nothing is.
    run([oracle], tables, [{name: [] for name in SCHEMAS}, *random_epochs(len(query), count=3)])
    run([oracle], tables, [emptied(tables)])


@pytest.mark.slow
@pytest.mark.parametrize(("query", "for_duckdb"), PAIRS, ids=[query for query, _ in PAIRS])
def test_a_query_as_a_view_is_what_duckdb_finds_on_more_data(query: str, for_duckdb: str) -> None:
    for seed in range(12):
        tables = Tables(SCHEMAS, KEYS)
        oracle = Oracle(query, tables, for_duckdb)
        run([oracle], tables, random_epochs(seed, count=8))


@pytest.mark.parametrize("pairs", [PAIRS[::3], pytest.param(PAIRS, marks=pytest.mark.slow)], ids=len)
def test_the_relations_as_statements_are_the_queries(pairs: list[tuple[str, str]]) -> None:
    tables = Tables(SCHEMAS, KEYS)
    for epoch in random_epochs(7, count=8):
        tables.apply(epoch)
    for query, for_duckdb in pairs:
        found = tables.database.sql(statement_of(relation_of(query, tables.relations))).to_arrow_table()
        assert_same(rows_of(found), rows_of(tables.database.sql(for_duckdb).to_arrow_table()))
