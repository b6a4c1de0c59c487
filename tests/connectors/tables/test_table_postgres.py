"""What can go wrong with PostgreSQL, and how the user meets it."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import psycopg
import pyarrow as pa
import pytest

from penstock.connectors.tables.postgres import close_idle
from penstock.connectors.tables.sink import TableSink
from penstock.errors import BadSchema, BadValue, SettingsError, SinkFailed
from penstock.settings import Settings
from tests.connectors.table_sinks import TargetTable, epoch, opened, prepare
from tests.databases import PASSWORD, PostgresServer, table_name

PAIR = "k bigint, v string"


@pytest.fixture
def place(request: pytest.FixtureRequest, postgres: PostgresServer) -> TargetTable:
    return TargetTable(postgres.url, table_name(request.node.name), postgres.sql)


def checked(url: str) -> None:
    sink = TableSink("t", url)
    sink.configure("job", Settings())
    sink.check()


def test_who_cannot_get_in_is_told_why(postgres: PostgresServer) -> None:
    wrong = {
        ("ada:", "ada:x"): "password authentication failed(.|\n)*user and password",
        ("/shop", "/shoop"): 'database "shoop" does not exist(.|\n)*createdb',
        ("127.0.0.1", "no-such-host.invalid"): "does not answer(.|\n)*host and port",
        (postgres.url.split("@")[1].split("/")[0], "127.0.0.1:1"): "answer: Connection refused\n(.|\n)*host and port",
    }
    for (old, new), said in wrong.items():
        with pytest.raises(SettingsError, match=said) as raised:
            checked(postgres.url.replace(old, new))
        assert "s3cret" not in str(raised.value)
    with pytest.raises(BadValue, match=r"'postgresql://ada:\*\*\*@h/d\?ssl=1' is not the address"):
        checked("postgresql://ada:pw@h/d?ssl=1")
    assert PASSWORD not in repr(TableSink("t", postgres.url).spec())


def test_values_that_do_not_fit_are_named(place: TargetTable) -> None:
    place.sql(f"CREATE TABLE {place.table} (k smallint, v varchar(3))")
    sink = place.sink(PAIR)
    for value, said in [((40_000, "a"), "column k"), ((1, "long"), "too long(.|\n)*column v"), ((1, "\0"), "0x00")]:
        with pytest.raises(SinkFailed, match=rf"{place.table} at (.|\n)*{said}(.|\n)*cast\(\) or filter") as raised:
            prepare(sink, 1, PAIR, [{"k": value[0], "v": value[1]}])
        assert not raised.value.transient
    assert place.rows() == []


def test_who_may_not_write_is_told_what_to_grant(place: TargetTable, postgres: PostgresServer) -> None:
    postgres.sql(f"CREATE USER guest PASSWORD '{PASSWORD}'", postgres.admin)
    guest = postgres.url.replace("ada", "guest")
    with pytest.raises(SinkFailed, match=r"permission denied(.|\n)*GRANT"):
        opened(TableSink(place.table, guest), PAIR)
    place.sink(PAIR)
    sink = opened(TableSink(place.table, guest, guarantee="at_least_once"), PAIR)
    with pytest.raises(SinkFailed, match=rf"permission denied for table {place.table}(.|\n)*GRANT"):
        prepare(sink, 1, PAIR, [{"k": 1, "v": "a"}])
    place.sql(f"GRANT INSERT ON {place.table} TO guest")
    prepare(sink, 1, PAIR, [{"k": 1, "v": "a"}])
    assert place.rows() == [(1, "a")]


def test_a_table_may_be_in_a_schema_of_its_own(place: TargetTable) -> None:
    with pytest.raises(SinkFailed, match=r"CREATE SCHEMA"):
        place.sink(PAIR, name="nowhere.t")
    place.sql("CREATE SCHEMA sales")
    sink = place.sink(PAIR, name="sales.t")
    prepare(sink, 1, PAIR, [{"k": 1, "v": "a"}])
    prepare(sink, 1, PAIR, [{"k": 1, "v": "a"}])
    assert place.sql("SELECT * FROM sales.t") == [(1, "a")]
    assert place.sql("SELECT epoch FROM sales.penstock_ledger") == [(1,)]


def test_a_database_that_is_restarted_in_mid_epoch_gets_each_row_once(
    place: TargetTable, postgres: PostgresServer
) -> None:
    sink = place.sink(PAIR)
    prepare(sink, 1, PAIR, [{"k": 1, "v": "a"}])

    def restarted() -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pylist([{"k": 2, "v": "b"}])
        postgres.stop()
        yield pa.RecordBatch.from_pylist([{"k": 3, "v": "c"}])

    try:
        with pytest.raises(SinkFailed) as raised:
            sink.prepare(epoch(sink, 2), 0, restarted())
        assert raised.value.transient
        again = threading.Thread(target=prepare, args=(sink, 2, PAIR, [{"k": 2, "v": "b"}, {"k": 3, "v": "c"}]))
        again.start()
    finally:
        postgres.start()
    again.join()
    assert place.rows("k") == [(1,), (2,), (3,)]


def test_connections_of_before_a_restart_are_made_anew(place: TargetTable, postgres: PostgresServer) -> None:
    sink = place.sink(PAIR)
    prepare(sink, 1, PAIR, [{"k": 1, "v": "a"}])
    postgres.stop()
    postgres.start()
    prepare(sink, 2, PAIR, [{"k": 2, "v": "b"}])
    assert place.rows("k") == [(1,), (2,)]


def test_a_second_attempt_waits_for_the_first_and_then_writes_nothing(place: TargetTable) -> None:
    sink = place.sink(PAIR)
    begun, go_on = threading.Event(), threading.Event()

    def slow() -> Iterator[pa.RecordBatch]:
        begun.set()
        go_on.wait(60)
        yield pa.RecordBatch.from_pylist([{"k": 1, "v": "a"}])

    first = threading.Thread(target=sink.prepare, args=(epoch(sink, 1), 0, slow()))
    second = threading.Thread(target=prepare, args=(sink, 1, PAIR, [{"k": 1, "v": "a"}]))
    first.start()
    assert begun.wait(60)
    second.start()
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = 'shop'"
    while place.sql(waiting) == [(0,)]:
        assert second.is_alive()
    go_on.set()
    first.join()
    second.join()
    assert place.rows() == [(1, "a")]


def test_an_updated_key_that_only_has_key_columns_stays(place: TargetTable) -> None:
    sink = place.sink("k bigint", mode="upsert", key=["k"])
    prepare(sink, 1, "k bigint", [{"k": 1}, {"k": 1}])
    prepare(sink, 2, "k bigint", [{"k": 1}])
    assert place.rows() == [(1,)]


def test_enums_uuids_and_json_columns_take_text(place: TargetTable) -> None:
    place.sql("CREATE TYPE mood AS ENUM ('glad', 'sad')")
    place.sql(f"CREATE TABLE {place.table} (m mood, u uuid, j jsonb, n numeric(10, 2))")
    shape = "m string, u string, j string, n double"
    sink = place.sink(shape)
    identity = "12345678-1234-1234-1234-123456789012"
    prepare(sink, 1, shape, [{"m": "glad", "u": identity, "j": '{"a": 1}', "n": 1.25}])
    assert place.rows("m, u::text, j, n::text") == [("glad", identity, {"a": 1}, "1.25")]
    with pytest.raises(SinkFailed, match="mood"):
        prepare(sink, 2, shape, [{"m": "angry", "u": identity, "j": "{}", "n": 1.25}])
    with pytest.raises(BadSchema, match=r"column 'n': rows have timestamp, the table numeric"):
        place.sink("n timestamp")


def test_no_more_connections_wait_than_tasks_ran_at_once(place: TargetTable) -> None:
    close_idle()
    sink = place.sink(PAIR)
    for number in range(5):
        prepare(sink, number, PAIR, [{"k": number, "v": "a"}])
    (count,) = place.sql("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'penstock'")[0]
    assert count == 1
    close_idle()
    with psycopg.connect(place.url) as connection:
        assert connection.execute(f"SELECT count(*) FROM {place.table}".encode()).fetchone() == (5,)


@pytest.mark.parametrize(("chosen", "used"), [("off", "on"), ("local", "local"), ("on", "on")])
def test_a_commit_is_on_the_disk_when_it_returns(place: TargetTable, chosen: str, used: str) -> None:
    sink = TableSink(place.table, f"{place.url}?options=-csynchronous_commit%3D{chosen}")
    sink.configure("job", Settings())
    with sink.database.transaction(place.table) as session:
        assert session.execute("SHOW synchronous_commit") == [(used,)]
