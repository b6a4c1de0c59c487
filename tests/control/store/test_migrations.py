"""Migrations: from the first one to the newest, on both databases, and no difference to the tables in the code."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import inspect, text

from penstock.control.store.repositories.jobs import Job
from penstock.control.store.schema_version import FOLDER, HEAD, configuration, current_revision, migrate
from penstock.control.store.store import Store
from penstock.control.store.tables import metadata
from penstock.errors import NewerStore

REVISIONS = [script.revision for script in ScriptDirectory.from_config(configuration()).walk_revisions()][::-1]


@pytest.fixture
def empty(store_url: str) -> Iterator[Store]:
    """A database without any tables."""
    with Store(store_url) as store:
        _drop_all(store)
        yield store
        _drop_all(store)


def _drop_all(store: Store) -> None:
    with store.writing() as connection:
        metadata.drop_all(connection)
        connection.execute(text("DROP TABLE IF EXISTS alembic_version"))


def test_the_newest_migration_is_the_one_that_stores_are_brought_to() -> None:
    assert REVISIONS[-1] == HEAD


def test_each_migration_has_its_number_in_the_name_of_its_file() -> None:
    names = sorted(path.name for path in (FOLDER / "versions").glob("revision_*.py"))
    assert [name[len("revision_") :][:4] for name in names] == REVISIONS


def test_migrations_create_the_tables_of_the_code(empty: Store) -> None:
    empty.migrate()
    with empty.reading() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, metadata) == []
        assert current_revision(connection) == HEAD


def test_a_store_goes_from_the_first_migration_to_the_newest_and_keeps_its_jobs(empty: Store) -> None:
    for number, revision in enumerate(REVISIONS):
        with empty.writing() as connection:
            migrate(connection, revision)
            assert current_revision(connection) == revision
        if number == 0:
            empty.jobs.create(Job(id="a", name="first"))
    assert empty.jobs.get("a").name == "first"
    empty.migrate()


def test_a_migration_that_fails_leaves_the_store_as_it_was(empty: Store) -> None:
    with empty.writing() as connection:
        connection.execute(text("CREATE TABLE tokens (id integer)"))
    with pytest.raises(Exception, match="tokens"):
        empty.migrate()
    with empty.reading() as connection:
        assert inspect(connection).get_table_names() == ["tokens"]


def test_a_store_of_a_newer_version_is_refused(empty: Store) -> None:
    empty.migrate()
    with empty.writing() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(NewerStore, match="9999"):
        empty.migrate()


def test_managers_that_start_together_migrate_one_after_the_other(empty: Store, store_url: str) -> None:
    def start(_: int) -> None:
        with Store(store_url) as store:
            store.migrate()

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(start, range(2)))
    assert empty.jobs.all() == []
