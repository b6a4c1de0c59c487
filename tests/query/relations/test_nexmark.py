"""All Nexmark queries as views over streams with inserts, updates and deletes: what DuckDB finds, after every epoch.

Each query's text is in nexmark.sql, with what differs from Flink's; DuckDB runs it too, but for windows, which it
writes differently.
"""

from __future__ import annotations

import pytest

from tests.query.relations.nexmark import KEYS, SCHEMAS, data, queries
from tests.query.relations.oracle import Oracle, Tables, by_table, emptied, epochs_of, run


def oracle_of(name: str, tables: Tables) -> Oracle:
    query, for_duckdb = queries()[name]
    return Oracle(query, tables, for_duckdb)


@pytest.mark.parametrize("name", queries())
def test_a_query_is_what_duckdb_finds_after_every_epoch(name: str) -> None:
    tables = Tables(SCHEMAS, KEYS)
    oracle = oracle_of(name, tables)
    run([oracle], tables, epochs_of(data(900), KEYS, count=3, first=0.7, seed=1))
    assert oracle.most > 0, "a query without results shows nothing"
    run([oracle], tables, [emptied(tables)])
    assert oracle.state_rows == 0, "groups whose rows are gone leave no state"


@pytest.mark.slow
@pytest.mark.parametrize("order", [("person", "auction", "bid", "side"), ("side", "bid", "auction", "person")])
@pytest.mark.parametrize("name", queries())
def test_a_query_does_not_depend_on_which_input_comes_first(name: str, order: tuple[str, ...]) -> None:
    tables = Tables(SCHEMAS, KEYS)
    oracle = oracle_of(name, tables)
    epochs = epochs_of(data(6000, seed=2), KEYS, count=8, first=0.6, seed=3)
    run([oracle], tables, [*by_table(epochs, order), emptied(tables)])
    assert oracle.most > 0
