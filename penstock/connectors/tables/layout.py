"""The table that rows need: made if it is missing, compared with them if it is there."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.connectors.tables.database import Column, Database, Session, Target, column, listed, quoted
from penstock.errors import BadSchema


def make_or_check(database: Database, session: Session, target: Target) -> None:
    """Make the table, or raise BadSchema with all that stands in the way."""
    found = session.columns(target.table)
    if found is None:
        session.execute(creation(database, target))
        return
    wrong = list(_differences(database, target, found))
    if wrong:
        message = f"table {target.table} at {database.place} does not fit the rows:\n  " + "\n  ".join(wrong)
        raise BadSchema(message, hint="change the table, or select() and cast() before it what it takes")
    if target.key and set(target.key) not in session.unique_keys(target.table):
        message = f"table {target.table} at {database.place} has no unique index on {', '.join(target.key)}"
        index = f"CREATE UNIQUE INDEX ON {quoted(target.table)} ({listed(target.key)});"
        named = index if database.place.startswith("postgres") else index.replace(" ON", f" {_index_name(target)} ON")
        raise BadSchema(message, hint=f"upsert needs one, run: {named}")


def creation(database: Database, target: Target) -> str:
    """Return the statement that makes the table."""
    columns = [
        f"{column(field.name)} {database.type_of(field)}{'' if field.nullable else ' NOT NULL'}"
        for field in target.schema
    ]
    key = [f"PRIMARY KEY ({listed(target.key)})"] if target.key else []
    return f"CREATE TABLE {quoted(target.table)} ({', '.join([*columns, *key])})"


def _differences(database: Database, target: Target, found: list[Column]) -> Iterator[str]:
    there = {column.name: column for column in found}
    for field in target.schema:
        if field.name not in there:
            add = f"ALTER TABLE {quoted(target.table)} ADD COLUMN {column(field.name)} {database.type_of(field)};"
            yield f"column '{field.name}' ({field.type}) is missing: {add}"
        elif not database.takes(there[field.name], field):
            yield f"column '{field.name}': rows have {field.type}, the table {there[field.name].type}"
    for extra in found:
        if extra.required and extra.name not in target.schema:
            yield f"column '{extra.name}' is not null without a default, and rows have none"


def _index_name(target: Target) -> str:
    return quoted(f"{target.table}_key".replace(".", "_"))
