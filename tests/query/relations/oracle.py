"""A query as a view in process, beside DuckDB, which runs the query's own text on the current contents.

Each table has a key: rows of an epoch are inserts, updates of all columns, or deletes. After every epoch the changes
that the circuit gave, added up, are the rows that DuckDB finds.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from random import Random
from typing import Any

import duckdb
import pyarrow as pa

from penstock.incremental.circuit.circuit import Circuit
from penstock.incremental.circuit.state import MemoryState, row_count
from penstock.plan.relations import Input, Latest, Relation
from penstock.plan.relations.relation import WEIGHT
from penstock.query.relations import relation_of
from penstock.schema import Field, Schema, quoted
from tests.query.relations.recomputed import column_list, duckdb_schema

REMOVED = "removed"
_SMALL, _FEW = 30, 3
Rows = list[dict[str, Any]]
Epoch = Mapping[str, Rows]


class Tables:
    """Tables with keys, in DuckDB and as the inputs of views."""

    def __init__(self, schemas: Mapping[str, Schema], keys: Mapping[str, tuple[str, ...]]) -> None:
        self.schemas, self.keys = dict(schemas), dict(keys)
        self.given = {
            name: Schema((*schema.fields, Field(REMOVED, "boolean", nullable=False)))
            for name, schema in schemas.items()
        }
        self.database = duckdb.connect()
        self.database.execute("SET TimeZone = 'UTC'; SET threads = 1")
        for name, schema in schemas.items():
            self.database.execute(f"CREATE TABLE {name} ({duckdb_schema(schema)})")

    @property
    def relations(self) -> dict[str, Relation]:
        """The tables as relations: the last row of each key, unless it is removed."""
        return {
            name: Latest(Input(name, self.given[name]), self.keys[name], self._values(name), REMOVED)
            for name in self.schemas
        }

    def _values(self, name: str) -> tuple[str, ...]:
        return tuple(column for column in self.schemas[name].names if column not in self.keys[name])

    def changes(self, epoch: Epoch) -> dict[str, pa.Table]:
        """Return the rows of an epoch as a circuit takes them."""
        return {
            name: pa.Table.from_pylist(rows, schema=self.given[name].nullable().arrow) for name, rows in epoch.items()
        }

    def apply(self, epoch: Epoch) -> None:
        """Change the contents; the last row of a key counts."""
        for name, table in self.changes(epoch).items():
            self.database.register("changes", table.append_column("place", pa.array(range(table.num_rows))))
            keys = ", ".join(map(quoted, self.keys[name]))
            last = f"SELECT * FROM changes QUALIFY row_number() OVER (PARTITION BY {keys} ORDER BY place DESC) = 1"
            self.database.execute(f"CREATE OR REPLACE TEMP TABLE last AS {last}")
            self.database.unregister("changes")
            self.database.execute(f"DELETE FROM {name} WHERE ({keys}) IN (SELECT ({keys}) FROM last)")
            columns = column_list(self.schemas[name])
            self.database.execute(f"INSERT INTO {name} SELECT {columns} FROM last WHERE NOT {REMOVED}")


class Oracle:
    """One query over tables: the view's content, and DuckDB's."""

    def __init__(self, query: str, tables: Tables, duckdb_query: str | None = None) -> None:
        self.tables, self.query = tables, duckdb_query or query
        self.relation = relation_of(query, tables.relations)
        self.circuit = Circuit(self.relation)
        self.state = MemoryState()
        self.content: Counter[tuple[Any, ...]] = Counter()
        self.most = 0

    @property
    def state_rows(self) -> int:
        """How many rows all operators keep."""
        return sum(row_count(self.state, self.state.numbers).values())

    def step(self, epoch: Epoch) -> None:
        """Give the circuit an epoch's rows of the tables that it reads."""
        mine = {name: rows for name, rows in epoch.items() if name in self.circuit.inputs}
        changes = self.circuit.step(self.tables.changes(mine), self.state)
        weights = changes[WEIGHT].to_pylist()
        for row, weight in zip(rows_of(changes.drop_columns(WEIGHT)), weights, strict=True):
            self.content[row] += weight
            if not self.content[row]:
                del self.content[row]
        self.most = max(self.most, len(self.content))

    def check(self) -> None:
        """Compare the view with DuckDB's answer to the query as it is written."""
        assert min(self.content.values(), default=1) > 0, "a row was taken out that was not there"
        expected = self.tables.database.sql(self.query).to_arrow_table()
        assert_same(list(self.content.elements()), rows_of(expected))


def run(oracles: Iterable[Oracle], tables: Tables, epochs: Sequence[Epoch]) -> None:
    """Run all epochs, with a check after each."""
    waiting = list(oracles)
    read = {name for one in waiting for name in one.circuit.inputs}
    for epoch in epochs:
        mine = {name: rows for name, rows in epoch.items() if name in read}
        tables.apply(mine)
        for one in waiting:
            one.step(mine)
            one.check()


def emptied(tables: Tables) -> Epoch:
    """Return an epoch that deletes all rows."""
    return {
        name: [{**row, REMOVED: True} for row in tables.database.sql(f"FROM {name}").to_arrow_table().to_pylist()]
        for name in tables.schemas
    }


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    """Return rows as tuples."""
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def assert_same(actual: Sequence[tuple[Any, ...]], expected: Sequence[tuple[Any, ...]]) -> None:
    """Compare rows as a bag; floats and decimals to nine digits."""
    assert len(actual) == len(expected), (len(actual), len(expected), actual[:3], expected[:3])
    for mine, theirs in zip(sorted(actual, key=_order), sorted(expected, key=_order), strict=True):
        assert len(mine) == len(theirs), (mine, theirs)
        assert all(map(_is_same, mine, theirs)), (mine, theirs)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def _is_same(mine: Any, theirs: Any) -> bool:
    if _is_number(mine) and _is_number(theirs):
        return math.isclose(float(mine), float(theirs), rel_tol=1e-9, abs_tol=1e-6)
    if isinstance(mine, datetime) and isinstance(theirs, datetime):
        return mine.replace(tzinfo=None) == theirs.replace(tzinfo=None)
    return bool(mine == theirs)


def _order(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Order by what is compared exactly first."""
    exact = ["#" if _is_number(value) else value for value in row]
    naive = [str(one.replace(tzinfo=None) if isinstance(one, datetime) else one) for one in exact]
    return tuple(naive), tuple(float(value) for value in row if _is_number(value))


def epochs_of(
    rows: Mapping[str, Rows], keys: Mapping[str, tuple[str, ...]], *, count: int, first: float, seed: int
) -> list[Epoch]:
    """Spread rows over epochs: a first part, then inserts of the rest, updates and deletes of what is there.

    An update gives a key the other columns of another row of its table. Small tables are there from the beginning.
    """
    chance = Random(seed)
    made: list[dict[str, Rows]] = [{} for _ in range(count)]
    for name, all_rows in rows.items():
        # A fraction of TPC-H's data has keys twice.
        given = list({_key(row, keys[name]): row for row in all_rows}.values())
        shuffled = chance.sample(given, len(given))
        begin = round(len(shuffled) * first) if len(given) > _SMALL else len(given)
        there, later = shuffled[:begin], shuffled[begin:]
        made[0][name] = [{**row, REMOVED: False} for row in there]
        share = -(-len(later) // max(1, count - 1))
        for number in range(1, count):
            new = later[(number - 1) * share : number * share]
            old = chance.sample(there, min(len(there), max(2, len(there) // 15)))
            least = len(old) // 3 + 1 if len(there) > _FEW else 0
            gone, changed = old[:least], old[least:]
            updates = [_updated(row, chance.choice(given), keys[name]) for row in changed]
            kept = {_key(row, keys[name]): row for row in there}
            for row in gone:
                del kept[_key(row, keys[name])]
            there = [*kept.values(), *new]
            made[number][name] = [
                *({**row, REMOVED: True} for row in gone),
                *({**row, REMOVED: False} for row in [*new, *updates]),
            ]
    return made


def by_table(epochs: Sequence[Epoch], order: Sequence[str]) -> list[Epoch]:
    """Return the same rows with the first epoch in parts: one table after the other."""
    return [*({name: epochs[0][name]} for name in order), *epochs[1:]]


def _key(row: dict[str, Any], key: tuple[str, ...]) -> tuple[Any, ...]:
    return tuple(row[name] for name in key)


def _updated(row: dict[str, Any], other: dict[str, Any], key: tuple[str, ...]) -> dict[str, Any]:
    return {**other, **{name: row[name] for name in key}}
