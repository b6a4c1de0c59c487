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
        (TABLE.replace("name =", "nam ="), 2, "has no option 'nam'"),
        (TABLE.replace("BIGINT,", "BIGGINT,"), 2, "BIGGINT"),
        ("CREATE TABLE t (id BIGINT)\nWITH (connector);", 2, "an option is a name, = and a value"),
        ("CREATE TABLE t (id BIGINT", 1, "a parenthesis is not closed"),
        ("CREATE TABLE t (ts TIMESTAMP,\nWATERMARK FOR ts AS ts) WITH (connector = 'topic')", 2, "WATERMARK is not"),
        ("CREATE VIEW v AS SELECT 1", 1, "no table is defined before it"),
        ("CREATE SINK s WITH (connector = 'console') x", 1, "'x' after the end of the statement"),
        (SINK.replace("'upsert'", "'merge'"), 1, "mode=merge is not a choice"),
        ("CREATE VIEW v AS SELECT 'a", None, "is not SQL"),
        (SINK.replace("mode", "key = 'a', key"), 1, "the option key is given twice"),
    ],
)
def test_an_error_has_the_line_of_its_statement(tmp_path: Path, text: str, line: int | None, message: str) -> None:
    file = write(tmp_path, text)
    with pytest.raises(PenstockError) as caught:
        load_entry(file)
    assert message in str(caught.value)
    assert line is None or f"{file}:{line}" in f"{caught.value} {caught.value.hint}"


FILES = "CREATE TABLE t (id BIGINT) WITH (connector = 'files', path = 'in', format = 'csv', {});"
WHOLE = "CREATE SINK s WITH (connector = 'files', path = 'out', {});"


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        (WHOLE.format("whole = 'ture'"), "s: whole=ture is not a bool", "did you mean 'true'?"),
        (WHOLE.format("whoel = 'true'"), "s has no option 'whoel'", "did you mean 'whole'?"),
        (
            WHOLE.format("guarantee = 'exact'"),
            "guarantee=exact is not a choice",
            "choices: exactly_once, at_least_once",
        ),
        (FILES.format("header = 'atuo'"), "header=atuo is not a choice", "0, auto      did you mean 'auto'?"),
        (FILES.format("removed = 'id = 1'"), "t has no option 'removed'", "did you mean 'remove'?"),
        (FILES.format("rows = 3"), "t has no option 'rows'", "options: path, format, "),
        (
            TABLE.replace("'topic'", "'datagen', rows = 'ten'").replace("name = 'bids', ", ""),
            "is not an int",
            "rows=10",
        ),
    ],
)
def test_an_option_that_is_not_known_is_refused_with_the_choices(
    tmp_path: Path, text: str, message: str, hint: str
) -> None:
    with pytest.raises(PenstockError) as caught:
        load_entry(write(tmp_path, text))
    assert message in caught.value.message
    assert hint in str(caught.value.hint)


def test_an_option_may_have_several_names_between_commas(tmp_path: Path) -> None:
    text = FILES.format("header = auto") + SINK.replace("mode", "key = 'id, n', mode")
    file = write(tmp_path, text + "INSERT INTO best SELECT id, count(*) AS n FROM t GROUP BY id")
    assert "latest all rows" in load_entry(file).explain()


def test_a_file_takes_neither_a_name_nor_values(tmp_path: Path) -> None:
    file = write(tmp_path, TABLE + SINK + "INSERT INTO best SELECT id, price FROM bid;")
    with pytest.raises(PenstockError, match="has one pipeline"):
        load_entry(f"{file}:job")
    with pytest.raises(PenstockError, match="takes no --set rows"):
        load_entry(file, ["rows=1"])
