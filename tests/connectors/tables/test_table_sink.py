"""What holds for tables of both databases."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

import penstock as ps
from penstock.connectors.catalog import sink_from_spec
from penstock.connectors.tables.sink import TableSink
from penstock.contracts import ROW_REMOVED
from penstock.errors import BadSchema, BadValue, LedgerAhead, SettingsError, SinkFailed
from penstock.schema import Schema
from penstock.settings import Settings
from tests.connectors.table_sinks import SETTINGS, TargetTable, epoch, opened, prepare, sqlite_table
from tests.databases import table_name

PAIR = "k bigint, v string"
EVERY = (
    "s string, b bigint, i int, h smallint, t tinyint, d double, f float, o boolean, y binary, ts timestamp, "
    "nt timestamp_ntz, dt date, dec decimal(20,10), iv interval day to second, a array<double>, "
    "m map<string,bigint>, r struct<x:string,n:int>"
)
NOON = datetime(2026, 1, 1, 12, 30, 0, 123456, UTC)


@pytest.fixture(params=["postgres", "sqlite"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> TargetTable:
    table = table_name(request.node.name)
    if request.param == "sqlite":
        return sqlite_table(tmp_path / "shop.db", table)
    server = request.getfixturevalue("postgres")
    return TargetTable(server.url, table, server.sql)


def pairs(*values: tuple[int, str]) -> list[dict[str, object]]:
    return [{"k": key, "v": value} for key, value in values]


def test_an_epoch_that_comes_again_is_written_once(place: TargetTable) -> None:
    sink = place.sink(PAIR)
    prepare(sink, 3, PAIR, pairs((1, "a"), (2, "b")))
    prepare(sink, 3, PAIR, pairs((1, "a"), (2, "b")))
    prepare(sink, 2, PAIR, pairs((9, "old")))
    prepare(sink, 7, PAIR, pairs((1, "c")))
    assert place.rows() == [(1, "a"), (1, "c"), (2, "b")]


def test_an_epoch_that_comes_again_with_other_input_is_not_taken_for_written(place: TargetTable) -> None:
    sink = place.sink(PAIR)
    arrow = Schema(PAIR).nullable().arrow

    def write(bounds: str, *rows: tuple[int, str]) -> None:
        batch = pa.RecordBatch.from_pylist(pairs(*rows), schema=arrow)
        sink.prepare(replace(epoch(sink, 3), bounds=bounds), 0, [batch])

    write("aa", (1, "a"))
    write("aabb", (1, "a"))
    with pytest.raises(LedgerAhead, match="its ledger has epoch 3 with other input than it has now"):
        write("ab", (2, "b"))
    assert place.rows() == [(1, "a")]


def test_partitions_are_in_the_ledger_one_by_one(place: TargetTable) -> None:
    sink = place.sink(PAIR)
    assert sink.partitions == (2 if place.is_postgres else 1)
    sink.partitions = 2
    prepare(sink, 1, PAIR, pairs((1, "a")), partition=0)
    prepare(sink, 1, PAIR, pairs((2, "b")), partition=1)
    prepare(sink, 1, PAIR, pairs((2, "b")), partition=1)
    prepare(sink, 2, PAIR, pairs((3, "c")), partition=1)
    ledger = place.sql("SELECT lineage, sink, partition, partitions, epoch FROM penstock_ledger ORDER BY partition")
    mine = [line for line in ledger if line[1] == sink.name]
    assert mine == [("line", sink.name, 0, 2, 1), ("line", sink.name, 1, 2, 2)]
    assert place.rows("k") == [(1,), (2,), (3,)]


def test_the_number_of_partitions_in_the_ledger_wins(place: TargetTable) -> None:
    sink = place.sink(PAIR)
    sink.partitions = 5
    prepare(sink, 1, PAIR, pairs((1, "a")), partition=4)
    assert place.sink(PAIR).partitions == 5
    sink.partitions = 3
    with pytest.raises(SinkFailed, match=r"has 5 partitions of it, but rows come in 3"):
        prepare(sink, 2, PAIR, pairs((1, "a")), partition=4)


def test_rows_of_a_task_that_fails_are_not_there(place: TargetTable) -> None:
    sink = place.sink(PAIR)

    def broken() -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pylist(pairs((1, "a")))
        raise RuntimeError("worker lost")

    with pytest.raises(RuntimeError, match="worker lost"):
        sink.prepare(epoch(sink, 1), 0, broken())
    assert place.rows() == []
    prepare(sink, 1, PAIR, pairs((1, "a")))
    assert place.rows() == [(1, "a")]


def test_an_upsert_keeps_the_last_row_of_each_key_and_removes_what_is_to_go(place: TargetTable) -> None:
    sink = place.sink(PAIR, mode="upsert", key=["k"], remove="v IS NULL")
    assert sink.updates

    def write(number: int, *rows: tuple[int, str | None]) -> None:
        given = [{"k": key, "v": value, ROW_REMOVED: value is None} for key, value in rows]
        prepare(sink, number, PAIR, given)

    write(1, (1, "a"), (2, "b"), (1, "c"), (3, None), (4, "d"))
    assert place.rows() == [(1, "c"), (2, "b"), (4, "d")]
    write(2, (2, None), (4, None), (4, "e"), (1, "x"), (1, None), (5, "new"))
    write(2, (9, "again"))
    assert place.rows() == [(4, "e"), (5, "new")]


def test_the_stream_s_key_is_the_table_s_unless_another_is_given(place: TargetTable) -> None:
    shape = "k bigint, w bigint"
    keyed = opened(TableSink(place.table, place.url, "upsert"), shape, ("k", "w"))
    assert keyed.key == ("k", "w")
    prepare(keyed, 1, shape, [{"k": 1, "w": 1}, {"k": 1, "w": 2}, {"k": 1, "w": 1}])
    assert place.rows() == [(1, 1), (1, 2)]
    with pytest.raises(SinkFailed, match=r"key column 'w' is null(.|\n)*w IS NOT NULL"):
        prepare(keyed, 2, shape, [{"k": 1, "w": None}])
    with pytest.raises(BadSchema, match=r"upsert needs a key(.|\n)*columns here: k, w"):
        opened(TableSink(place.table + "2", place.url, "upsert"), shape)


def test_every_type_comes_back_as_it_was(place: TargetTable) -> None:
    sink = place.sink(EVERY)
    row = {
        "s": 'q"uo,te\n\\.', "b": 2**62, "i": -5, "h": 300, "t": -7, "d": 0.1, "f": 0.5, "o": True, "y": b"\x00\xff",
        "ts": NOON, "nt": NOON.replace(tzinfo=None), "dt": date(1969, 7, 20), "dec": Decimal("1234567890.0000000001"),
        "iv": timedelta(days=2, microseconds=5), "a": [1.5, None], "m": [("x", 1)], "r": {"x": "é", "n": None},
    }  # fmt: skip
    prepare(sink, 1, EVERY, [row, dict.fromkeys(row), row | {"s": "", "y": b""}, {"s": "last"}])
    every = [dict(zip(row, found, strict=True)) for found in place.sql(f"SELECT * FROM {place.table}")]
    full, none, empty, last = every
    wanted = dict(row) | {"m": {"x": 1}}
    if not place.is_postgres:
        wanted |= {
            "o": 1, "ts": "2026-01-01T12:30:00.123456Z", "nt": "2026-01-01T12:30:00.123456", "dt": "1969-07-20",
            "dec": "1234567890.0000000001", "iv": 2 * 86_400_000_000 + 5,
            "a": "[1.5, null]", "m": '{"x": 1}', "r": '{"x": "é", "n": null}',
        }  # fmt: skip
    assert full == wanted
    assert empty == wanted | {"s": "", "y": b""}
    assert none == dict.fromkeys(row)
    assert last["s"] == "last"


def test_a_table_that_is_there_must_fit_the_rows(place: TargetTable) -> None:
    place.sql(f"CREATE TABLE {place.table} (k bigint, v date, n integer NOT NULL, d integer DEFAULT 4 NOT NULL)")
    with pytest.raises(BadSchema) as raised:
        place.sink(PAIR + ", w double")
    said = str(raised.value)
    assert "column 'v': rows have string, the table" in said
    assert "column 'w' (double) is missing: ALTER TABLE" in said
    assert "column 'n' is not null without a default, and rows have none" in said
    assert "'d'" not in said
    assert "'k'" not in said


def test_an_upsert_into_a_table_without_a_unique_index_says_what_to_run(place: TargetTable) -> None:
    place.sql(f"CREATE TABLE {place.table} (k bigint, v text, extra text)")
    with pytest.raises(BadSchema) as raised:
        place.sink(PAIR, mode="upsert", key=["k"])
    place.sql(str(raised.value).rpartition("run: ")[2])
    sink = place.sink(PAIR, mode="upsert", key=["k"])
    prepare(sink, 1, PAIR, pairs((1, "a"), (1, "b")))
    assert place.rows("k, v") == [(1, "b")]


def test_what_the_table_refuses_is_said_and_nothing_of_the_task_is_kept(place: TargetTable) -> None:
    place.sql(f"CREATE TABLE {place.table} (k bigint PRIMARY KEY, v text NOT NULL)")
    sink = place.sink(PAIR)
    with pytest.raises(SinkFailed, match=r"(?i)null"):
        prepare(sink, 1, PAIR, [{"k": 1, "v": "a"}, {"k": 2, "v": None}])
    with pytest.raises(SinkFailed, match=r"(?i)unique(.|\n)*upsert"):
        prepare(sink, 1, PAIR, pairs((1, "a"), (1, "a")))
    assert place.rows() == []


def test_without_exactly_once_there_is_no_ledger(place: TargetTable) -> None:
    sink = place.sink(PAIR, guarantee="at_least_once")
    assert sink.partitions == (None if place.is_postgres else 1)
    prepare(sink, 1, PAIR, pairs((1, "a")))
    prepare(sink, 1, PAIR, pairs((1, "a")))
    assert place.rows() == [(1, "a"), (1, "a")]
    if not place.is_postgres:
        assert place.sql("SELECT name FROM sqlite_master WHERE name = 'penstock_ledger'") == []


def test_names_need_not_be_identifiers(place: TargetTable) -> None:
    shape = '`order id` bigint, `select` string, `a.b%?"` int'
    sink = place.sink(shape, mode="upsert", key=["order id"], name=place.table)
    prepare(sink, 1, shape, [{"order id": 1, "select": "x", 'a.b%?"': 2}])
    assert place.rows() == [(1, "x", 2)]


def test_mistakes_are_refused_when_the_sink_is_made() -> None:
    with pytest.raises(BadValue, match=r"mode='upsrt' is not known(.|\n)*did you mean 'upsert'"):
        TableSink("t", "db", "upsrt")
    with pytest.raises(BadValue, match="key= is for mode 'upsert'"):
        TableSink("t", "db", key=("k",))
    with pytest.raises(BadValue, match="remove= is for mode 'upsert'"):
        TableSink("t", "db", remove="k = 1")
    with pytest.raises(BadValue, match=r"guarantee='exactly' is not known(.|\n)*exactly_once"):
        TableSink("t", "db", guarantee="exactly")  # type: ignore[arg-type]


def test_a_connection_is_a_name_in_the_settings_or_a_url(tmp_path: Path) -> None:
    settings = Settings(connections={"shop": "sqlite:///a/shop.db"}, files=str(tmp_path))
    sink = TableSink("t", "shop")
    sink.configure("job", settings)
    sink.check()
    assert (tmp_path / "a" / "shop.db").exists()
    with pytest.raises(SettingsError, match=r"not a local folder(.|\n)*sqlite:////"):
        TableSink("t", "sqlite:///shop.db").configure("job", Settings(files="s3://lake"))
    with pytest.raises(SettingsError, match=r"unknown connection 'shopp'(.|\n)*did you mean 'shop'"):
        TableSink("t", "shopp").configure("job", settings)
    with pytest.raises(BadValue, match=r"'mysql://ada:\*\*\*@h/d' is not the address(.|\n)*postgresql://"):
        TableSink("t", "mysql://ada:pw@h/d").configure("job", settings)


def test_a_plan_keeps_no_password() -> None:
    sink = TableSink("t", "postgresql://ada:secret@h/d", "upsert", ("k",), "gone", "at_least_once")
    assert "secret" not in repr(sink.spec())
    with pytest.raises(SettingsError, match="not kept in plans"):
        sink_from_spec(sink.spec())


def test_a_pipeline_that_upserts_rows_without_a_key_is_refused_when_it_is_built() -> None:
    rows = ps.from_items([], PAIR)
    with pytest.raises(BadSchema, match=r"upsert needs a key(.|\n)*columns here: k, v"):
        rows.to(ps.table("t", connection="sqlite:///t.db", mode="upsert"))
    rows.to(ps.table("t", connection="sqlite:///t.db", mode="upsert", key="k"))


def test_a_table_without_a_connection_is_told_how_to_name_one() -> None:
    for wrong in (lambda: ps.table("trades"), lambda: ps.read_table("trades", key="id")):
        with pytest.raises(BadValue, match=r"trades'?: connection= is missing") as raised:
            wrong()
        for way in ('"postgresql://user:password@host:5432/database"', '"sqlite:///shop.db"', "[settings.connections]"):
            assert way in str(raised.value)


def test_a_sink_that_begins_anew_knows_that_its_table_was_written(place: TargetTable) -> None:
    fresh = TableSink(place.table, place.url)
    fresh.configure("job", SETTINGS)
    fresh.check()
    assert not fresh.used_before(place.table)
    sink = place.sink(PAIR)
    assert not fresh.used_before(place.table)
    prepare(sink, 0, PAIR, pairs((1, "a")))
    assert fresh.used_before(place.table)
    assert not fresh.used_before("other")
    place.sql(f"UPDATE penstock_ledger SET sink = '{place.table}@updates' WHERE sink = '{place.table}'")
    assert fresh.used_before(place.table)
    assert not place.sink(PAIR, mode="upsert", key=["k"], name=f"{place.table}_keyed").used_before(place.table)
