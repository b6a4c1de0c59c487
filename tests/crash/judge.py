"""The judge: what a run wrote against the batch recomputation, by DuckDB, row by row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import duckdb
import pyarrow as pa

from tests.crash.inputs import BEGIN, Input

_FITTING = "size > 0 AND ts {} '" + BEGIN.isoformat() + "'"
_WINDOW = "symbol, time_bucket(INTERVAL 10 SECOND, ts) AS window_start, window_start + INTERVAL 10 SECOND AS window_end"
_IN_TIME, _LATE = _FITTING.format(">="), _FITTING.format("<")
EXPECTED = {
    "windowed": f"""SELECT {_WINDOW}, sum(size)::BIGINT AS volume, count(*) AS trades, sum(price * size) AS notional
                    FROM input WHERE {_IN_TIME} GROUP BY ALL""",
    "aggregated": f"SELECT {_WINDOW}, sum(size)::BIGINT AS volume FROM input WHERE {_IN_TIME} GROUP BY ALL",
    "stateless": "SELECT id, symbol, ts, price * size AS notional FROM input WHERE size > 0",
}
LATE = f"SELECT id, symbol, price, size, ts FROM input WHERE {_LATE}"


class Findings(NamedTuple):
    """Rows that are not there, there too often, and there though they should not be."""

    lost: int = 0
    duplicated: int = 0
    wrong: int = 0

    def plus(self, other: Findings) -> Findings:
        """Add up."""
        return Findings(*(mine + its for mine, its in zip(self, other, strict=True)))


def judge(given: Input, pipeline: str, outputs: Mapping[str, pa.Table]) -> dict[str, Findings]:
    """Compare each output that the pipeline has with what it should hold."""
    wanted = {"out": EXPECTED[pipeline], "rejected": "SELECT raw FROM bad"}
    if pipeline != "stateless":
        wanted["late"] = LATE
    with duckdb.connect() as db:
        db.execute("SET TimeZone = 'UTC'")
        db.register("input", given.table)
        db.register("bad", pa.table({"raw": given.bad}))
        return {name: _compared(db, query, outputs[name]) for name, query in wanted.items()}


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
