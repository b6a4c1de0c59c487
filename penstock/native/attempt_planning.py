"""Which expressions of a program can fail on a row, and the probes that find the reason.

Apart from `attempts.py`, which tasks load: they should not load the SQL parser.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.native.attempts import TRIED, Attempt
from penstock.plan.fallible import can_fail, probes, unexplained
from penstock.plan.portable import native_sql
from penstock.plan.portable.parts import Stays
from penstock.schema import Schema


def attempts(wanted: Iterable[str], schema: Schema) -> dict[str, Attempt]:
    """Return attempts for those of some expressions that can fail, by expression."""
    risky = [sql for sql in dict.fromkeys(wanted) if can_fail(sql, schema)]
    return {sql: _attempt(f"{TRIED}{number}", sql, schema) for number, sql in enumerate(risky)}


def _attempt(column: str, sql: str, schema: Schema) -> Attempt:
    found = []
    for probe in probes(sql, schema):
        try:
            found.append((native_sql(probe.sql, schema), probe.reason))
        except Stays:
            continue
    return Attempt(column, native_sql(sql, schema), tuple(found), unexplained(sql))
