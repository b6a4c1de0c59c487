"""Resolves the connection of a table."""

from __future__ import annotations

import os

from penstock.connectors.tables.database import Database
from penstock.errors import BadValue, SettingsError, choices
from penstock.masking import masked
from penstock.settings import Settings, unread

_FORMS = 'write "postgresql://user:password@host:5432/database" or "sqlite:///path"'
_EXAMPLES = (
    'pass its address, connection="postgresql://user:password@host:5432/database" or connection="sqlite:///shop.db",\n'
    '  or a name, connection="shop", and say in penstock.toml what it is:\n'
    '    [settings.connections]\n    shop = "postgresql://user:password@host:5432/database"'
)
_POSTGRES = ("postgresql://", "postgres://")
_SQLITE = "sqlite:///"


def resolve(connection: str, settings: Settings) -> Database:
    """Return the database of a name in the settings, or of a URL; SQLite's relative paths start from `files`."""
    url = settings.connections.get(connection, connection)
    if "://" not in url:
        message = f"unknown connection '{masked(connection)}'"
        hint = unread(settings, "connections", connection) or choices("connections", settings.connections, connection)
        raise SettingsError(message, hint=f"{hint}\n  or {_FORMS}")
    if url.startswith(_POSTGRES):
        from penstock.connectors.tables.postgres import Postgres

        return Postgres(url)
    if url.startswith(_SQLITE) and url != _SQLITE:
        from penstock.connectors.tables.sqlite import Sqlite

        return Sqlite(_local(url.removeprefix(_SQLITE), settings.files))
    message = f"{masked(url)!r} is not the address of a database that tables can be written to"
    raise BadValue(message, hint=_FORMS)


def refuse_no_connection(connection: str, node: str) -> None:
    """Raise BadValue if the connection is missing or is not the address of a database."""
    if "://" in connection and not connection.startswith((*_POSTGRES, _SQLITE)):
        message = f"connection={masked(connection)!r} is not the address of a database that tables can be in"
        raise BadValue(message, node=node, hint=_FORMS)
    if not connection:
        message = "connection= is missing: in which database is the table?"
        raise BadValue(message, node=node, hint=_EXAMPLES)


def is_database(connection: str, settings: Settings) -> bool:
    """Return whether a connection leads to a database, not to a log."""
    return settings.connections.get(connection, connection).startswith((*_POSTGRES, _SQLITE))


def _local(path: str, files: str) -> str:
    if "://" in files and not os.path.isabs(path):
        message = f"the database {path!r} is relative to files={masked(files)!r}, which is not a local folder"
        raise SettingsError(message, hint="use an absolute path: sqlite:////folder/shop.db")
    return os.path.abspath(os.path.join(files, path))
