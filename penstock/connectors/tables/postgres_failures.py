"""What goes wrong with PostgreSQL, as the user should meet it."""

from __future__ import annotations

import re
from collections.abc import Iterable

import psycopg

from penstock.errors import DiskFull, PenstockError, SinkFailed
from penstock.masking import without

# Classes and codes of SQLSTATE after which the same transaction may well succeed.
_PASSING = ("08", "40", "57P", "55P03", "53300", "53200", "53400")
_HINTS = {
    "22": "cast() or filter() such values before, or alter the column",
    "23502": 'leave such rows out before: .filter("... IS NOT NULL"), or alter the column: DROP NOT NULL',
    "23505": 'a row with that key is there already: write with mode="upsert" to replace it',
    "23": "look at the table's constraints, and filter() before what breaks them",
    "25006": "connect to a server that can be written, not to a standby",
    "3F": "make the schema: CREATE SCHEMA ...",
    "42P01": "leave the table alone while a job runs, and run the job again: it is made anew if it is missing",
    "42": "look at the table, and run the job again",
}
# The server's reasons to refuse a connection come without a code.
_KEPT_OUT = {
    re.compile("authentication failed"): "look at user and password of the connection",
    re.compile("no password supplied"): "write it: postgresql://user:password@host/database",
    re.compile("no pg_hba.conf entry"): "let this user in by the server's pg_hba.conf, or try sslmode=require",
    re.compile('database ".*" does not exist'): "look at the connection's database, or make it: createdb NAME",
    re.compile('role ".*" does not exist'): "look at the connection's user, or make it: createuser NAME",
}


class Unreachable(SinkFailed):
    """There is no connection to the database."""


def failed(error: psycopg.Error, table: str, place: str) -> PenstockError:
    """Return an error of a statement."""
    code, said = error.sqlstate or "", _said(error)
    message = f"table {table} at {place}: {said}"
    if code == "53100":
        return DiskFull(message, hint="free some space where the database is, and run the job again")
    if code == "42501":
        return SinkFailed(message, hint=_grant(table))
    if code.startswith(_PASSING) or (not code and isinstance(error, psycopg.OperationalError)):
        return SinkFailed(message, hint="see whether the database is alive, and run the job again", transient=True)
    hint = next((hint for start, hint in _HINTS.items() if code.startswith(start)), None)
    return SinkFailed(message, hint=hint)


def no_connection(error: psycopg.Error, place: str, secrets: Iterable[str] = ()) -> Unreachable:
    """Return an error of connecting; the server's reason comes as text only."""
    # libpq's last line may be a question of its own: what the hint says, less plainly.
    said = without(str(error), secrets).partition("\n\tIs the server running")[0].strip().splitlines()[-1].strip()
    for reason, hint in _KEPT_OUT.items():
        if reason.search(said):
            message = f"{place} refuses the login: {said.rpartition('FATAL:')[2].strip()}"
            return Unreachable(message, hint=hint)
    hint = "see whether PostgreSQL runs there, and look at host and port of the connection"
    return Unreachable(f"{place} does not answer: {said.rpartition(' failed: ')[2]}", hint=hint, transient=True)


def _said(error: psycopg.Error) -> str:
    main = error.diag.message_primary or str(error).strip() or type(error).__name__
    where = (error.diag.context or "").partition("\n")[0]
    return f"{main} ({where})" if where else main


def _grant(table: str) -> str:
    return (
        f"who owns them runs: GRANT SELECT, INSERT, UPDATE, DELETE ON {table}, penstock_ledger TO user; "
        "to have them made by the job: GRANT CREATE ON SCHEMA public TO user"
    )
