"""What users write reads no files, no network, no environment and no settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import PenstockError
from penstock.sql_console.sandbox import connect
from tests.sql_console.console import lines

ATTEMPTS = [
    "SELECT * FROM read_csv('/etc/passwd')",
    "SELECT * FROM read_text('/etc/passwd')",
    "SELECT * FROM '/etc/passwd'",
    "SELECT * FROM `/etc/passwd`",
    "SELECT * FROM csv.`/etc/passwd`",
    "SELECT * FROM parquet.`/etc/passwd`",
    "SELECT * FROM glob('/*')",
    "SELECT * FROM duckdb_settings()",
    "SELECT * FROM duckdb_settings",
    "SELECT * FROM information_schema.tables",
    "SELECT * FROM pg_catalog.pg_settings",
    "SELECT * FROM range(10)",
    "SELECT read_text('/etc/passwd') FROM trades",
    "SELECT getenv('HOME') FROM trades",
    "SELECT current_setting('memory_limit') FROM trades",
    "SELECT getvariable('x') FROM trades",
    "SELECT reflect('java.lang.System', 'getenv', 'HOME') FROM trades",
    "SELECT java_method('java.lang.System', 'getProperty', 'user.home') FROM trades",
    "SELECT (SELECT max(x) FROM read_csv('/etc/passwd')) FROM trades",
    "SELECT symbol FROM trades WHERE symbol IN (SELECT content FROM read_text('/etc/passwd'))",
    "SELECT symbol FROM trades ORDER BY (SELECT content FROM read_text('/etc/passwd'))",
    "SELECT symbol FROM trades LIMIT (SELECT 1)",
    "SELECT upper((SELECT content FROM read_text('/etc/passwd'))) FROM trades",
    "COPY trades TO '/tmp/x.csv'",
    "COPY (SELECT 1) TO '/tmp/x.csv'",
    "ATTACH '/tmp/x.db'",
    "INSTALL httpfs",
    "LOAD httpfs",
    "PRAGMA database_list",
    "SET memory_limit = '100GB'",
    "RESET lock_configuration",
    "CALL pragma_version()",
    "CREATE TABLE x AS SELECT 1",
    "INSERT INTO trades VALUES (1)",
    "DROP TABLE trades",
    "EXPLAIN SELECT 1",
    "DESCRIBE trades",
    "SELECT * INTO x FROM trades",
    "FROM read_csv('/etc/passwd')",
    "SELECT 1; ATTACH '/tmp/x.db'",
    "SELECT symbol FROM trades -- x\n; COPY trades TO '/tmp/x.csv'",
    "WITH x AS (SELECT * FROM read_csv('/etc/passwd')) SELECT * FROM x",
    "SELECT '' || $1 FROM trades",
    "SELECT @@version FROM trades",
    "SELECT ${env:HOME} FROM trades",
]


@pytest.mark.parametrize("sql", ATTEMPTS)
def test_a_query_that_reads_something_else_is_refused(sql: str) -> None:
    with pytest.raises(PenstockError) as refused:
        lines(sql)
    assert "root:" not in str(refused.value)


@pytest.mark.parametrize(
    "text", ["'; ATTACH '/tmp/x.db'; --", "a' OR '1'='1", "\\'", '"', "{0}", "%s", "x\u0000y", "é\u2028", "$$"]
)
def test_a_text_stays_a_text(text: str) -> None:
    quoted = text.replace("\\", "\\\\").replace("'", "\\'")
    _, *chunks, _ = lines(f"SELECT '{quoted}' AS t FROM trades LIMIT 1")
    assert [row["t"] for chunk in chunks for row in chunk["rows"]] == [text]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM read_csv('/etc/passwd')",
        "COPY (SELECT 1) TO 'x.csv'",
        "ATTACH 'x.db'",
        "INSTALL httpfs",
        "SELECT * FROM glob('/*')",
        "SELECT getenv('HOME')",
        "SET memory_limit = '100GB'",
        "SET enable_external_access = true",
        "RESET lock_configuration",
        "SELECT * FROM python_variable",
    ],
)
def test_duckdb_itself_would_refuse_too(sql: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second wall: even if something of the user's text came through."""
    import duckdb
    import pyarrow as pa

    monkeypatch.chdir(tmp_path)
    python_variable = pa.table({"a": [1]})
    with pytest.raises(duckdb.Error):
        connect().execute(sql).fetchall()
    assert python_variable.num_rows == 1
    assert list(tmp_path.iterdir()) == []
