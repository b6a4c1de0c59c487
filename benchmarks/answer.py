"""The right answer, by DuckDB in batch, and how far from it an output is."""

from __future__ import annotations

from pathlib import Path

import duckdb

from benchmarks.peers.protocol import Outcome

# Sums of prices in multiples of 1/256 are exact; only the division may differ, in the last bit.
TOLERANCE = 1e-12
# A row in this year closes every window of a system that closes them by the watermark only.
CLOSING_YEAR = 2100
SCHEMA = "{'symbol': 'VARCHAR', 'price': 'DOUBLE', 'size': 'BIGINT', 'ts': 'TIMESTAMPTZ'}"

ANSWERS = {
    "windowed": """
        SELECT symbol, time_bucket(INTERVAL '60 seconds', ts) AS window_start,
               sum(price * size) / sum(size) AS vwap, sum(size)::BIGINT AS volume, count(*) AS trades
        FROM {source} WHERE size > 0 GROUP BY symbol, window_start""",
    "stateless": "SELECT symbol, price * size AS notional, ts FROM {source} WHERE size > 0",
    "python": "SELECT symbol, price * size AS notional, ts FROM {source}",
}


def source(folder: Path | str, format: str) -> str:
    """Return the SQL that reads the files of a folder."""
    files = f"'{folder}/**/*.{format}'"
    match format:
        case "parquet":
            return f"read_parquet({files})"
        case "csv":
            return f"read_csv({files}, header = true, columns = {SCHEMA})"
    return f"read_json({files}, format = 'newline_delimited', columns = {SCHEMA})"


def answer(case: str, folder: Path | str, format: str) -> str:
    """Return the SQL of the right answer for the files of a folder."""
    return ANSWERS[case].format(source=source(folder, format))


def is_equal(case: str, expected: str, outcome: Outcome) -> bool:
    """Compare an output row by row with what a query says; nothing written is not equal to anything."""
    if not any(Path(outcome.output).rglob(outcome.files)):
        return False
    with duckdb.connect() as db:
        db.execute("SET TimeZone = 'UTC'")
        db.execute(f"CREATE TABLE expected AS {expected}")
        db.execute(f"CREATE TABLE found AS {_found(case, outcome)}")
        compare = _WINDOWS if case == "windowed" else _ROWS
        return db.execute(compare).fetchone() == (0,)


def _found(case: str, outcome: Outcome) -> str:
    rows = f"read_{outcome.format}('{outcome.output}/**/{outcome.files}')"
    if case != "windowed":
        return f"SELECT symbol, notional, ts FROM {rows}"
    # Text without a zone is in UTC here, as the session is.
    start = "CAST(window_start AS TIMESTAMPTZ)"
    return f"""SELECT symbol, {start} AS window_start, vwap, volume, trades
               FROM {rows} WHERE year({start}) < {CLOSING_YEAR}"""


_WINDOWS = f"""
    SELECT (SELECT count(*) FROM expected FULL JOIN found USING (symbol, window_start)
            WHERE expected.volume IS DISTINCT FROM found.volume
               OR expected.trades IS DISTINCT FROM found.trades
               OR NOT coalesce(abs(expected.vwap - found.vwap) <= {TOLERANCE} * abs(expected.vwap), false))
         + abs((SELECT count(*) FROM expected) - (SELECT count(*) FROM found))"""

_ROWS = """
    SELECT (SELECT count(*) FROM (FROM expected EXCEPT ALL FROM found))
         + (SELECT count(*) FROM (FROM found EXCEPT ALL FROM expected))"""
