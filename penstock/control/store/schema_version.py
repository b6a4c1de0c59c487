"""Brings the tables of a store to the form of this version, by Alembic's migrations."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, inspect, text

from penstock.errors import NewerStore

if TYPE_CHECKING:
    from alembic.config import Config

FOLDER = Path(__file__).parent / "migrations"
HEAD = "0004"  # the newest migration; a test compares it with the folder
# Any number that others do not use: managers that start together migrate one after the other.
_ADVISORY_LOCK = 7_367_201


def migrate(connection: Connection, target: str = HEAD) -> None:
    """Apply the migrations that a store lacks, within the transaction of the connection."""
    if connection.dialect.name == "postgresql":
        connection.execute(text(f"SELECT pg_advisory_xact_lock({_ADVISORY_LOCK})"))
    current = current_revision(connection)
    if current == target:
        return
    # Loaded only here: most starts find the newest tables, and Alembic costs the manager time and memory.
    from alembic import command

    _refuse_newer(current)
    command.upgrade(configuration(connection), target)


def current_revision(connection: Connection) -> str | None:
    """Return the newest migration that was applied; None for an empty database."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    found: str | None = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    return found


def configuration(connection: Connection | None = None) -> Config:
    """Return Alembic's configuration for the migrations of this package."""
    from alembic.config import Config

    config = Config(attributes={"connection": connection})
    # Alembic expands % in options.
    config.set_main_option("script_location", str(FOLDER).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


def _refuse_newer(current: str | None) -> None:
    known = {path.stem.partition("_")[2][:4] for path in (FOLDER / "versions").glob("revision_*.py")}
    if current is not None and current not in known:
        message = f"its tables have version {current}, and this Penstock knows those up to {HEAD}"
        hint = "install the version of Penstock that last used this store, or a newer one"
        raise NewerStore(message, node="store", hint=hint)
