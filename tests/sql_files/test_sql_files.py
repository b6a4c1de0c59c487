"""SQL files: tables, views and sinks as statements; one pipeline, with the file's name; errors with their lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.entry_points import load_entry
from penstock.errors import PenstockError

TABLE = """-- bids of a topic
CREATE TABLE bid (
  id BIGINT NOT NULL, auction BIGINT, price DECIMAL(12, 2), withdrawn BOOLEAN,
  PRIMARY KEY (id)
) WITH (connector = 'topic', name = 'bids', remove = 'withdrawn');
"""
SINK = "CREATE SINK best WITH (connector = 'table', connection = 'sqlite:///best.db', mode = 'upsert');\n"
VIEW = "CREATE VIEW highest AS\nSELECT auction, max(price) AS price FROM bid GROUP BY auction;\n"
INSERT = "INSERT INTO best SELECT auction, price FROM highest WHERE price > 10;\n"


def write(tmp_path: Path, text: str) -> str:
    path = tmp_path / "auctions.sql"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_a_file_is_a_pipeline_from_its_tables_to_its_sinks(tmp_path: Path) -> None:
    pipeline = load_entry(write(tmp_path, TABLE + VIEW + SINK + INSERT))
    assert pipeline.name == "auctions"
    shown = pipeline.explain()
    assert "bids" in shown
    assert "best" in shown


def test_a_table_without_a_primary_key_has_all_rows_and_a_column_can_be_the_key(tmp_path: Path) -> None:
    text = """
    CREATE SOURCE t (id BIGINT NOT NULL PRIMARY KEY, tags ARRAY<STRUCT<a: INT, b: STRING>>) WITH (connector = 'topic');
    CREATE TABLE u (id BIGINT) WITH (connector = 'datagen', rows = 10, seed = 3);
    CREATE SINK out WITH (connector = 'console');
    INSERT INTO out SELECT t.id, count(*) AS n FROM t JOIN u ON t.id = u.id GROUP BY t.id
    """
    shown = load_entry(write(tmp_path, text)).explain()
    assert "latest" in shown or "view" in shown


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        (TABLE + "SELECT 1;", 6, "SELECT 1 is not available"),
        (TABLE + VIEW, None, "writes nothing"),
        (TABLE + VIEW + "INSERT INTO best SELECT 1;", 8, "unknown sink 'best'"),
        (TABLE + "CREATE VIEW v AS SELECT pirce FROM bid;", 6, "unknown column 'pirce'"),
        (TABLE + "\n\nCREATE VIEW v AS SELECT id FROM bid LIMIT 3;", 8, "LIMIT without ORDER BY"),
        (TABLE + TABLE, 7, "bid is defined twice"),
        (TABLE.replace("'topic'", "'tpic'"), 2, "unknown connector 'tpic'"),
        (TABLE.replace("name =", "nam ="), 2, "has no parameter 'nam'"),
        (TABLE.replace("BIGINT,", "BIGGINT,"), 2, "BIGGINT"),
        ("CREATE TABLE t (id BIGINT)\nWITH (connector);", 2, "an option is a name, = and a value"),
        ("CREATE TABLE t (id BIGINT", 1, "a parenthesis is not closed"),
        ("CREATE TABLE t (ts TIMESTAMP,\nWATERMARK FOR ts AS ts) WITH (connector = 'topic')", 2, "WATERMARK is not"),
        ("CREATE VIEW v AS SELECT 1", 1, "no table is defined before it"),
        ("CREATE SINK s WITH (connector = 'console') x", 1, "'x' after the end of the statement"),
        (SINK.replace("'upsert'", "'merge'"), 1, "mode=merge is not a choice"),
        ("CREATE VIEW v AS SELECT 'a", None, "is not SQL"),
    ],
)
def test_an_error_has_the_line_of_its_statement(tmp_path: Path, text: str, line: int | None, message: str) -> None:
    file = write(tmp_path, text)
    with pytest.raises(PenstockError) as caught:
        load_entry(file)
    assert message in str(caught.value)
    assert line is None or f"{file}:{line}" in f"{caught.value} {caught.value.hint}"


def test_a_file_takes_neither_a_name_nor_values(tmp_path: Path) -> None:
    file = write(tmp_path, TABLE + SINK + "INSERT INTO best SELECT id, price FROM bid;")
    with pytest.raises(PenstockError, match="has one pipeline"):
        load_entry(f"{file}:job")
    with pytest.raises(PenstockError, match="takes no --set rows"):
        load_entry(file, ["rows=1"])
