"""What is SQLite's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import BadSchema, BadValue, SettingsError, SinkFailed
from tests.connectors.table_sinks import TargetTable, prepare, sqlite_table


@pytest.fixture
def place(tmp_path: Path) -> TargetTable:
    return sqlite_table(tmp_path / "new" / "shop.db", "t")


def test_readers_do_not_wait_for_the_writer(place: TargetTable) -> None:
    place.sink("a double")
    assert place.sql("PRAGMA journal_mode") == [("wal",)]


def test_what_sqlite_would_change_in_silence_is_refused(place: TargetTable) -> None:
    sink = place.sink("a double")
    with pytest.raises(SinkFailed, match=r"column 'a' holds NaN(.|\n)*nanvl\(a, null\)"):
        prepare(sink, 1, "a double", [{"a": 1.0}, {"a": float("nan")}])
    assert place.rows() == []
    place.sql("CREATE TABLE codes (code integer)")
    with pytest.raises(BadSchema, match="column 'code': rows have string, the table INTEGER"):
        place.sink("code string", name="codes")


def test_a_name_with_a_dot_and_a_file_of_another_kind_are_refused(place: TargetTable, tmp_path: Path) -> None:
    with pytest.raises(BadValue, match=r"SQLite has no schemas(.|\n)*table\('t', ...\)"):
        place.sink("a double", name="main.t")
    (tmp_path / "notes.txt").write_text("no database at all, but text of some length" * 100)
    with pytest.raises(SettingsError, match="must be a SQLite database"):
        sqlite_table(tmp_path / "notes.txt", "t").sink("a double")
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingsError, match="cannot be written"):
        sqlite_table(tmp_path / "file" / "x.db", "t").sink("a double")


def test_a_commit_is_on_the_disk_when_it_returns(place: TargetTable) -> None:
    sink = place.sink("n bigint")
    with sink.database.transaction(sink.name) as session:
        assert session.execute("PRAGMA journal_mode") == [("wal",)]
        # 2 is FULL: each commit syncs the log; with 1, NORMAL, a power cut may take the newest commits back.
        assert session.execute("PRAGMA synchronous") == [(2,)]
