"""The judge: what a run wrote against the batch recomputation, by DuckDB, row by row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import duckdb
import pyarrow as pa

from tests.crash.cells import Cell
from tests.crash.inputs import BEGIN, Input

_FITTING = "size > 0 AND ts {} '" + BEGIN.isoformat() + "'"
_WINDOW = "symbol, time_bucket(INTERVAL 10 SECOND, ts) AS window_start, window_start + INTERVAL 10 SECOND AS window_end"
_IN_TIME, _LATE = _FITTING.format(">="), _FITTING.format("<")
_ROWS = "SELECT id, symbol, ts, note, price * size AS notional FROM input WHERE size > 0"
EXPECTED = {
    "windowed": f"""SELECT {_WINDOW}, sum(size)::BIGINT AS volume, count(*) AS trades, sum(price * size) AS notional
                    FROM input WHERE {_IN_TIME} GROUP BY ALL""",
    "aggregated": f"SELECT {_WINDOW}, sum(size)::BIGINT AS volume FROM input WHERE {_IN_TIME} GROUP BY ALL",
    "stateless": _ROWS,
    "keyed": _ROWS,
    "process": """SELECT id, symbol, note, row_number() OVER earlier AS number, sum(size) OVER earlier AS total
                  FROM input WHERE size > 0 WINDOW earlier AS (PARTITION BY symbol ORDER BY id)""",
    "counted": """SELECT symbol, number // 5 AS window_number, sum(size)::BIGINT AS volume, count(*) AS trades
                  FROM (SELECT *, row_number() OVER (PARTITION BY symbol ORDER BY id) - 1 AS number
                        FROM input WHERE size > 0) GROUP BY ALL""",
    "asof": f"""SELECT l.id, l.symbol, l.ts, l.note, r.id AS last
                FROM (FROM input WHERE {_IN_TIME}) l
                ASOF LEFT JOIN (FROM input WHERE {_IN_TIME} AND size % 2 = 0) r
                ON l.symbol = r.symbol AND l.ts >= r.ts""",
}
# What a table with mode="upsert" holds in the end.
NEWEST = f"SELECT * FROM ({_ROWS}) QUALIFY row_number() OVER (PARTITION BY symbol ORDER BY id DESC) = 1"
LATE = f"SELECT id, symbol, price, size, ts FROM input WHERE {_LATE}"


class Findings(NamedTuple):
    """Rows that are not there, there too often, and there though they should not be, or before an earlier one."""

    lost: int = 0
    duplicated: int = 0
    wrong: int = 0

    def plus(self, other: Findings) -> Findings:
        """Add up."""
        return Findings(*(mine + its for mine, its in zip(self, other, strict=True)))


def judge(given: Input, cell: Cell, outputs: Mapping[str, pa.Table]) -> dict[str, Findings]:
    """Compare each output that the cell has with what it should hold."""
    wanted = {name: _expected(cell.computed, kind) for name, kind in cell.sinks.items()}
    wanted["rejected"] = "SELECT raw FROM bad"
    if cell.pipeline in ("windowed", "aggregated"):
        wanted["late"] = LATE
    ordered = {name for name, kind in cell.sinks.items() if cell.pipeline == "keyed" and kind == "topic"}
    with duckdb.connect() as db:
        db.execute("SET TimeZone = 'UTC'")
        db.register("input", given.table)
        db.register("bad", pa.table({"raw": pa.array(given.bad, pa.string())}))
        found = {name: _compared(db, query, outputs[name]) for name, query in wanted.items()}
    return {name: one.plus(_disorder(outputs[name]) if name in ordered else Findings()) for name, one in found.items()}


def _expected(pipeline: str, kind: str) -> str:
    return NEWEST if pipeline == "keyed" and kind in ("postgresql", "sqlite") else EXPECTED[pipeline]


def _disorder(found: pa.Table) -> Findings:
    """Count the rows that come after a later one of their key."""
    newest: dict[str, int] = {}
    wrong = 0
    for symbol, id in zip(found["symbol"].to_pylist(), found["id"].to_pylist(), strict=True):
        wrong += id < newest.get(symbol, -1)
        newest[symbol] = max(id, newest.get(symbol, -1))
    return Findings(wrong=wrong)


def _compared(db: duckdb.DuckDBPyConnection, query: str, found: pa.Table) -> Findings:
    """Count each row's copies on both sides; a row with another value is one lost and one wrong."""
    db.execute(f"CREATE OR REPLACE TEMP TABLE expected AS {query}")
    db.register("found", found)
    columns = db.sql("FROM expected").columns
    types = db.sql("FROM expected").types
    casts = ", ".join(f"CAST({name} AS {kind}) AS {name}" for name, kind in zip(columns, types, strict=True))
    counts = f"""
        SELECT sum(wanted) AS wanted, sum(there) AS there FROM (
            SELECT *, 1 AS wanted, 0 AS there FROM expected
            UNION ALL SELECT {casts}, 0, 1 FROM found
        ) GROUP BY {", ".join(columns)}"""
    row = db.execute(f"""
        SELECT coalesce(sum(wanted - there) FILTER (there < wanted), 0),
               coalesce(sum(there - wanted) FILTER (there > wanted AND wanted > 0), 0),
               coalesce(sum(there) FILTER (wanted = 0), 0)
        FROM ({counts})""").fetchone()
    assert row is not None
    return Findings(*map(int, row))
