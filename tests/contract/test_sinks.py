"""Promise: every sink shows each epoch as often as its guarantee says, ours and the users' own."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock.connectors.sinks.collect import from_ipc, to_ipc
from penstock.contracts import Guarantee
from penstock.settings import Settings
from penstock.testing import check_sink
from tests.connectors.kafka_topics import fresh
from tests.connectors.sinks.receiver import receiving
from tests.connectors.table_sinks import TargetTable, sqlite_table


class DuckTable(ps.Sink):
    """The sink of a user: a table of DuckDB, whose ledger is a table beside it."""

    guarantee = "exactly_once"

    def __init__(self, folder: Path) -> None:
        self.name, self.folder = "duck", folder

    def prepare(self, epoch: ps.Epoch, partition: int, batches: Iterable[pa.RecordBatch]) -> str:
        path = self.folder / f"{uuid4()}.parquet"
        pq.write_table(pa.Table.from_batches(batches), path)
        return str(path)

    def commit(self, epoch: ps.Epoch, tokens: Sequence[str]) -> None:
        with self.transaction() as database:
            if not database.execute("SELECT 1 FROM ledger WHERE id = ?", [epoch.id]).fetchone():
                database.execute("INSERT INTO rows SELECT * FROM read_parquet(?)", [list(tokens)])
                database.execute("INSERT INTO ledger VALUES (?)", [epoch.id])

    @contextmanager
    def transaction(self) -> Iterator[duckdb.DuckDBPyConnection]:
        with duckdb.connect(self.folder / "duck.db") as database:
            database.execute("CREATE TABLE IF NOT EXISTS rows (id BIGINT, word VARCHAR)")
            database.execute("CREATE TABLE IF NOT EXISTS ledger (id VARCHAR)")
            database.begin()
            yield database
            database.commit()

    def rows(self) -> list[dict[str, Any]]:
        with self.transaction() as database:
            return database.sql("SELECT * FROM rows").to_arrow_table().to_pylist()


class Forgetful(ps.Sink):
    """A sink that says more than it keeps: it has no ledger."""

    guarantee = "exactly_once"

    def __init__(self) -> None:
        self.name, self.rows = "forgetful", []

    def prepare(self, epoch: ps.Epoch, partition: int, batches: Iterable[pa.RecordBatch]) -> bytes:
        return to_ipc(batches)

    def commit(self, epoch: ps.Epoch, tokens: Sequence[bytes]) -> None:
        self.rows += [row for token in tokens for batch in from_ipc(token) for row in batch.to_pylist()]


class Swallowing(Forgetful):
    """A sink that hides what goes wrong among its rows."""

    def prepare(self, epoch: ps.Epoch, partition: int, batches: Iterable[pa.RecordBatch]) -> bytes:
        kept = []
        try:
            kept += batches
        except Exception:
            kept.clear()
        return to_ipc(kept)


class ByNumber(Forgetful):
    """A sink whose ledger has numbers only, and that cannot be asked."""

    newest = -1

    def commit(self, epoch: ps.Epoch, tokens: Sequence[bytes]) -> None:
        if epoch.number > self.newest or epoch.lineage == "fork" or epoch.sink != self.name:
            super().commit(epoch, tokens)
        self.newest = max(self.newest, epoch.number)


def test_files(tmp_path: Path) -> None:
    def read() -> list[dict[str, Any]]:
        return [row for path in tmp_path.glob("out/*.parquet") for row in pq.read_table(path).to_pylist()]

    check_sink(lambda: ps.files(str(tmp_path / "out")), read)


def test_topics(broker: str) -> None:
    check_topic(broker, "exactly_once")


@pytest.mark.parametrize("guarantee", ["at_least_once", "at_most_once"])
def test_topics_without_a_ledger(event_log: str, guarantee: Guarantee) -> None:
    check_topic(event_log, guarantee)


def check_topic(broker: str, guarantee: Guarantee) -> None:
    topic = fresh(broker).create(2)

    def make() -> ps.Sink:
        sink = ps.topic(topic.name, connection=broker, guarantee=guarantee)
        sink.configure("suite", Settings(parallelism=2))
        return sink

    def read() -> list[dict[str, Any]]:
        for partition in topic.partitions:
            topic.settle(partition)
        return [json.loads(message.value()) for message in topic.consume()]

    check_sink(make, read)


@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once", "at_most_once"])
@pytest.mark.parametrize("database", ["postgres", "sqlite"])
def test_tables(request: pytest.FixtureRequest, tmp_path: Path, database: str, guarantee: Guarantee) -> None:
    table = f"suite_{guarantee}"
    place = sqlite_table(tmp_path / "suite.db", table)
    if database == "postgres":
        server = request.getfixturevalue("postgres")
        place = TargetTable(server.url, table, server.sql)

    def make() -> ps.Sink:
        sink = ps.table(table, connection=place.url, guarantee=guarantee)
        sink.configure("suite", Settings(parallelism=2))
        return sink

    check_sink(make, lambda: [{"id": number, "word": word} for number, word in place.rows("id, word")])


def test_a_webhook() -> None:
    with receiving() as receiver:
        check_sink(lambda: ps.webhook(receiver.url), lambda: receiver.rows)


def test_collected_rows() -> None:
    sink = ps.collect()
    check_sink(lambda: sink, lambda: sink.rows)


def test_a_callback() -> None:
    rows: list[dict[str, Any]] = []
    check_sink(lambda: ps.callback(lambda epoch, table: rows.extend(table.to_pylist())), lambda: rows)


def test_a_users_own_sink(tmp_path: Path) -> None:
    check_sink(lambda: DuckTable(tmp_path), DuckTable(tmp_path).rows)


def test_a_sink_that_keeps_less_than_it_says_is_found_out() -> None:
    sink = Forgetful()
    with pytest.raises(AssertionError, match=r"forgetful: after an epoch was replayed rows are duplicated"):
        check_sink(lambda: sink, lambda: sink.rows)


def test_a_sink_that_swallows_errors_is_found_out() -> None:
    sink = Swallowing()
    with pytest.raises(AssertionError, match="swallowed the error"):
        check_sink(lambda: sink, lambda: sink.rows)


def test_a_sink_that_would_skip_other_rows_under_an_older_number_is_found_out() -> None:
    sink = ByNumber()
    with pytest.raises(AssertionError, match=r"after an epoch's number was used for other input rows are missing"):
        check_sink(lambda: sink, lambda: sink.rows)
