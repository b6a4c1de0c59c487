"""Joins with tables: PostgreSQL, SQLite, files and topics; each epoch sees one version, also after a crash."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock.connectors.tables.source import DatabaseTable, TableSource
from penstock.errors import (
    BadJoin,
    BadSchema,
    BadValue,
    CheckpointDamaged,
    MissingEventTime,
    MissingInput,
    PenstockError,
    SettingsError,
    SourceFailed,
    UnknownColumn,
)
from penstock.settings import Settings
from penstock.spark.lowering.table_versions import Versions
from penstock.storage.folders import LocalFolder
from penstock.testing import Crash, run_to_end
from tests.conftest import at
from tests.waiting import wait_for

if TYPE_CHECKING:
    from tests.databases import PostgresServer

SHAPE = "id bigint, user bigint, ts timestamp"


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[tuple[sqlite3.Connection, str]]:
    """A database of SQLite with users and the history of their plans."""
    path = tmp_path / "shop.db"
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT NOT NULL)")
        db.execute("INSERT INTO users VALUES (1, 'ada'), (2, 'bob')")
        db.execute("CREATE TABLE plans (user INTEGER, plan TEXT, since DATETIME)")
        plans = [(1, "free", at(0)), (1, "pro", at(10)), (2, "free", at(20))]
        db.executemany("INSERT INTO plans VALUES (?, ?, ?)", [(u, p, t.isoformat()) for u, p, t in plans])
        db.commit()
        yield db, f"sqlite:///{path}"
    db.close()


def users(url: str, **options: Any) -> ps.Table:
    return ps.read_table("users", connection=url, key="id", refresh="0s", **options)


def test_each_row_meets_the_row_of_its_key_and_a_crash_changes_nothing(
    shop: tuple[sqlite3.Connection, str], settings: Settings
) -> None:
    """The table changes in each epoch: a replayed epoch still sees the version of its first try."""
    _, url = shop
    path = url.removeprefix("sqlite:///")

    def renames(row: dict[str, Any]) -> dict[str, Any]:
        with sqlite3.connect(path, timeout=60) as db:
            db.execute("UPDATE users SET name = name || '!' WHERE id = 1")
        db.close()
        return row

    clicks = ps.from_items([], SHAPE).named("clicks").event_time("ts", "5s")
    known = clicks.join(users(url), {"user": "id"}, "left").named("users")
    plans = ps.read_table("plans", connection=url, key="user", valid_from="since")
    then = clicks.join_asof(plans, "user", "inner", max_age="15s")
    counted = clicks.join(users(url), {"user": "id"}, "semi").named("semi").window(ps.tumbling("1h"))
    outputs = [
        known.map(renames, on_error="fail").to(ps.collect()).named("known"),
        then.to(ps.collect()).named("then"),
        counted.aggregate(n="count(*)").to(ps.collect()).named("counted"),
    ]
    rows = [
        {"id": n, "user": user, "ts": at(s)} for n, (user, s) in enumerate([(1, 5), (3, 6), (1, 12), (2, 22), (1, 40)])
    ]
    items = [*rows[:3], Crash(), *rows[3:]]
    out = run_to_end(ps.Pipeline("clicks", *outputs), {"clicks": items}, settings=settings)
    names = {row["id"]: row["name"] for row in out["known"]}
    assert (names[1], names[3]) == (None, "bob")
    # Three rows of the first epoch renamed her, each time that it was computed; all of them see its one version.
    assert names[0] == names[2] == "ada"
    assert names[4].count("!") > 3
    assert {row["id"]: row["plan"] for row in out["then"]} == {0: "free", 2: "pro", 3: "free"}
    assert [row["n"] for row in out["counted"]] == [4]
    assert out.counts["users"].used == 5
    assert (out.counts["semi"].used, out.counts["semi"].filtered) == (4, 1)


def versions(table: ps.Table, folder: Path, refresh_s: float = 0) -> Versions:
    source = table.source
    assert isinstance(source, TableSource)
    return Versions(LocalFolder(folder), source, table.key, table.valid_from, refresh_s, 3, "join_table")


def test_a_table_of_postgresql_is_read_as_its_catalog_says(postgres: PostgresServer, tmp_path: Path) -> None:
    postgres.sql("DROP TABLE IF EXISTS goods; DROP TYPE IF EXISTS color; CREATE TYPE color AS ENUM ('red', 'blue')")
    postgres.sql(
        "CREATE TABLE goods (id bigint PRIMARY KEY, price numeric(10,2), color color, more jsonb, sold bool, "
        "at timestamptz, local timestamp, day date, raw bytea, weight real)"
    )
    postgres.sql(
        "INSERT INTO goods VALUES (1, 9.90, 'red', '{\"a\": 1}', true, '2026-01-01T01:00+01', '2026-01-01', "
        "'2026-01-02', '\\x01', 1.5), (2, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)"
    )
    table = ps.read_table("goods", connection=postgres.url, key="id")
    assert table.schema.ddl == (
        "id bigint not null, price decimal(10,2), color string, more string, sold boolean, at timestamp, "
        "local timestamp_ntz, day date, raw binary, weight float"
    )
    first, second = versions(table, tmp_path).seen_by(0).to_pylist()
    assert (str(first["price"]), first["color"], first["more"], first["sold"]) == ("9.90", "red", '{"a": 1}', True)
    assert (first["at"], str(first["local"]), first["raw"]) == (at(0), "2026-01-01 00:00:00", b"\x01")
    assert second == dict.fromkeys(table.schema.names) | {"id": 2}


def test_the_last_version_is_used_while_the_database_is_away(postgres: PostgresServer, tmp_path: Path) -> None:
    postgres.sql("DROP TABLE IF EXISTS flags; CREATE TABLE flags (id int PRIMARY KEY); INSERT INTO flags VALUES (1)")
    seen = versions(ps.read_table("flags", connection=postgres.url, key="id"), tmp_path)
    assert seen.seen_by(0).num_rows == 1
    postgres.stop()
    try:
        assert seen.seen_by(1).num_rows == 1
        with pytest.raises(SettingsError, match="does not answer"):
            ps.read_table("flags", connection=postgres.url, key="id")
    finally:
        postgres.start()
    postgres.sql("INSERT INTO flags VALUES (2)")
    assert [seen.seen_by(epoch).num_rows for epoch in (2, 1, 0)] == [2, 1, 1]
    postgres.sql("DROP TABLE flags")
    with pytest.raises(SourceFailed, match=r"table flags at .* is missing: it was dropped or renamed"):
        seen.seen_by(3)


def test_a_table_may_be_away_only_for_so_long(postgres: PostgresServer, tmp_path: Path) -> None:
    postgres.sql("DROP TABLE IF EXISTS flags; CREATE TABLE flags (id int PRIMARY KEY); INSERT INTO flags VALUES (1)")
    table = ps.read_table("flags", connection=postgres.url, key="id", max_staleness="0s")
    patient = versions(table, tmp_path)
    strict = replace(patient, max_staleness_s=table.max_staleness_us / 1_000_000)
    assert patient.seen_by(0).num_rows == 1
    postgres.stop()
    try:
        assert patient.seen_by(1).num_rows == 1
        with pytest.raises(SourceFailed, match=r"could not be read for .*does not answer") as failed:
            strict.seen_by(2)
    finally:
        postgres.start()
    assert failed.value.transient
    assert "max_staleness" in str(failed.value)
    assert strict.seen_by(2).num_rows == 1
    assert "away" not in json.loads((tmp_path / "newest.json").read_text())


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("ALTER TABLE tags RENAME name TO label", r"has no column 'name' any more\n  columns there: id, label"),
        ("ALTER TABLE tags RENAME TO labels", "is missing: it was dropped or renamed"),
        (
            "ALTER TABLE tags OWNER TO postgres",
            r"permission denied for this user\n  its owner runs: GRANT SELECT ON tags",
        ),
    ],
)
def test_a_table_that_is_changed_says_how(postgres: PostgresServer, tmp_path: Path, change: str, reason: str) -> None:
    owner = postgres.admin.replace("/postgres?", "/shop?")
    postgres.sql("DROP TABLE IF EXISTS tags, labels", owner)
    postgres.sql("CREATE TABLE tags (id int PRIMARY KEY, name text)")
    table = ps.read_table("tags", connection=postgres.url, key="id")
    seen = versions(table, tmp_path)
    assert seen.seen_by(0).num_rows == 0
    postgres.sql(change, owner)
    with pytest.raises(SourceFailed, match=reason):
        seen.seen_by(1)
    with pytest.raises(PenstockError):
        table.source.check()


def test_a_job_reports_that_a_table_is_away_and_back_and_ends_when_it_is_dropped(
    postgres: PostgresServer, tmp_path: Path, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    postgres.sql("DROP TABLE IF EXISTS people; CREATE TABLE people (id bigint PRIMARY KEY, name text)")
    postgres.sql("INSERT INTO people VALUES (1, 'ada')")
    (tmp_path / "in").mkdir()
    clicks = ps.read_files(str(tmp_path / "in"), schema="id bigint, user bigint", format="json")
    sink = ps.collect()
    people = ps.read_table("people", connection=postgres.url, key="id", refresh="0s")
    pipeline = ps.Pipeline("away", clicks.join(people, on={"user": "id"}).to(sink))
    run = pipeline.start(checkpoint=str(tmp_path / "c"), settings=settings)

    def click(number: int) -> None:
        (tmp_path / "in" / f"{number}.tmp").write_text(json.dumps({"id": number, "user": 1}) + "\n")
        (tmp_path / "in" / f"{number}.tmp").rename(tmp_path / "in" / f"{number}.json")

    def joined(number: int) -> None:
        click(number)
        wait_for(lambda: len(sink.rows) == number, "the row was not joined", while_=lambda: not run.wait(0))

    joined(1)
    postgres.stop()
    try:
        joined(2)
        joined(3)
        wait_for(lambda: "does not answer" in caplog.text)
    finally:
        postgres.start()
    postgres.sql("UPDATE people SET name = 'eve'")
    joined(4)
    wait_for(lambda: "the table can be read again, after" in caplog.text)
    assert caplog.text.count("does not answer") == 1
    assert "if it cannot be read for 10m, the job fails" in caplog.text
    assert {row["id"]: row["name"] for row in sink.rows} == {1: "ada", 2: "ada", 3: "ada", 4: "eve"}
    postgres.sql("DROP TABLE people")
    click(5)
    with pytest.raises(SourceFailed, match=r"table people at .* is missing") as failed:
        run.wait(60)
    assert "Traceback" not in str(failed.value)


def test_versions_that_no_epoch_can_ask_for_are_dropped(shop: tuple[sqlite3.Connection, str], tmp_path: Path) -> None:
    db, url = shop
    seen = versions(users(url), tmp_path / "versions")
    for epoch in range(12):
        db.execute("UPDATE users SET name = ? WHERE id = 1", [f"ada{epoch}"])
        db.commit()
        assert seen.seen_by(epoch).column("name")[0].as_py() == f"ada{epoch}"
    kept = [name for name in (tmp_path / "versions").iterdir() if name.suffix == ".arrow"]
    assert 3 <= len(kept) <= 7
    assert seen.seen_by(9).column("name")[0].as_py() == "ada9"


def test_an_epoch_sees_its_version_again_though_the_file_that_names_it_is_lost(
    shop: tuple[sqlite3.Connection, str], tmp_path: Path
) -> None:
    db, url = shop
    seen = versions(users(url), tmp_path / "versions")
    for epoch, name in enumerate(["ada", "ada", "eve", "fay"]):
        db.execute("UPDATE users SET name = ? WHERE id = 1", [name])
        db.commit()
        seen.seen_by(epoch)
    for epoch, name in [(3, "fay"), (2, "eve"), (1, "ada"), (0, "ada")]:
        (tmp_path / "versions" / "epochs" / str(epoch)).unlink()
        db.execute("UPDATE users SET name = 'zoe' WHERE id = 1")
        db.commit()
        assert seen.seen_by(epoch).column("name")[0].as_py() == name
    assert seen.seen_by(4).column("name")[0].as_py() == "zoe"
    for epoch in range(5, 20):
        seen.seen_by(epoch)
    with pytest.raises(CheckpointDamaged, match="epochs/0, the version of the table that the epoch saw, is missing"):
        seen.seen_by(0)


def test_a_table_is_not_read_again_before_it_is_time(shop: tuple[sqlite3.Connection, str], tmp_path: Path) -> None:
    db, url = shop
    seen = versions(users(url), tmp_path / "versions", refresh_s=3600)
    before = seen.seen_by(0)
    db.execute("DELETE FROM users")
    db.commit()
    assert seen.seen_by(1) == before


def test_files_are_a_table_too(tmp_path: Path) -> None:
    folder = tmp_path / "users"
    folder.mkdir()
    pq.write_table(pa.table({"id": [2, 1], "name": ["bob", "ada"]}), folder / "a.parquet")
    seen = versions(ps.read_table(str(folder), connection="files", key="id"), tmp_path / "versions")
    assert seen.seen_by(0).to_pylist() == [{"id": 1, "name": "ada"}, {"id": 2, "name": "bob"}]
    pq.write_table(pa.table({"id": [3], "name": ["eve"]}), folder / "b.parquet")
    assert seen.seen_by(1).num_rows == 3
    # A folder that is being replaced is not a table without rows.
    folder.rename(tmp_path / "aside")
    assert seen.seen_by(2).num_rows == 3
    with pytest.raises(SourceFailed, match=r"could not be read for .*: table users: there is no file or folder"):
        replace(seen, max_staleness_s=0).seen_by(3)
    (tmp_path / "aside").rename(folder)
    assert seen.seen_by(3).num_rows == 3
    (tmp_path / "bad.json").write_text('{"id": 1}\n{"id": "x"}\n')
    bad = ps.read_table(str(tmp_path / "bad.json"), connection="files", key="id", schema="id bigint")
    with pytest.raises(SourceFailed, match="cannot be read"):
        versions(bad, tmp_path / "bad").seen_by(0)


def test_the_last_record_of_a_key_is_the_row_of_a_topic(event_log: str, tmp_path: Path) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": event_log})
    for row in ({"rule": "a", "most": 1}, {"rule": "b", "most": 2}, {"rule": "a", "most": 3}):
        producer.produce("rules-table", json.dumps(row).encode(), partition=0)
    producer.flush()
    table = ps.read_table("rules-table", connection=event_log, key="rule", schema="rule string, most bigint")
    seen = versions(table, tmp_path)
    assert seen.seen_by(0).to_pylist() == [{"rule": "a", "most": 3}, {"rule": "b", "most": 2}]
    producer.produce("rules-table", json.dumps({"rule": "b", "most": 9}).encode(), partition=0)
    producer.flush()
    assert seen.seen_by(1).column("most").to_pylist() == [3, 9]


def test_a_key_that_is_there_twice_is_an_error(shop: tuple[sqlite3.Connection, str], tmp_path: Path) -> None:
    _, url = shop
    table = ps.read_table("plans", connection=url, key="user")
    with pytest.raises(SourceFailed, match=r"two rows for \{'user': 1\}"):
        versions(table, tmp_path / "versions").seen_by(0)


def test_mistakes_are_reported_when_the_pipeline_is_built(shop: tuple[sqlite3.Connection, str], tmp_path: Path) -> None:
    _, url = shop
    clicks = ps.from_items([], SHAPE)
    plans = ps.read_table("plans", connection=url, key="user", valid_from="since")
    with pytest.raises(MissingInput, match="there is no table nobody"):
        ps.read_table("nobody", connection=url, key="id")
    with pytest.raises(SettingsError, match="there is no database"):
        ps.read_table("users", connection=f"sqlite:///{tmp_path}/none.db", key="id")
    assert not (tmp_path / "none.db").exists()
    with pytest.raises(UnknownColumn, match="nr"):
        users(url, valid_from="nr")
    with pytest.raises(BadSchema, match="not a timestamp"):
        users(url, valid_from="name")
    with pytest.raises(BadValue, match="no key"):
        ps.read_table("users", connection=url, key=())
    with pytest.raises(BadSchema, match="which columns"):
        ps.read_table("rules", connection="log", key="rule")
    with pytest.raises(BadJoin, match="join_asof"):
        clicks.join(plans, "user")
    with pytest.raises(BadJoin, match="has no valid_from column"):
        clicks.event_time("ts", "1s").join_asof(users(url), {"user": "id"})
    with pytest.raises(MissingEventTime):
        clicks.join_asof(plans, "user")
    with pytest.raises(BadJoin, match="key is id"):
        clicks.join(users(url), {"user": "id", "id": "id"})
    with pytest.raises(BadJoin, match="right"):
        clicks.join(users(url), {"user": "id"}, "right")
    with pytest.raises(BadJoin, match="within= is for two streams"):
        clicks.join(users(url), {"user": "id"}, within=("0s", "1s"))


def test_a_plan_with_a_table_comes_back_from_json_by_the_name_of_its_connection(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    postgres.sql("DROP TABLE IF EXISTS people; CREATE TABLE people (id bigint PRIMARY KEY, name text)")
    monkeypatch.setenv("PENSTOCK_CONNECTIONS", f"crm={postgres.url}")

    def joined(connection: str) -> ps.Pipeline:
        table = ps.read_table("people", connection=connection, key="id", refresh="30s")
        return ps.Pipeline("p", ps.from_items([], SHAPE).join(table, {"user": "id"}).to(ps.console()))

    pipeline = joined("crm")
    assert ps.Pipeline.from_json(pipeline.to_json()).explain() == pipeline.explain()
    with_password = joined(postgres.url).to_json()
    assert "s3cret" not in with_password
    with pytest.raises(SettingsError, match="secrets are not kept in plans"):
        ps.Pipeline.from_json(with_password)
    assert "inner with table people on user = id, read again every 30s" in pipeline.explain()
    with pytest.raises(psycopg.Error):
        postgres.sql("SELECT * FROM nobody")
    people = ps.read_table("people", connection=postgres.url, key="id", refresh="30s")
    assert DatabaseTable("people", postgres.url, people.schema) == people.source
