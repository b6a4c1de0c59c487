"""The demo's judge: the same result from the raw input, in batch, by another engine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

# Prices are multiples of 1/256, so sums are exact and the quotient is the same to the last bit.
_COMPARE = """
WITH used AS (
    SELECT symbol, price, size, ts FROM read_parquet('{folder}/trades/*.parquet') WHERE size > 0
    {minus_late}
), expected AS (
    SELECT symbol, time_bucket(INTERVAL 60 SECOND, ts) AS window_start,
           sum(price * size) / sum(size) AS vwap, sum(size) AS volume, count(*) AS trades
    FROM used GROUP BY ALL
), actual AS (
    SELECT symbol, window_start, vwap, volume, trades, count(*) OVER (PARTITION BY symbol, window_start) AS times
    FROM read_parquet('{folder}/vwap/*.parquet')
)
SELECT coalesce(e.symbol, a.symbol) AS symbol, coalesce(e.window_start, a.window_start) AS window_start,
       e.vwap AS expected_vwap, a.vwap AS actual_vwap, e.trades AS expected_trades, a.trades AS actual_trades,
       e.vwap IS NOT DISTINCT FROM a.vwap AND e.volume IS NOT DISTINCT FROM a.volume
           AND e.trades IS NOT DISTINCT FROM a.trades AND a.times = 1 AS same
FROM expected e FULL OUTER JOIN actual a USING (symbol, window_start)
"""


@dataclass(frozen=True)
class Verdict:
    """How many results there are, and those that differ."""

    rows: int
    differ: int
    examples: list[dict[str, Any]]

    @property
    def equal(self) -> bool:
        """Whether every row is the same in both."""
        return self.rows > 0 and self.differ == 0


def check(folder: Path) -> Verdict:
    """Compare the stream's results with a batch over the raw trades, less those that came late."""
    late = any((folder / "late").glob("*.parquet"))
    minus = f"EXCEPT ALL SELECT symbol, price, size, ts FROM read_parquet('{folder}/late/*.parquet')"
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    sql = _COMPARE.format(folder=folder, minus_late=minus if late else "")
    connection.execute(f"CREATE TABLE compared AS {sql}")
    rows, differ = connection.sql(
        "SELECT count(*), count(*) FILTER (WHERE NOT coalesce(same, false)) FROM compared"
    ).fetchall()[0]
    found = connection.sql("SELECT * FROM compared WHERE NOT coalesce(same, false) LIMIT 3").to_arrow_table()
    return Verdict(rows, differ, found.to_pylist())
