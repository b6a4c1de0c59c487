"""All TPC-H queries as views over tables with inserts, updates and deletes: what DuckDB finds, after every epoch.

Both run the same text. Its parameters are chosen so that a thousandth of the usual data has results.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from tests.query.relations.oracle import Oracle, Tables, by_table, emptied, epochs_of, run
from tests.query.relations.tpch import KEYS, data, queries, schemas

# These divide decimals, or multiply them to more digits than there are: Spark rounds there, and views refuse it.
ROUNDED = ("q1", "q8", "q14", "q17")
# A single row of all rows is there also of none: sums of nothing, and what is compared with them.
OF_ALL_ROWS = {"q6": 1, "q14": 1, "q17": 1, "q19": 1, "q11": 2, "q15": 2, "q22": 2}


@cache
def rows(scale: float, money: str) -> dict[str, list[dict[str, Any]]]:
    kinds = schemas(money)
    return {name: table.cast(kinds[name].nullable().arrow).to_pylist() for name, table in data(scale).items()}


@pytest.mark.parametrize("name", queries())
def test_a_query_is_what_duckdb_finds_after_every_epoch(name: str) -> None:
    tables = Tables(schemas(), KEYS)
    oracle = Oracle(queries()[name], tables)
    run([oracle], tables, epochs_of(rows(0.001, "double"), KEYS, count=3, first=0.7, seed=1))
    assert oracle.most > 0, "a query without results shows nothing"
    run([oracle], tables, [emptied(tables)])
    assert oracle.state_rows <= OF_ALL_ROWS.get(name, 0), "groups whose rows are gone leave no state"


@pytest.mark.slow
@pytest.mark.parametrize("money", ["double", "decimal(12,2)"])
@pytest.mark.parametrize("name", queries())
def test_a_query_does_not_depend_on_which_input_comes_first(name: str, money: str) -> None:
    if name in ROUNDED and money != "double":
        pytest.skip("never: a view does not round decimals; cast to double")
    for order in (tuple(KEYS), tuple(reversed(KEYS))):
        tables = Tables(schemas(money), KEYS)
        oracle = Oracle(queries()[name], tables)
        epochs = epochs_of(rows(0.003, money), KEYS, count=6, first=0.6, seed=4)
        run([oracle], tables, [*by_table(epochs, order), emptied(tables)])
        assert oracle.most > 0
